"""Files: read by what is in them, replaced as a whole, refused when they cannot be ours."""

from __future__ import annotations

import base64
import errno
import json
import os
import resource
import stat
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptoa_core.errors import FileError, FormatError, FrameError, JsonError, SpecError, TensorError
from ptoa_core.files import Loaded, load, read, safe_file_name, save, unused_path
from ptoa_core.frames import FrameTensor, TraceFrame
from ptoa_core.runs import RunFile
from ptoa_core.spec import Block, ModelSpec

SPEC = ModelSpec(
    "tiny µ", [Block("t0", "tokens"), Block("l0", "linear", inputs=["t0"])], "l0", extra={"future": [1]}
)
TRACE = TraceFrame(3, [FrameTensor("l0:out", [2], base64.b64encode(struct.pack("<2f", 1, 2)).decode())], 0.5)


def document(**keys):
    return {"protocol": "pta-file", "v": 1, "spec": SPEC.to_dict(), **keys}


def names_in(folder):
    return [entry.name for entry in folder.iterdir()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.pta"


def test_spec_and_trace_read_back(path):
    assert save(SPEC, path, TRACE) == str(path)
    assert load(path) == (SPEC, TRACE)
    assert read(path) == Loaded("pta", SPEC, TRACE, str(path))
    save(SPEC, path)
    assert load(str(path)) == (SPEC, None)


def test_file_is_one_canonical_object(path):
    save(SPEC, path, TRACE)
    text = path.read_text(encoding="utf-8")
    data = json.loads(text)
    assert list(data) == ["protocol", "v", "producer", "spec", "trace"]
    assert text == json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def test_bare_spec_and_run_file_are_read_by_what_is_in_them(tmp_path):
    bare = tmp_path / "x.pta"
    bare.write_text(SPEC.to_json(indent=2))
    assert read(bare) == Loaded("spec", SPEC, None, str(bare))
    run = RunFile(tmp_path / "y.json", SPEC)
    assert read(run.path) == Loaded("run", SPEC, None, run.path)
    run.push_health({"step": 0, "t": 0.0, "loss": None, "blocks": []})
    run.close()
    assert read(run.path).kind == "run"
    with open(run.path, "ab") as file:
        file.write(b"@@@ torn")
    assert load(run.path) == (SPEC, None)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(document(), indent=4),
        "\n\n  " + json.dumps(document()) + "\n\n",
        json.dumps(document(), indent=1).replace("\n", "\r\n"),
        json.dumps(document(producer={"name": "x"}, more=1)),
    ],
    ids=["indented", "blank-lines", "crlf", "unknown-keys"],
)
def test_any_spelling_of_a_file_reads(path, text):
    path.write_text(text, encoding="utf-8")
    assert load(path)[0] == SPEC


def test_run_file_larger_than_a_pta_file_may_be_is_read(path, monkeypatch):
    monkeypatch.setattr("ptoa_core.files.MAX_FILE_BYTES", 1_000)
    run = RunFile(path, SPEC)
    for step in range(50):
        run.push_health({"step": step, "t": 0.0, "loss": None, "blocks": []})
    run.close()
    assert path.stat().st_size > 1_000
    assert read(path).kind == "run"
    path.write_bytes(b'{"x":"pta-run",' + b" " * 2_000 + b'"spec":1}')
    with pytest.raises(FileError, match="and is no run file; at most 1000 are read"):
        read(path)


