"""Every example runs for a few steps, in a folder of its own, and ends by itself in a pipe."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import papertoanything as ptoa

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(folder):
    def run(name, *argv, **env):
        import os

        return subprocess.run(
            [sys.executable, "-W", "error", str(EXAMPLES / name), *argv],
            capture_output=True,
            text=True,
            cwd=folder,
            env={**os.environ, "PTA_NO_BROWSER": "1", "OMP_NUM_THREADS": "1", **env},
            timeout=120,
        )

    return run


def test_a_spec_is_built_without_torch(example, folder):
    done = example("build_spec_without_torch.py")
    assert (done.returncode, done.stderr) == (0, "")
    counted, link, _ = done.stdout.splitlines()
    assert counted == "mini-llama: 32 blocks, 0 problems"
    assert ptoa.from_url(link).to_dict() == ptoa.load(folder / "mini-llama.pta")[0].to_dict()


@pytest.mark.parametrize(
    "argv", [[], ["--break", "relu"], ["--break", "lr"], ["--lab", "hosted"]], ids=" ".join
)
def test_the_tiny_gpt_trains_and_leaves_a_run_file(example, folder, argv):
    pytest.importorskip("torch")
    done = example("watch_tiny_gpt.py", "--steps", "12", "--no-open", *argv)
    assert done.returncode == 0, done.stderr
    assert "step   11" in done.stdout
    assert "127.0.0.1" in done.stdout
    assert ("lab.papertoanything.com" in done.stdout) == ("hosted" in argv)
    [path] = (folder / "pta-runs").iterdir()
    _, frames = __import__("papertoanything.health").health.RunFile.read(path)
    assert [frame.step for frame in frames] == [0, 5, 10]
    assert all(frame.loss is not None for frame in frames)


def test_dead_relus_show_in_the_frames(example, folder):
    pytest.importorskip("torch")
    assert example("watch_tiny_gpt.py", "--steps", "80", "--no-open", "--break", "relu").returncode == 0
    [path] = (folder / "pta-runs").iterdir()
    spec, frames = __import__("papertoanything.health").health.RunFile.read(path)
    [mlp, *_] = [block["id"] for block in spec["blocks"] if block["kind"] == "mlp"]
    zeros = [frame.block(mlp).hidden.zeroFrac for frame in frames]
    assert zeros[0] < 0.6
    assert zeros[-1] > 0.95


def test_the_cells_run_as_a_script(example, folder):
    pytest.importorskip("torch")
    done = example("notebook_style.py", STEPS="12")
    assert done.returncode == 0, done.stderr
    assert (folder / "Sequential.pta").exists()
    assert "the run is in" in done.stdout
