"""What an import brings along. Times are for the benchmark; here it is which modules are loaded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CHAIN = ["ptoa_core", "ptoa_bridge", "ptoa_torch", "ptoa_integrations", "papertoanything"]
LOADED = "import json, sys; {}; print(json.dumps(sorted(sys.modules)))"


def loaded_after(statement):
    """Modules that a fresh interpreter holds after a statement."""
    command = [sys.executable, "-c", LOADED.format(statement)]
    return set(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


@pytest.fixture(scope="module")
def bare():
    return loaded_after("pass")


@pytest.mark.parametrize("name", CHAIN)
def test_import_loads_only_the_standard_library_and_siblings(name, bare):
    new = {module.split(".")[0] for module in loaded_after(f"import {name}") - bare}
    assert new - set(sys.stdlib_module_names) - set(CHAIN) == set()


@pytest.mark.parametrize("name", CHAIN[:-1])
def test_import_loads_no_package_above(name):
    assert loaded_after(f"import {name}").isdisjoint(CHAIN[CHAIN.index(name) + 1 :])


SLOW = [
    "asyncio", "concurrent.futures", "ctypes", "importlib.metadata", "multiprocessing", "numpy", "pydoc",
    "sqlite3", "torch", "unittest", "urllib.request", "webbrowser", "xml",
]


@pytest.mark.parametrize("slow", SLOW)
def test_importing_papertoanything_does_not_load(slow):
    assert slow not in loaded_after("import papertoanything") - loaded_after("import json, http.client, zlib")


def test_importing_papertoanything_does_not_load_the_server():
    loaded = loaded_after("import papertoanything")
    assert not {"ptoa_bridge.server", "ptoa_bridge.bridge", "ptoa_torch.watch", "selectors"} & loaded
