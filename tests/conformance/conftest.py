"""Hands every file of a folder of vectors/ to the tests that ask for it with `@pytest.mark.vectors(...)`."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

VECTORS = Path(__file__).resolve().parents[2] / "vectors"


@dataclass(frozen=True)
class Case:
    """One vector: what is given, the stage it reaches, what comes out."""

    name: str
    reason: str
    input: dict[str, Any]
    expect: str
    result: dict[str, Any] | None = None

    @property
    def data(self) -> bytes:
        """The bytes of a text, or those that are no text."""
        if "base64" in self.input:
            return base64.b64decode(self.input["base64"])
        return self.input["text"].encode()


def read_cases(folder: str, *stages: str, op: str | None = None, kind: str | None = None) -> list[Case]:
    """The cases of a folder, of some stages, of one operation, of one kind of frame."""
    files = sorted((VECTORS / folder).glob("*.json"))
    cases = [Case(name=path.stem, **json.loads(path.read_text(encoding="utf-8"))) for path in files]
    wanted = {"op": op, "kind": kind}
    return [
        case
        for case in cases
        if (not stages or case.expect in stages)
        and all(value is None or case.input.get(key) == value for key, value in wanted.items())
    ]


def pytest_configure(config):
    config.addinivalue_line("markers", "vectors(folder, *stages, op, kind): a test for each of these vectors")


def pytest_generate_tests(metafunc):
    if marker := metafunc.definition.get_closest_marker("vectors"):
        cases = read_cases(*marker.args, **marker.kwargs)
        assert cases, f"no vector for {marker.args} {marker.kwargs}"
        metafunc.parametrize("case", cases, ids=lambda case: case.name)


@pytest.fixture
def content(case, tmp_path):
    """The case as a file on disk."""
    path = tmp_path / "case.pta"
    path.write_bytes(case.data)
    return path
