"""Run files: a whole line a write, readable after a cut at any byte, continued only as the same run."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_core.encoded import encode_frame
from ptoa_core.errors import FileError, FormatError, FrameError, PtoaWarning, SettingError, SpecError
from ptoa_core.frames import BlockHealth, HeadPattern, HealthFrame
from ptoa_core.protocol import MAX_LINE_BYTES
from ptoa_core.runs import RunFile, default_run_path, iter_frames, read_header
from ptoa_core.spec import Block, ModelSpec

SPEC = ModelSpec("tiny µ", [Block("t0", "tokens"), Block("l0", "linear", inputs=["t0"])], "l0")
OTHER = ModelSpec("other", [Block("t0", "tokens")], "t0")


def frame(step, **keys):
    return HealthFrame(step, float(step), 0.5, [BlockHealth("l0", weightNorm=1.5)], **keys)


def written(path, steps, spec=SPEC, **options):
    """A closed run file with frames of these steps."""
    run = RunFile(path, spec, **options)
    for step in steps:
        run.push_health(frame(step))
    run.close()
    return run


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "run.pta")


def steps_of(path):
    return [kept.step for kept in RunFile.read(path)[1]]


def lines_of(path):
    with open(path, "rb") as file:
        return [json.loads(line) for line in file]


def test_header_and_frames_read_back(path):
    written(path, range(5))
    spec, frames = RunFile.read(path)
    assert spec == SPEC.to_dict()
    assert frames == [frame(step) for step in range(5)]
    assert frames[-1].loss == 0.5
    assert [kept.step for kept in frames[1:3]] == [1, 2]
    assert [kept.step for kept in iter_frames(path)] == list(range(5))
    assert read_header(path) == SPEC


def test_lines_are_those_of_the_format(path):
    written(path, [0, 10])
    header, first, second = lines_of(path)
    assert (header["protocol"], header["v"], header["spec"]) == ("pta-run", 1, SPEC.to_dict())
    assert set(header["producer"]) == {"name", "version"}
    assert first == {"event": "health", "data": frame(0).to_dict()}
    assert second["data"]["step"] == 10


def test_every_line_is_on_disk_as_soon_as_it_is_written(path):
    run = RunFile(path, SPEC)
    for step in range(3):
        run.push_health(frame(step))
        with open(path, "rb") as file:
            text = file.read()
        assert text.endswith(b"\n")
        assert text.count(b"\n") == step + 2
    run.close()


def test_events_frames_objects_and_encoded_frames_are_written(path):
    run = RunFile(path, SPEC)
    run.write("note", {"text": "warm µ"})
    run.write("health", frame(0))
    run.write("health", {"step": 1, "t": 0.0, "loss": float("nan"), "blocks": []})
    run.push_health(encode_frame(frame(2)))
    run.close()
    assert lines_of(path)[1] == {"event": "note", "data": {"text": "warm µ"}}
    assert steps_of(path) == [0, 1, 2]
    assert RunFile.read(path)[1][1].nonFinite == {"loss": "nan"}


@pytest.mark.parametrize("data", [{"a": float("nan")}, {1, 2}, "\ud800", 2**53])
def test_event_that_json_cannot_say_is_refused_and_leaves_no_trace(path, data):
    run = RunFile(path, SPEC)
    with pytest.raises(FormatError):
        run.write("note", data)
    run.push_health(frame(0))
    run.close()
    assert steps_of(path) == [0]


def test_header_comes_first_and_once(path):
    run = RunFile(path, None)
    with pytest.raises(SettingError, match=r"call write_header\(spec\) first"):
        run.push_health(frame(0))
    run.write_header(SPEC)
    with pytest.raises(SettingError, match="has its header already"):
        run.write_header(SPEC)
    run.push_health(frame(0))
    run.close()
    run.close()
    assert steps_of(path) == [0]
    with pytest.raises(SettingError, match="is closed"):
        run.push_health(frame(1))


def test_spec_that_no_reader_takes_is_refused_before_a_file_is_made(path):
    with pytest.raises(SpecError, match="ghost"):
        RunFile(path, ModelSpec("x", [], "ghost"))
    assert not Path(path).exists()


def test_line_that_no_reader_takes_is_refused(path):
    run = RunFile(path, SPEC)
    with pytest.raises(FrameError, match="at most 67108864 are read"):
        run.write("note", "x" * MAX_LINE_BYTES)
    run.close()


def test_missing_folders_are_made(tmp_path):
    run = written(str(tmp_path / "a" / "b" / "run.pta"), [0])
    assert steps_of(run.path) == [0]


def test_default_path_is_safe_and_dated():
    folder, name = os.path.split(default_run_path("../a/b\x1b[2J c"))
    assert folder == "pta-runs"
    assert name.startswith("a-b--2J-c-")
    assert len(name) == len("a-b--2J-c-YYYYMMDD-HHMMSS.pta")
    assert default_run_path("x", folder="runs").startswith(f"runs{os.sep}x-")


# Reading what a crash, a disk or a stranger left


def read_quietly(path):
    """The steps that count, and whether a warning was given."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        steps = steps_of(path)
    assert all(issubclass(warning.category, PtoaWarning) for warning in said)
    return steps, [str(warning.message) for warning in said]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a run of four frames, and where each line ends."""
    path = str(tmp_path_factory.mktemp("run") / "run.pta")
    written(path, range(4))
    with open(path, "rb") as file:
        text = file.read()
    return text, [index + 1 for index, byte in enumerate(text) if byte == 10]


def test_file_cut_at_any_byte_reads_to_its_last_whole_line(whole, tmp_path):
    text, ends = whole
    path = tmp_path / "cut.pta"
    for cut in range(len(text)):
        path.write_bytes(text[:cut])
        if cut < ends[0] - 1:
            with pytest.raises(FileError):
                RunFile.read(path)
            continue
        steps, said = read_quietly(path)
        # A line that lacks only its line end is whole.
        wanted = sum(end - 1 <= cut for end in ends[1:])
        assert steps == list(range(wanted))
        assert bool(said) == (cut not in ends and cut + 1 not in ends)


def test_file_cut_at_any_byte_is_continued(whole, tmp_path):
    text, ends = whole
    for cut in range(ends[0] - 1, len(text), 7):
        path = tmp_path / f"cut{cut}.pta"
        path.write_bytes(text[:cut])
        run = RunFile(path, SPEC)
        assert run.path == str(path)
        run.push_health(frame(100))
        run.close()
        wanted = sum(end - 1 <= cut for end in ends[1:])
        assert run.attempt == (2 if wanted else 1)
        assert read_quietly(path) == ([*range(wanted), 100], [])


@given(st.integers(0, 2**16), st.integers(0, 3), st.binary(max_size=4))
def test_damage_anywhere_gives_our_errors_or_frames(whole, tmp_path_factory, place, removed, put):
    text, _ = whole
    place %= len(text)
    path = tmp_path_factory.getbasetemp() / "damaged.pta"
    path.write_bytes(text[:place] + put + text[place + removed :])
    try:
        steps, _ = read_quietly(path)
    except FormatError:
        return
    assert len(steps) <= 5


def lines(*texts, sep="\n", end="\n"):
    header = json.dumps({"protocol": "pta-run", "v": 1, "spec": SPEC.to_dict()})
    return sep.join([header, *texts]) + end


def health(step, **keys):
    return json.dumps(
        {"event": "health", "data": {"step": step, "t": 0.0, "loss": None, "blocks": [], **keys}}
    )


LEFT_OUT = {
    "garbage": ("@@@ not json", "line 3 was left out: Expecting value"),
    "nan": ('{"event":"health","data":{"step":1,"t":NaN}}', "line 3 was left out: NaN"),
    "equal-keys": ('{"event":"health","event":"x"}', "line 3 was left out: the key 'event' stands twice"),
    "deep": ("[" * 100_000, "line 3 was left out: nested"),
    "array": ("[]", "an event must be an object, found a list of 0"),
    "no-data": ('{"event":"health"}', "the data of a health event must be an object"),
    "bad-step": (health(-1), "line 3 was left out: frame.step"),
    "bad-pattern": (
        health(1, blocks=[{"id": "a", "headPattern": [{"head": 0, "size": 1, "b64": "!"}]}]),
        "line 3 was left out: headPattern of head 0: b64",
    ),
    "latin-1": ('{"event":"caf\udce9"}', "line 3 was left out: not UTF-8"),
    "nul": ("\0\0\0", "line 3: only NUL bytes"),
}


@pytest.mark.parametrize(("line", "says"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_line_that_is_no_event_is_left_out_and_named(tmp_path, line, says):
    path = tmp_path / "run.pta"
    path.write_bytes(lines(health(0), line, health(2)).encode("utf-8", "surrogateescape"))
    steps, said = read_quietly(path)
    assert steps == [0, 2]
    assert len(said) == 1
    assert says in said[0]
    assert "run.pta" in said[0]


@pytest.mark.parametrize(
    "line",
    ['{"event":"note","data":5}', '{"event":"future"}', "{}", '{"event":["health"]}', "", "   ", "\t"],
    ids=repr,
)
def test_event_of_another_kind_is_skipped_without_a_word(tmp_path, line):
    path = tmp_path / "run.pta"
    path.write_text(lines(health(0), line, health(2)))
    assert read_quietly(path) == ([0, 2], [])


def test_line_ends_of_windows_blank_lines_and_unknown_keys_are_read(tmp_path):
    path = tmp_path / "run.pta"
    path.write_bytes(
        b"\r\n  \r\n" + lines(health(0, newField={"a": 1}), "", health(1), sep="\r\n", end="\r\n").encode()
    )
    assert read_quietly(path) == ([0, 1], [])
    assert RunFile.read(path)[1][0].extra == {"newField": {"a": 1}}


def test_nul_bytes_at_the_end_are_left_out(tmp_path):
    path = tmp_path / "run.pta"
    path.write_bytes(lines(health(0)).encode() + b"\0" * 512)
    steps, said = read_quietly(path)
    assert steps == [0]
    assert ["NUL" in text for text in said] == [True]


def test_endless_blank_lines_end_the_reading_with_a_warning(tmp_path):
    path = tmp_path / "x.pta"
    path.write_text(lines(health(0), "\n" * 9_000, health(1), "\n" * 1_000_000, health(2)))
    steps, said = read_quietly(path)
    assert steps == [0, 1]
    assert said == [f"'{path}', line 19005: over 10000 blank lines in a row; the rest was not read"]


def test_many_bad_lines_give_few_warnings(tmp_path):
    path = tmp_path / "run.pta"
    path.write_text(lines(*["bad"] * 50, health(1)))
    steps, said = read_quietly(path)
    assert steps == [1]
    assert len(said) == 9
    assert "42 more lines were left out" in said[-1]


def test_line_too_long_ends_the_reading_with_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr("ptoa_core._run_reader.MAX_LINE_BYTES", 2_000)
    path = tmp_path / "run.pta"
    path.write_text(lines(health(0), "x" * 2_001, health(1)))
    steps, said = read_quietly(path)
    assert steps == [0]
    assert "line 3: over 2000 bytes; it and what follows was not read" in said[0]


NO_RUN = {
    "empty": b"",
    "blank": b"\n \n",
    "nul": b"\0" * 100,
    "json": b'{"a":1}\n',
    "text": b"hello\nworld\n",
    "pta": json.dumps({"protocol": "pta-file", "v": 1, "spec": SPEC.to_dict()}).encode(),
    "spec": SPEC.to_json().encode(),
    "array": b"[]\n",
    "frame-first": health(0).encode(),
    "newer": json.dumps({"protocol": "pta-run", "v": 2, "spec": SPEC.to_dict()}).encode(),
    "no-spec": b'{"protocol":"pta-run","v":1}\n',
    "spec-text": b'{"protocol":"pta-run","v":1,"spec":"x"}\n',
    "byte-order-mark": b"\xef\xbb\xbf" + lines(health(0)).encode(),
}


@pytest.mark.parametrize("text", NO_RUN.values(), ids=NO_RUN)
@pytest.mark.parametrize(
    "read", [RunFile.read, lambda path: list(iter_frames(path)), read_header], ids=["read", "iter", "header"]
)
@pytest.mark.filterwarnings("ignore:.*only NUL bytes:ptoa_core.errors.PtoaWarning")
def test_what_is_no_run_file_is_refused(tmp_path, text, read):
    path = tmp_path / "x.pta"
    path.write_bytes(text)
    with pytest.raises(FileError, match=r"x\.pta"):
        read(path)


def test_header_with_a_spec_that_cannot_be_used_is_refused(tmp_path):
    path = tmp_path / "x.pta"
    path.write_text(
        json.dumps({"protocol": "pta-run", "v": 1, "spec": {**SPEC.to_dict(), "output": "ghost"}})
    )
    with pytest.raises(SpecError, match="ghost"):
        RunFile.read(path)


def test_special_files_are_refused_without_waiting(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for special, kind in ((pipe, "a named pipe"), (tmp_path, "a directory"), ("/dev/zero", "a device")):
        with pytest.raises(FileError, match=kind):
            RunFile.read(special)
    with pytest.raises(FileNotFoundError):
        RunFile.read(tmp_path / "missing")


# Attempts


def test_equal_spec_is_continued_with_an_attempt(path):
    first = written(path, [0, 10, 20])
    again = written(path, [30])
    third = written(path, [40])
    assert (first.attempt, again.attempt, third.attempt) == (1, 2, 3)
    assert first.path == again.path == third.path
    assert [line.get("protocol") for line in lines_of(path)].count("pta-run") == 1
    assert [line["data"].get("attempt") for line in lines_of(path)[1:]] == [None, None, None, 2, 3]
    assert steps_of(path) == [0, 10, 20, 30, 40]


def test_later_attempt_replaces_what_it_trains_again(path):
    written(path, [0, 10, 20, 30, 40])
    written(path, [20, 25])
    assert [(kept.step, kept.attempt) for kept in RunFile.read(path)[1]] == [
        (0, None),
        (10, None),
        (20, 2),
        (25, 2),
    ]
    written(path, [0, 10])
    assert [(kept.step, kept.attempt) for kept in RunFile.read(path)[1]] == [(0, 3), (10, 3)]
    assert len(list(iter_frames(path))) == 9


def test_attempt_that_a_frame_has_already_is_replaced_not_doubled(path):
    written(path, [0])
    run = RunFile(path, SPEC)
    run.push_health(frame(1, attempt=2))
    run.push_health(frame(2, attempt=7))
    run.close()
    assert [line["data"]["attempt"] for line in lines_of(path)[2:]] == [2, 2]
    assert [kept.attempt for kept in RunFile.read(path)[1]] == [None, 2, 2]


def test_attempt_counts_on_from_a_whole_last_line_without_its_end(path):
    written(path, [0])
    written(path, [1])
    with open(path, "rb+") as file:
        file.truncate(Path(path).stat().st_size - 1)
    assert written(path, [2]).attempt == 3


INTERLEAVED = {
    "two writers": ([(0, 1), (10, 1), (10, 2), (20, 1), (20, 2)], [(0, 1), (10, 2), (20, 2)]),
    "later attempt first": ([(0, 3), (0, 2), (10, 3)], [(0, 3), (10, 3)]),
    "steps out of order": ([(0, 1), (10, 1), (5, 1), (20, 1), (7, 2)], [(0, 1), (5, 1), (7, 2)]),
    "a skipped attempt": ([(0, 1), (10, 1), (20, 1), (10, 5)], [(0, 1), (10, 5)]),
    "the third goes back furthest": ([(0, 1), (20, 1), (20, 2), (30, 2), (10, 3)], [(0, 1), (10, 3)]),
}


@pytest.mark.parametrize(("given_lines", "kept"), INTERLEAVED.values(), ids=INTERLEAVED)
def test_order_of_the_lines_does_not_matter_to_what_a_later_attempt_replaces(path, given_lines, kept):
    texts = [health(step, attempt=attempt) for step, attempt in given_lines]
    Path(path).write_text(lines(*texts))
    assert [(frame.step, frame.attempt) for frame in RunFile.read(path)[1]] == kept


@pytest.mark.parametrize("end", ["\n", ""], ids=["whole", "without its end"])
def test_run_whose_attempts_are_used_up_is_not_continued(path, end):
    text = lines(health(0, attempt=2**53 - 1), end=end)
    Path(path).write_text(text)
    with pytest.warns(PtoaWarning, match="no run of this spec that can be continued"):
        run = written(path, [1])
    assert steps_of(run.path) == [1]
    assert Path(path).read_text() == text


def test_torn_last_line_is_said_to_be_cut_short(path):
    written(path, [0, 1])
    with open(path, "rb+") as file:
        file.truncate(Path(path).stat().st_size - 20)
    steps, said = read_quietly(path)
    assert steps == [0]
    assert said == [f"'{path}', line 3: the last line was cut short and left out"]


def test_header_without_frames_is_still_the_first_attempt(path):
    written(path, [])
    assert written(path, [0]).attempt == 1
    assert [line["data"].get("attempt") for line in lines_of(path)[1:]] == [None]


@pytest.mark.parametrize("lost", [0, 1, 30])
def test_whole_last_line_without_its_end_is_kept(path, lost):
    written(path, [0, 1])
    with open(path, "rb+") as file:
        file.truncate(Path(path).stat().st_size - 1 - lost)
    written(path, [5])
    assert steps_of(path) == ([0, 1, 5] if lost == 0 else [0, 5])


NOT_CONTINUED = {
    "other-spec": lambda path: written(path, [0], OTHER),
    "text": lambda path: Path(path).write_text("notes\n"),
    "pta": lambda path: Path(path).write_text(
        json.dumps({"protocol": "pta-file", "v": 1, "spec": SPEC.to_dict()})
    ),
    "newer": lambda path: Path(path).write_text(
        json.dumps({"protocol": "pta-run", "v": 2, "spec": SPEC.to_dict()})
    ),
    "torn-header": lambda path: Path(path).write_text(lines()[:40]),
    "empty": lambda path: Path(path).touch(),
    "directory": os.mkdir,
    "pipe": os.mkfifo,
    "link-to-nothing": lambda path: Path(path).symlink_to(path + ".target"),
}


def test_warning_that_is_made_an_error_leaves_a_run_file_that_reads(path):
    Path(path).write_text("notes\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PtoaWarning):
            RunFile(path, SPEC)
    assert steps_of(path.replace(".pta", "-2.pta")) == []


@pytest.mark.parametrize("make", NOT_CONTINUED.values(), ids=NOT_CONTINUED)
def test_what_is_another_file_is_left_alone_and_the_new_name_is_told(path, make):
    make(path)
    before = Path(path).read_bytes() if Path(path).is_file() else None
    with pytest.warns(PtoaWarning, match="this run is written to '.*run-2.pta'"):
        run = written(path, [0])
    assert run.path.endswith("run-2.pta")
    assert steps_of(run.path) == [0]
    assert before is None or Path(path).read_bytes() == before
    assert not Path(path + ".target").exists()


def test_link_to_a_run_of_this_spec_is_not_followed(path, tmp_path):
    target = written(str(tmp_path / "target.pta"), [0]).path
    Path(path).symlink_to(target)
    before = Path(target).read_bytes()
    with pytest.warns(PtoaWarning, match="run-2"):
        written(path, [1])
    assert Path(target).read_bytes() == before


def test_next_free_number_is_taken(path):
    written(path, [0], OTHER)
    Path(path.replace("run", "run-2")).touch()
    with pytest.warns(PtoaWarning, match="run-3"):
        assert written(path, [0]).path.endswith("run-3.pta")


def test_made_up_name_is_never_continued(path):
    written(path, [0])
    second = written(path, [0], resume=False)
    assert (second.path, second.attempt) == (path.replace("run", "run-2"), 1)
    assert steps_of(path) == [0]


def test_run_that_is_being_written_is_not_continued(path):
    first = RunFile(path, SPEC)
    with pytest.warns(PtoaWarning, match="run-2"):
        second = written(path, [5])
    first.push_health(frame(0))
    first.close()
    assert steps_of(path) == [0]
    assert steps_of(second.path) == [5]


def test_frames_written_until_the_lock_is_free_are_kept(path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    first = RunFile(path, SPEC)
    lock = fcntl.flock

    def finish_first(fd, how):
        first.push_health(frame(1))
        first.close()
        monkeypatch.setattr(fcntl, "flock", lock)
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", finish_first)
    assert written(path, [2]).path == path
    assert steps_of(path) == [1, 2]


def test_file_that_another_process_just_made_is_not_locked_by_a_look_at_it(path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    Path(path).touch()
    locked = []
    monkeypatch.setattr(fcntl, "flock", lambda fd, how: locked.append(os.fstat(fd).st_ino))
    with pytest.warns(PtoaWarning, match="-2"):
        run = written(path, [0])
    assert locked == [Path(run.path).stat().st_ino]


def test_new_file_has_the_mode_of_the_umask(path):
    before = os.umask(0o027)
    try:
        written(path, [0])
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o640


# Full disks, threads, forks


def limited(code, tmp_path):
    """Run code in a process that may write 2,000 bytes a file."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, resource.RLIM_INFINITY)),
    )


