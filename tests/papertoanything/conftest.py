"""The command as a child process, and the small files that it is given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

MODEL = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.act = torch.nn.ReLU()

    def forward(self, x):
        return self.act(self.fc(x))
"""


def make_spec(**changes):
    """A spec of two blocks, as a dict of its own."""
    spec = {
        "v": 1,
        "name": "s",
        "blocks": [
            {"id": "t0", "kind": "tokens", "params": {"vocab": 4}, "inputs": []},
            {"id": "l0", "kind": "linear", "label": "fc", "params": {"in": 4, "out": 4}, "inputs": ["t0"]},
        ],
        "output": "l0",
        "origin": {"kind": "lab"},
    }
    return {**spec, **changes}


def make_run(frames=4, **changes):
    """The lines of a run file."""
    lines = [json.dumps({"protocol": "pta-run", "v": 1, "spec": make_spec(**changes)})]
    for i in range(frames):
        data = {"step": 10 * i, "t": float(i), "loss": 1 / (i + 1), "blocks": []}
        lines.append(json.dumps({"event": "health", "data": data}))
    return "\n".join(lines) + "\n"


@dataclass
class Result:
    """What a command did."""

    status: int
    out: str
    err: str


def child_env(**changes):
    """The environment of a child: nothing of this shell's settings, and no browser."""
    drop = {
        "PTA_LAB_URL",
        "PTA_DEBUG",
        "BROWSER",
        "NO_COLOR",
        "COLUMNS",
        "PYTHONIOENCODING",
        "PYTHONUNBUFFERED",
        "SSH_CONNECTION",
    }
    env = {key: value for key, value in os.environ.items() if key not in drop}
    return {**env, "PTA_NO_BROWSER": "1", "OMP_NUM_THREADS": "1", **changes}


@pytest.fixture
def model_text():
    return MODEL


@pytest.fixture
def spec():
    return make_spec


@pytest.fixture
def run_text():
    return make_run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current folder with `spec.json` in it."""
    (tmp_path / "spec.json").write_text(json.dumps(make_spec()), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTA_NO_BROWSER", "1")
    for name in ("PTA_LAB_URL", "COLUMNS", "PTA_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def ptoa():
    """Run `python -m papertoanything` with arguments; gives status, output and messages."""

    def run(*argv, cwd=None, stdin=b"", **env):
        done = subprocess.run(
            [sys.executable, "-m", "papertoanything", *argv],
            input=stdin,
            capture_output=True,
            cwd=cwd,
            env=child_env(**env),
            timeout=120,
        )
        return Result(
            done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        )

    return run


@pytest.fixture
def start():
    """Start a program whose standard output is read while it runs; killed at the end of the test."""
    children = []

    def run(*argv, cwd=None, **env):
        child = subprocess.Popen(
            [sys.executable, "-u", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=child_env(**env),
        )
        children.append(child)
        return child

    yield run
    for child in children:
        child.kill()
        child.communicate()
