"""The vectors through the names that people import, and through the command line."""

from __future__ import annotations

import json

import pytest

import papertoanything as ptoa
from papertoanything.cli import main


@pytest.mark.vectors("link", "ok")
def test_from_url_and_to_url_round_trip(case):
    spec = ptoa.from_url(case.input["text"])
    assert spec.to_dict() == case.result["spec"]
    assert ptoa.from_url(ptoa.to_url(spec)) == spec


@pytest.mark.vectors("link", "payload", "base64", "inflate", "size", "json", "object", "spec")
def test_from_url_refuses_with_a_value_error(case):
    with pytest.raises(ValueError, match=r"\S"):
        ptoa.from_url(case.input["text"])


@pytest.mark.vectors("link", "ok")
def test_decode_prints_the_spec(case, capsys):
    assert main(["decode", case.input["text"]]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == case.result["spec"]


@pytest.mark.vectors("link", "base64", "inflate", "size", "json", "object", "spec")
def test_decode_refuses_in_one_line_with_status_1(case, capsys):
    assert main(["decode", case.input["text"]]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1


@pytest.mark.vectors("spec", "ok")
def test_as_spec_takes_json_text_and_dict(case):
    assert ptoa.as_spec(case.result["spec"]).to_dict() == case.result["spec"]
    assert ptoa.as_spec(case.input["text"]).to_dict() == case.result["spec"]


@pytest.mark.vectors("pta", "ok")
def test_load_and_save_round_trip(case, content, tmp_path):
    spec, trace = ptoa.load(str(content))
    assert ptoa.load(ptoa.save(spec, str(tmp_path / "again.pta"), trace=trace)) == (spec, trace)


@pytest.mark.vectors("pta", "json", "file", "spec", "frame")
def test_load_refuses_with_a_value_error(case, content):
    with pytest.raises(ValueError, match=r"\S"):
        ptoa.load(str(content))


@pytest.mark.vectors("pta", "ok")
def test_link_command_takes_a_file(case, content, capsys):
    assert main(["link", str(content), "--no-open"]) == 0
    assert ptoa.from_url(capsys.readouterr().out.strip()).to_dict() == case.result["spec"]
