"""Where things stand in the repository, for the tests that look at it as a whole."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHAIN = ("ptoa-core", "ptoa-bridge", "ptoa-torch", "ptoa-integrations", "papertoanything")


def module_files():
    """Every module of the five packages: dotted name and file."""
    for name in CHAIN:
        source = ROOT / "packages" / name / "src"
        for path in sorted(source.rglob("*.py")):
            dotted = ".".join(path.relative_to(source).with_suffix("").parts)
            yield dotted.removesuffix(".__init__"), path


def pytest_generate_tests(metafunc):
    if {"module", "tree"} <= set(metafunc.fixturenames):
        modules = [(name, ast.parse(path.read_text(encoding="utf-8"))) for name, path in module_files()]
        metafunc.parametrize(("module", "tree"), modules, ids=[name for name, _ in modules])
    elif "package" in metafunc.fixturenames:
        metafunc.parametrize("package", CHAIN)


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def chain():
    return CHAIN


@pytest.fixture(scope="session")
def modules():
    return dict(module_files())


@pytest.fixture(scope="session")
def noxfile():
    pytest.importorskip("nox")
    spec = importlib.util.spec_from_file_location("noxfile_under_test", ROOT / "noxfile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def import_module():
    """Imports a module of ours; skips the test where it needs an extra that is not installed."""

    def load(name):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            if type(error).__name__ != "MissingExtraError":
                raise
            pytest.skip(str(error))

    return load


@pytest.fixture
def project(package):
    return read_project(ROOT / "packages" / package)


def read_project(folder):
    """The [project] table of a package."""
    tomllib = pytest.importorskip("tomllib")
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="session")
def projects():
    return {name: read_project(ROOT / "packages" / name) for name in CHAIN}