REFUSED = {
    "empty": (b"", JsonError, "Expecting value"),
    "blank": (b"  \n ", JsonError, "Expecting value"),
    "endless-blank": (b"\n" * 100_000 + b"{}", FileError, "begins with 65536 blank bytes"),
    "array": (b"[]", FileError, r"begins with b'\['"),
    "number": (b"5", FileError, "begins with b'5'"),
    "text": (b'"x"', FileError, "not with an object"),
    "null": (b"null", FileError, "begins with b'n'"),
    "nul": (b"\0" * 100, FileError, "begins with"),
    "object": (b"{}", FileError, "its protocol is None"),
    "other-protocol": (b'{"protocol":"zip","v":1}', FileError, "its protocol is 'zip'"),
    "protocol-list": (b'{"protocol":["pta-file"],"v":1}', FileError, "its protocol is a list"),
    "newer": (json.dumps(document(v=99)).encode(), FileError, "a .pta file of version 99"),
    "version-text": (json.dumps(document(v="1")).encode(), FileError, "version '1'"),
    "no-spec": (b'{"protocol":"pta-file","v":1}', FileError, "has no spec"),
    "spec-text": (json.dumps(document(spec="x")).encode(), SpecError, "spec must be an object, found 'x'"),
    "spec-null": (json.dumps(document(spec=None)).encode(), SpecError, "must be an object"),
    "trace-list": (json.dumps(document(trace=[1])).encode(), FrameError, "trace must be an object"),
    "byte-order-mark": (b"\xef\xbb\xbf" + json.dumps(document()).encode(), JsonError, "byte order mark"),
    "latin-1": (json.dumps(document(x="q")).encode().replace(b"q", b"\xe9"), JsonError, "not UTF-8"),
    "cut": (json.dumps(document()).encode()[:-5], JsonError, "at line 1"),
    "two": (json.dumps(document()).encode() * 2, JsonError, "Extra data"),
    "two-lines": (json.dumps(document()).encode() + b"\n{}", JsonError, "Extra data"),
    "two-specs": (b'{"protocol":"pta-file","v":1,"spec":{},"spec":{}}', JsonError, "'spec' stands twice"),
    "run-newer": (b'{"protocol":"pta-run","v":7,"spec":{}}\n', FileError, "a run file of version 7"),
    "run-no-spec": (b'{"protocol":"pta-run","v":1}\n', FileError, "spec must be an object"),
    "dangling": (
        json.dumps(document(spec={**SPEC.to_dict(), "output": "ghost"})).encode(),
        SpecError,
        "'ghost'",
    ),
    "tensor": (
        json.dumps(
            document(
                trace={"step": 0, "tensors": [{"key": "k", "shape": [2], "b64": "AA", "clipped": False}]}
            )
        ).encode(),
        TensorError,
        "tensor 'k'",
    ),
}


@pytest.mark.parametrize(("text", "error", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_file_of_ours_is_refused_with_its_path(path, text, error, says):
    path.write_bytes(text)
    with pytest.raises(error, match=says) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 500


def test_special_files_are_refused_without_waiting(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for special, kind in ((pipe, "a named pipe"), (tmp_path, "a directory"), ("/dev/zero", "a device")):
        with pytest.raises(FileError, match=kind):
            load(special)
        with pytest.raises(FileError, match=kind):
            save(SPEC, special)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing")
    assert names_in(tmp_path) == ["pipe"]


def test_huge_file_is_refused_by_its_size(path):
    path.write_bytes(b'{"protocol":"pta-file",')
    os.truncate(path, 3 << 30)
    with pytest.raises(FileError, match="has 3221225472 bytes; at most 536870912 are read"):
        load(path)


def test_link_is_followed_when_reading_and_when_saving(tmp_path):
    target, link = tmp_path / "target.pta", tmp_path / "link.pta"
    save(SPEC, target)
    link.symlink_to(target)
    assert load(link)[0] == SPEC
    save(ModelSpec("new", SPEC.blocks, "l0"), link)
    assert link.is_symlink()
    assert load(target)[0].name == "new"
    dangling = tmp_path / "dangling.pta"
    dangling.symlink_to(tmp_path / "made.pta")
    save(SPEC, dangling)
    assert load(tmp_path / "made.pta")[0] == SPEC


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0, 0o666)])
def test_mode_of_an_existing_file_stays_and_a_new_one_obeys_the_umask(tmp_path, mask, mode):
    old, new = tmp_path / "old.pta", tmp_path / "new.pta"
    old.touch()
    old.chmod(0o640)
    before = os.umask(mask)
    try:
        save(SPEC, old)
        save(SPEC, new)
    finally:
        os.umask(before)
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert stat.S_IMODE(new.stat().st_mode) == mode


