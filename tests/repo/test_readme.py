"""Every command and every example in a README runs.

A fenced block is run here, or stands in ELSEWHERE with the test that runs it. A block that is neither fails.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READMES = [ROOT / "README.md", *sorted((ROOT / "packages").glob("*/README.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Lines that another test runs: the pattern of the line, the file that runs it, and what that file must hold.
ELSEWHERE = {
    r"python3 -m venv \.venv && .*": (".ci/run", "python3 -m venv .venv"),
    r'pip install "?(papertoanything|ptoa-\w+)(\[(torch|hf|lightning)\])?"?': ("noxfile.py", "def install("),
    r"pip install( packages/[\w-]+){5}": ("tests/repo/test_dist.py", "test_all_five_install_from_a_checkout"),
    r"python examples/(\w+)\.py.*": ("tests/papertoanything/test_examples.py", "watch_tiny_gpt"),
    r"ssh -L 8765:127\.0\.0\.1:8765 you@remote": ("tests/bridge", "ssh -L"),
    r"export PTA_LAB_URL=local": ("tests/papertoanything", "PTA_LAB_URL"),
}

# What an example takes for granted, as a reader would have it.
PRELUDE = """
import torch
import papertoanything as ptoa
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
example_input = torch.zeros(1, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = torch.nn.functional.mse_loss
loader = [(torch.randn(3, 4), torch.randn(3, 2)) for _ in range(12)]
"""

TRAINERS = {
    "integrations.hf": """
from transformers import Trainer, TrainingArguments
args = TrainingArguments(output_dir="out", report_to=[], use_cpu=True)
dataset = []
""",
    "integrations.lightning": """
import lightning as L
""",
}

MODEL = """
import torch

class GPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(16, 8)
        self.head = torch.nn.Linear(8, 16)

    def forward(self, ids):
        return self.head(self.embed(ids))
"""


def blocks(language):
    """Blocks of one language in all READMEs, each with a name: the folder and a running number."""
    found = []
    for path in READMES:
        folder = "root" if path.parent == ROOT else path.parent.name
        for number, (its, text) in enumerate(BLOCK.findall(path.read_text(encoding="utf-8"))):
            if its == language:
                found.append(pytest.param(text, id=f"{folder}-{number}"))
    return found


def shell_lines():
    """Lines of shell blocks that no other test runs, in order."""
    lines = [line for block in blocks("sh") for line in block.values[0].splitlines() if line]
    return [line for line in lines if not any(re.fullmatch(pattern, line) for pattern in ELSEWHERE)]


def test_every_block_is_of_a_language_that_is_run_or_data():
    languages = {found for path in READMES for found, _ in BLOCK.findall(path.read_text(encoding="utf-8"))}
    assert languages <= {"sh", "python", "bibtex"}


def test_every_other_line_of_shell_is_a_ptoa_command():
    assert [line for line in shell_lines() if not line.startswith("ptoa ")] == []


@pytest.mark.parametrize("pattern", ELSEWHERE)
def test_what_runs_elsewhere_is_in_a_readme_and_does(pattern):
    place, wanted = ELSEWHERE[pattern]
    lines = [line for block in blocks("sh") for line in block.values[0].splitlines()]
    assert [line for line in lines if re.fullmatch(pattern, line)]
    path = ROOT / place
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert any(wanted in file.read_text(encoding="utf-8") for file in files), place


@pytest.fixture
def quiet(monkeypatch, tmp_path):
    """An empty folder to work in, and no browser."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTA_NO_BROWSER", "1")
    return tmp_path


def setting_of(text):
    """What an example takes for granted."""
    needed = [name for name in TRAINERS if name in text]
    for name in needed:
        pytest.importorskip({"integrations.hf": "accelerate", "integrations.lightning": "lightning"}[name])
    return PRELUDE + "".join(TRAINERS[name] for name in needed)


CLOSE = """
for thing in list(globals().values()):
    if type(thing).__name__ in ("Watch", "LocalServer", "Bridge"):
        thing.close()
"""


@pytest.mark.parametrize("text", blocks("python"))
def test_example_runs(text, quiet):
    code = setting_of(text) + text + CLOSE
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with the model that the commands name; files that they make stay for the later ones."""
    folder = tmp_path_factory.mktemp("commands")
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    return folder


def command_of(line):
    """A `ptoa` line as a list, and the file that its output goes to."""
    line, _, target = line.partition(" > ")
    return [sys.executable, "-m", "papertoanything", *shlex.split(line)[1:]], target


@pytest.mark.parametrize("line", shell_lines())
def test_command_runs(line, workplace):
    command, target = command_of(line)
    options = {"cwd": workplace, "text": True, "env": {**os.environ, "PTA_NO_BROWSER": "1"}}
    if command[3] in ("view", "serve"):
        assert_runs_until_interrupted(command, options)
        return
    done = subprocess.run(command, capture_output=True, timeout=120, **options)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if target:
        (workplace / target).write_text(done.stdout, encoding="utf-8")


def assert_runs_until_interrupted(command, options):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    try:
        assert "http://127.0.0.1:" in first_line_with("http://127.0.0.1:", process.stdout)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def first_line_with(text, stream, seconds=60):
    """The first line of a stream that holds `text`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and (line := stream.readline()):
        if text in line:
            return line
    return ""