def test_full_disk_raises_and_leaves_whole_lines(tmp_path):
    done = limited(
        """
        import resource
        from ptoa_core.frames import HealthFrame
        from ptoa_core.runs import RunFile
        from ptoa_core.spec import Block, ModelSpec
        run = RunFile("run.pta", ModelSpec("x", [Block("t0", "tokens")], "t0"))
        failures = 0
        for step in range(100):
            try:
                run.push_health(HealthFrame(step, 0.0, 0.5))
            except OSError:
                failures += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, -1))
        run.push_health(HealthFrame(100, 0.0, 0.5))
        print(failures)
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    failures = int(done.stdout)
    assert 50 < failures < 100
    assert read_quietly(tmp_path / "run.pta") == ([*range(100 - failures), 100], [])


def test_failed_header_leaves_an_error(tmp_path):
    done = limited(
        """
        from ptoa_core.runs import RunFile
        from ptoa_core.spec import Block, ModelSpec
        try:
            RunFile("run.pta", ModelSpec("x" * 5000, [Block("t0", "tokens")], "t0"))
        except OSError as error:
            print("refused", error.errno)
        """,
        tmp_path,
    )
    assert done.stdout.startswith("refused"), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_lines_of_several_threads_do_not_mix(path):
    run = RunFile(path, SPEC)
    threads = [
        threading.Thread(target=lambda: [run.push_health(frame(step)) for step in range(50)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    run.close()
    assert sorted(steps_of(path)) == sorted([*range(50)] * 4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_of_a_fork_never_touches_the_file(path):
    run = RunFile(path, SPEC)
    run.push_health(frame(0))
    with run._lock:
        child = os.fork()
        if child == 0:
            code = 1
            signal.alarm(20)  # a child that waits for a lock of its parent must not wait for ever
            try:
                run.push_health(frame(1))
                run.write("note", 1)
                run.close()
                code = 0
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run.push_health(frame(2))
    run.close()
    assert steps_of(path) == [0, 2]


def test_forgotten_writer_lets_go_of_its_file(path):
    forgotten = RunFile(path, SPEC)
    forgotten.push_health(frame(0))
    del forgotten
    assert written(path, [1]).path == path


def test_killed_process_leaves_whole_frames(tmp_path):
    code = """
        import os
        from ptoa_core.frames import HealthFrame
        from ptoa_core.runs import RunFile
        from ptoa_core.spec import Block, ModelSpec
        run = RunFile("run.pta", ModelSpec("x", [Block("t0", "tokens")], "t0"))
        for step in range(5):
            run.push_health(HealthFrame(step, 0.0, 0.5))
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, timeout=60, check=False
    )
    assert done.returncode == -9
    assert read_quietly(tmp_path / "run.pta") == (list(range(5)), [])


def test_patterns_stop_at_their_budget(path):
    pattern = [HeadPattern(0, 32, "A" * 5464)]
    pattern[0].b64 = "AAAA" * 1365 + "AA=="
    run = RunFile(path, SPEC, pattern_bytes=15_000)
    for step in range(5):
        run.push_health(
            HealthFrame(step, 0.0, None, [BlockHealth("a0", weightNorm=1.0, headPattern=pattern)])
        )
    run.close()
    frames = RunFile.read(path)[1]
    assert [kept.blocks[0].headPattern is not None for kept in frames] == [True, True, False, False, False]
    assert all(kept.blocks[0].weightNorm == 1.0 for kept in frames)


def test_frames_of_a_run_behave_as_a_sequence(path):
    written(path, range(3))
    frames = RunFile.read(path)[1]
    assert len(frames) == 3
    assert repr(frames) == "<3 frames>"
    assert frames != [frame(0)]
    assert frame(1) in frames
    with pytest.raises(IndexError):
        frames[3]
