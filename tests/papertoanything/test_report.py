"""`ptoa report` and `ptoa.report`: a page from any file of ours and from what a person has at hand."""

from __future__ import annotations

import base64
import gzip
import json
import re
from types import SimpleNamespace

import pytest

import papertoanything as ptoa
from papertoanything.cli import main
from ptoa_bridge import report
from ptoa_core.errors import SettingError
from ptoa_core.frames import HealthFrame
from ptoa_core.spec import ModelSpec


@pytest.fixture(autouse=True)
def page(tmp_path_factory, monkeypatch):
    """A page that was built, as far as a report is concerned."""
    static = tmp_path_factory.mktemp("static")
    (static / "report.html").write_bytes(b"<i id=d><!--PTOA-DATA--></i>")
    monkeypatch.setattr(report, "STATIC_FOLDER", static)


def data_in(path):
    return gzip.decompress(base64.b64decode(re.search(rb"<i id=d>(.*)</i>", path.read_bytes())[1]))


def run(capsys, *argv):
    status = main(["report", *argv])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files(place, spec, run_text):
    """One file of each kind that `load` reads."""
    texts = {
        "run": run_text(),
        "pta": json.dumps({"protocol": "pta-file", "v": 1, "producer": {}, "spec": spec()}),
        "spec": json.dumps(spec()),
    }
    for name, text in texts.items():
        (place / f"{name}.json").write_text(text, "utf-8")
    return texts


@pytest.mark.parametrize("kind", ["run", "pta", "spec"])
def test_any_file_of_ours_is_in_its_report_whole(place, files, capsys, kind):
    assert run(capsys, f"{kind}.json", "-o", "out.html") == (0, "out.html\n", "")
    assert data_in(place / "out.html") == files[kind].encode()


def test_without_a_name_it_is_made_from_the_files_and_replaces_nothing(place, files, capsys):
    assert run(capsys, "run.json") == (0, "run.html\n", "")
    assert run(capsys, "run.json") == (0, "run-2.html\n", "")
    assert names(place) == ["pta.json", "run-2.html", "run.html", "run.json", "spec.json"]


def test_a_file_that_is_there_gives_way_only_to_force(place, files, capsys):
    (place / "out.html").write_text("mine")
    status, out, err = run(capsys, "run.json", "-o", "out.html")
    assert (status, out) == (1, "")
    assert "--force" in err
    assert (place / "out.html").read_text() == "mine"
    assert run(capsys, "run.json", "-o", "out.html", "-f")[0] == 0
    assert data_in(place / "out.html") == files["run"].encode()


def test_a_link_that_leads_nowhere_counts_as_there(place, files, capsys):
    (place / "out.html").symlink_to(place / "elsewhere")
    assert run(capsys, "run.json", "-o", "out.html")[0] == 1
    assert "elsewhere" not in names(place)


@pytest.mark.parametrize("output", ["run.json", "./run.json", "link.html"])
def test_a_report_never_takes_the_place_of_what_it_is_made_from(place, files, capsys, output):
    (place / "link.html").symlink_to(place / "run.json")
    status, _, err = run(capsys, "run.json", "-o", output, "--force")
    assert status == 1
    assert "made from" in err
    assert (place / "run.json").read_text() == files["run"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1"),
        ("no JSON", "no .pta file"),
        ('{"protocol":"pta-run","v":9}', "version"),
        ('{"protocol":"pta-file","v":1}', "spec"),
    ],
    ids=["empty", "not JSON", "newer", "without a spec"],
)
def test_a_file_that_is_none_of_ours_leaves_no_report(place, capsys, text, said):
    (place / "bad.json").write_text(text)
    status, out, err = run(capsys, "bad.json")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert said in err
    assert names(place) == ["bad.json"]


@pytest.mark.parametrize("output", ["no/such/folder.html", "."])
def test_a_place_that_cannot_be_written_is_status_1_and_leaves_nothing(place, files, capsys, output):
    assert run(capsys, "run.json", "-o", output)[0] == 1
    assert names(place) == ["pta.json", "run.json", "spec.json"]


def test_a_spec_and_json_text_make_a_report_under_the_models_name(place, spec):
    assert ptoa.report(ModelSpec.from_dict(spec(name="../a b"))) == "a-b.html"
    assert ptoa.report(json.dumps(spec()), place / "x.html") == str(place / "x.html")
    assert json.loads(data_in(place / "x.html"))["name"] == "s"


def test_a_call_replaces_nothing_unless_told(place, spec):
    ptoa.report(spec(), "x.html")
    with pytest.raises(FileExistsError):
        ptoa.report(spec(name="other"), "x.html")
    ptoa.report(spec(name="other"), "x.html", force=True)
    assert json.loads(data_in(place / "x.html"))["name"] == "other"


def test_a_watch_gives_its_run_file_or_else_the_frames_that_are_kept(place, files, spec):
    frames = [HealthFrame(step, 0.0, 1.0, []) for step in (0, 10)]
    watch = SimpleNamespace(frames=frames, run_file=None, spec=ModelSpec.from_dict(spec()))
    ptoa.report(watch, "frames.html")
    lines = [json.loads(line) for line in data_in(place / "frames.html").splitlines()]
    assert [lines[0]["protocol"], *(line["data"]["step"] for line in lines[1:])] == ["pta-run", 0, 10]
    watch.run_file = SimpleNamespace(path=str(place / "run.json"))
    ptoa.report(watch, "file.html")
    assert data_in(place / "file.html") == files["run"].encode()


def test_a_watch_that_has_no_model_yet_is_refused(place):
    with pytest.raises(SettingError, match="first step"):
        ptoa.report(SimpleNamespace(frames=[], run_file=None, spec=None))


def test_what_stands_for_no_model_is_refused(place):
    with pytest.raises(SettingError):
        ptoa.report(3)