def test_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    code = """
        from ptoa_core.files import save
        from ptoa_core.spec import Block, ModelSpec
        try:
            save(ModelSpec("x" * 100_000, [Block("t0", "tokens")], "t0"), "m.pta")
        except OSError as error:
            print("refused", error.errno, error.filename)
    """
    (tmp_path / "m.pta").write_text("OLD")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, 4_096)),
    )
    assert done.stdout == f"refused {errno.EFBIG} m.pta\n", done.stderr
    assert names_in(tmp_path) == ["m.pta"]
    assert (tmp_path / "m.pta").read_text() == "OLD"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_that_may_not_be_written_raises(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        save(SPEC, tmp_path / "m.pta")


def test_missing_folder_raises_with_the_name_that_was_given(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        save(SPEC, tmp_path / "no" / "m.pta")
    assert caught.value.filename == str(tmp_path / "no" / "m.pta")


@pytest.mark.parametrize(
    "use", [load, lambda path: save(SPEC, path), lambda path: RunFile(path, SPEC), RunFile.read]
)
def test_path_that_no_system_takes_is_refused_in_our_words(use):
    with pytest.raises(FileError, match=r"'a\\x00b' is no path: it holds a NUL character"):
        use("a\0b")


def test_interrupted_save_leaves_nothing(path, monkeypatch):
    def interrupt(fd):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    path.write_text("OLD")
    with pytest.raises(KeyboardInterrupt):
        save(SPEC, path)
    assert path.read_text() == "OLD"
    assert names_in(path.parent) == ["m.pta"]


@pytest.mark.parametrize(
    ("spec", "trace", "error"),
    [
        (ModelSpec("x", [], "ghost"), None, SpecError),
        (ModelSpec("\ud800", [Block("t0", "tokens")], "t0"), None, FormatError),
        (ModelSpec("x", [Block("t0", "tokens")], "t0", extra={"x": float("nan")}), None, FormatError),
        (SPEC, TraceFrame(0, extra={"x": {1}}), FrameError),
        (SPEC, TraceFrame(-1), FrameError),
        (SPEC, TraceFrame(0, uncaptured="l0"), FrameError),
        (SPEC, TraceFrame(0, [FrameTensor("k", [5], "")]), TensorError),
        (SPEC, {"tensors": []}, FrameError),
        (SPEC, {"step": 0, "tensors": [{"key": "k"}]}, TensorError),
    ],
    ids=[
        "dangling",
        "surrogate",
        "nan",
        "set",
        "negative-step",
        "uncaptured-text",
        "tensor-without-values",
        "object-without-step",
        "object-with-half-a-tensor",
    ],
)
def test_writer_refuses_what_a_reader_refuses(path, spec, trace, error):
    with pytest.raises(error):
        save(spec, path, trace)
    assert not path.exists()


def test_file_too_large_to_read_is_not_written(path, monkeypatch):
    monkeypatch.setattr("ptoa_core.files.MAX_FILE_BYTES", 100)
    with pytest.raises(FileError, match="at most 100 are read"):
        save(SPEC, path)
    assert not path.exists()


def test_name_of_255_bytes_can_be_saved(tmp_path):
    path = tmp_path / ("é" * 120 + "x" * 11 + ".pta")
    assert load(save(SPEC, path))[0] == SPEC


SAFE = {
    "": "model",
    ".": "model",
    "..": "model",
    "a/b": "a-b",
    "../../etc/passwd": "etc-passwd",
    "x\0y": "x-y",
    "line\nbreak": "line-break",
    "\x1b[2J": "2J",
    "-rf": "rf",
    "CON": "CON-model",
    "nul.txt": "nul.txt-model",
    "com1": "com1-model",
    "GPT-2.1_b": "GPT-2.1_b",
    ".hidden": "hidden",
    "模型 µ": "模型-µ",
    "a\\b": "a-b",
    "C:x": "C-x",
    "\u202egnp": "gnp",
    "~": "model",
    "$(rm)": "rm",
    "a" * 300: "a" * 120,
    "é" * 300: "é" * 60,
    "trailing. ": "trailing",
    "console": "console",
}


@pytest.mark.parametrize(("name", "stem"), SAFE.items(), ids=map(ascii, [name[:12] for name in SAFE]))
def test_name_of_a_file_is_safe(name, stem):
    assert safe_file_name(name) == stem + ".pta"


@given(st.text(max_size=200))
def test_any_name_makes_a_file_in_its_own_folder(tmp_path_factory, name):
    safe = safe_file_name(name, ".json")
    assert Path(safe).name == safe
    assert safe.isprintable()
    assert not safe.startswith((".", "-"))
    path = Path(tmp_path_factory.getbasetemp()) / safe
    path.touch()
    path.unlink()


def test_unused_path_counts_up(path):
    assert unused_path(path) == str(path)
    path.touch()
    assert unused_path(path).endswith("m-2.pta")
    (path.parent / "m-2.pta").symlink_to("nowhere")
    assert unused_path(path).endswith("m-3.pta")


@given(st.integers(0, 2**16), st.integers(0, 4), st.binary(max_size=4))
def test_damaged_file_gives_our_errors_or_a_spec(tmp_path_factory, place, removed, put):
    path = Path(tmp_path_factory.getbasetemp()) / "damaged.pta"
    text = json.dumps(document(trace=TRACE.to_dict())).encode()
    place %= len(text)
    path.write_bytes(text[:place] + put + text[place + removed :])
    try:
        spec, _ = load(path)
    except FormatError:
        return
    assert isinstance(spec, ModelSpec)
