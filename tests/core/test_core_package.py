"""The package as a whole: its names, its errors, what importing it loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ptoa_core
from ptoa_core import errors
from ptoa_core.errors import FormatError, MissingExtraError, PtoaError, SettingError, missing_extra


def test_names_are_sorted_and_there():
    order = sorted(ptoa_core.__all__, key=lambda name: (2 - name[0].isupper() - name.isupper(), name))
    assert order == ptoa_core.__all__
    assert [name for name in ptoa_core.__all__ if not hasattr(ptoa_core, name)] == []
    assert len(set(ptoa_core.__all__)) == len(ptoa_core.__all__)


def test_import_loads_neither_threads_nor_sockets_nor_metadata():
    code = (
        "import sys; before = set(sys.modules); import ptoa_core; print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {
        "socket",
        "http.client",
        "asyncio",
        "logging",
        "pathlib",
        "ctypes",
        "importlib.metadata",
        "queue",
    }
    assert {name for name in loaded if name.startswith("ptoa_")} >= {"ptoa_core", "ptoa_core.spec"}
    assert not loaded & {"ptoa_core.runs", "ptoa_core.pump", "ptoa_core.history"}


@pytest.mark.parametrize(
    "name", [name for name in errors.__all__ if name.endswith("Error") and name != "PtoaError"]
)
def test_every_error_stands_in_the_tree(name):
    error = getattr(errors, name)
    assert issubclass(error, PtoaError)
    assert issubclass(error, ImportError if name == "MissingExtraError" else ValueError)
    assert issubclass(error, FormatError) == (name not in {"SettingError", "MissingExtraError"})
    assert name in errors.__doc__


@pytest.mark.parametrize("extra", ["torch", "hf", "lightning"])
def test_missing_extra_says_what_to_install(extra):
    error = missing_extra(extra, "x()")
    assert isinstance(error, MissingExtraError)
    assert str(error).startswith("x() needs ")
    assert f'pip install "papertoanything[{extra}]"' in str(error)


def test_unknown_extra_is_refused():
    with pytest.raises(SettingError, match="no extra is named 'tf'"):
        missing_extra("tf", "x()")


def test_version_is_what_the_producer_says():
    assert ptoa_core.producer() == {"name": "papertoanything", "version": ptoa_core.__version__}
