"""The vectors keep the promises of vectors/README.md."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import zlib
from pathlib import Path

import jsonschema
import pytest

HERE = Path(__file__).resolve().parent
VECTORS = HERE.parents[1] / "vectors"
FILES = sorted(path.relative_to(VECTORS) for path in VECTORS.glob("*/*"))
FOLDERS = sorted(path.name for path in VECTORS.iterdir() if path.is_dir())


def load_generator():
    spec = importlib.util.spec_from_file_location("make_vectors", HERE / "make_vectors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path):
    return json.loads((VECTORS / path).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def validator():
    schema = read("vector.schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_file_fits_the_schema(path, validator):
    validator.validate(read(path))


@pytest.mark.parametrize(
    "change",
    [{"expect": "perhaps"}, {"reason": ""}, {"version": "0.2.0"}, {"input": {"text": 1}}],
    ids=["unknown-stage", "no-reason", "further-key", "text-is-a-number"],
)
def test_schema_refuses(change, validator):
    good = read("spec/valid-tiny.json")
    validator.validate(good)
    assert not validator.is_valid({**good, **change})


@pytest.mark.parametrize("path", FILES, ids=str)
def test_name_says_what_is_expected(path):
    case = read(path)
    assert path.name.startswith("valid-") == (case["expect"] == "ok")
    assert re.fullmatch(r"(valid|invalid)-[a-z0-9-]+\.json", path.name)
    assert ("result" in case) == (case["expect"] == "ok" or path.parts[0] == "guard")


def test_each_folder_holds_good_and_bad_cases_and_more_bad_than_good_where_strangers_write():
    for folder in FOLDERS:
        good = len(list((VECTORS / folder).glob("valid-*")))
        bad = len(list((VECTORS / folder).glob("invalid-*")))
        assert min(good, bad) > 0, folder
        if folder in ("spec", "link", "guard", "frame", "pta"):
            assert bad > good, folder


def test_readme_names_every_folder_and_every_stage():
    text = (VECTORS / "README.md").read_text(encoding="utf-8")
    stages = read("vector.schema.json")["properties"]["expect"]["enum"]
    assert [name for name in [*FOLDERS, *stages] if f"`{name}`" not in text] == []


def test_files_are_those_that_the_generator_writes():
    cases = load_generator().all_cases()
    assert sorted(path for path, _ in cases) == FILES


@pytest.mark.parametrize("folder", sorted(set(FOLDERS) - {"link"}))
def test_content_is_what_the_generator_writes(folder):
    for path, content in load_generator().all_cases():
        if path.parts[0] == folder:
            assert read(path) == content, path


def test_no_file_holds_the_version_of_a_package():
    project = (HERE.parents[1] / "packages/ptoa-core/pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "(\d+\.\d+\.\d+)', project, re.MULTILINE)[1]
    texts = {path: (VECTORS / path).read_text(encoding="utf-8") for path in FILES}
    assert [path for path, text in texts.items() if version in text] == []


def stage_of_link(text: str) -> str:
    """How far a link gets, by the standard library alone; `ok` stands for any object."""
    payload = text.split("#", 1)[-1] if "#" in text or "://" not in text else ""
    payload = payload.split("&")[0]
    payload = payload[2:] if payload.startswith("s=") else ("" if "=" in payload.rstrip("=") else payload)
    if not payload:
        return "payload"
    bare = re.fullmatch(r"([A-Za-z0-9_-]+)={0,2}", payload)
    if not bare or len(bare[1]) % 4 == 1:
        return "base64"
    stream = zlib.decompressobj(-15)
    try:
        raw = stream.decompress(base64.urlsafe_b64decode(bare[1] + "=" * (-len(bare[1]) % 4)), 4 * 2**20 + 1)
    except zlib.error:
        return "inflate"
    if len(raw) > 4 * 2**20:
        return "size"
    if not stream.eof or stream.unused_data:
        return "inflate"
    return stage_of_json(raw)


def stage_of_json(raw: bytes) -> str:
    def pairs(items):
        assert len(dict(items)) == len(items)
        return dict(items)

    def constant(name):
        raise ValueError(name)

    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except (ValueError, AssertionError):
        return "json"
    return "ok" if isinstance(value, dict) else "object"


@pytest.mark.vectors("link")
def test_stage_of_a_link_agrees_with_the_standard_library(case):
    assert stage_of_link(case.input["text"]) == ("ok" if case.expect == "spec" else case.expect)
