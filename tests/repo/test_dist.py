"""The finished wheels and sdists: what they hold, what they say, and that they install without an index.

`nox -s dist` builds them and passes their folder as `--dist`. `python tests/repo/test_dist.py FOLDER` writes
dist_files.txt anew; read the difference before it is committed.
"""

from __future__ import annotations

import difflib
import email
import json
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "dist_files.txt"
VERSION = re.compile(r"-\d+\.\d+\.\d+[^-/]*?(?=-py3|\.dist-info|\.tar\.gz|/|$)")
HASH = re.compile(r"-[\w-]{8}(?=\.(?:js|css)$)")


def archives(folder):
    return sorted([*Path(folder).glob("*.whl"), *Path(folder).glob("*.tar.gz")])


def names_in(archive):
    """Names of the files in a wheel or sdist; versions and content hashes are left open."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            names = wheel.namelist()
    else:
        with tarfile.open(archive) as sdist:
            names = [member.name for member in sdist if not member.isdir()]
    return sorted(HASH.sub("-*", VERSION.sub("", name)) for name in names)


def listing(folder):
    """The text of dist_files.txt for the archives of a folder."""
    parts = []
    for archive in archives(folder):
        parts += [VERSION.sub("", archive.name), *(f"  {name}" for name in names_in(archive)), ""]
    return "\n".join(parts)


@pytest.fixture(scope="module")
def dist(request):
    folder = request.config.getoption("--dist")
    if not folder:
        pytest.skip("give the folder of the distributions with --dist; nox -s dist does")
    return Path(folder)


@pytest.fixture(scope="module")
def wheel_metadata(dist):
    """The METADATA of each wheel, by name."""
    found = {}
    for path in dist.glob("*.whl"):
        with zipfile.ZipFile(path) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            message = email.message_from_bytes(wheel.read(name))
        found[message["Name"]] = message
    return found


def test_files_are_those_of_the_list(dist):
    want, got = EXPECTED.read_text(encoding="utf-8"), listing(dist)
    difference = difflib.unified_diff(want.splitlines(), got.splitlines(), "list", "built", lineterm="")
    assert "\n".join(difference) == ""


def test_no_distribution_holds_a_test_or_a_cache(dist):
    unwanted = re.compile(r"(^|/)(tests?|__pycache__|node_modules)/")
    for archive in archives(dist):
        assert [name for name in names_in(archive) if unwanted.search(name)] == []


def test_every_wheel_is_for_any_python_3_and_any_machine(dist, chain):
    assert len(list(dist.glob("*.whl"))) == len(list(dist.glob("*.tar.gz"))) == len(chain)
    assert len(list(dist.glob("*-py3-none-any.whl"))) == len(chain)


def test_metadata_says_what_an_index_shows(wheel_metadata, chain):
    assert set(wheel_metadata) == set(chain)
    for metadata in wheel_metadata.values():
        assert metadata["License-Expression"] == "Apache-2.0"
        assert metadata.get_all("License-File") == ["LICENSE"]
        assert metadata["Requires-Python"] == ">=3.10"
        assert "Typing :: Typed" in metadata.get_all("Classifier")
        assert all("github.com/PaperToAnything/" in url for url in metadata.get_all("Project-URL"))
        assert metadata["Description-Content-Type"] == "text/markdown"
        assert len(metadata.get_payload()) > 200


def test_page_is_in_wheel_and_sdist_of_the_bridge(dist):
    for archive in dist.glob("ptoa_bridge-*"):
        assert [name for name in names_in(archive) if name.endswith("ptoa_bridge/static/index.html")]


def environment(folder, dist, package):
    """The scripts of a new environment with one package, installed from the wheels without an index."""
    venv.create(folder, with_pip=True)
    scripts = folder / ("Scripts" if sys.platform == "win32" else "bin")
    options = ["--no-index", "--pre", f"--find-links={dist}"]
    install = [scripts / "python", "-m", "pip", "install", *options, package]
    subprocess.run(install, check=True, capture_output=True)
    return scripts


def installed(scripts):
    """Names of what an environment holds, beside pip's own."""
    listed = json.loads(run(scripts / "python", "-I", "-m", "pip", "list", "--format=json").stdout)
    return {row["name"] for row in listed} - {"pip", "setuptools"}


@pytest.fixture(scope="module")
def fresh(dist, tmp_path_factory):
    """An environment that holds the wheels and nothing else."""
    return environment(tmp_path_factory.mktemp("fresh"), dist, "papertoanything")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_all_five_install_and_nothing_else(fresh, chain):
    assert installed(fresh) == set(chain)


def test_all_five_install_from_a_checkout(dist, chain, root, tmp_path):
    """In one command, as the README has it; what the build needs comes from the index."""
    venv.create(tmp_path, with_pip=True)
    scripts = tmp_path / ("Scripts" if sys.platform == "win32" else "bin")
    places = [str(root / "packages" / name) for name in chain]
    subprocess.run([scripts / "python", "-m", "pip", "install", *places], check=True, capture_output=True)
    assert installed(scripts) == set(chain)
    assert run(scripts / "ptoa", "--version").returncode == 0


# What is said where the package is there and what its extra brings is not.
ALONE = {
    "ptoa-core": ("from ptoa_core import lab_url; print(lab_url())", "https://lab.papertoanything.com/"),
    "ptoa-bridge": ("import ptoa_bridge; print(ptoa_bridge.Bridge().start().local_url)", "#token="),
    "ptoa-torch": ("import ptoa_torch; ptoa_torch.from_module(None)", '"papertoanything[torch]"'),
    "ptoa-integrations": ("import ptoa_integrations.hf", '"papertoanything[hf]"'),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_package_installs_alone_and_works_or_names_its_extra(name, dist, chain, tmp_path):
    scripts = environment(tmp_path, dist, name)
    code, wanted = ALONE[name]
    done = run(scripts / "python", "-I", "-c", code)
    assert installed(scripts) == set(chain[: chain.index(name) + 1])
    assert wanted in done.stdout + done.stderr


def test_version_names_all_five(fresh, chain, wheel_metadata):
    done = run(fresh / "ptoa", "--version")
    assert done.returncode == 0
    for name in chain:
        assert re.search(rf"{name}\s.*{re.escape(wheel_metadata[name]['Version'])}", done.stdout)


def test_decode_reads_a_link(fresh, root):
    case = json.loads((root / "vectors/link/valid-full-url.json").read_text(encoding="utf-8"))
    done = run(fresh / "ptoa", "decode", case["input"]["text"])
    assert (done.returncode, json.loads(done.stdout)) == (0, case["result"]["spec"])


if __name__ == "__main__":
    EXPECTED.write_text(listing(sys.argv[1]), encoding="utf-8")
