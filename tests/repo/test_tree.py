"""The repository as a whole: what stands where, what is pinned, and what must not be in it."""

from __future__ import annotations

import configparser
import re
import subprocess

import pytest

ALLOWED_AT_ROOT = {"packages", "noxfile.py", "tests", "vectors", "examples", "README.md", "LICENSE"}


def own_files(root):
    """Files of the repository: tracked, or new and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [root / name for name in listed.stdout.splitlines() if (root / name).is_file()]


@pytest.fixture(scope="module")
def texts(root):
    """Every text of the repository but the standard licence and the lock file."""
    found = {}
    for path in own_files(root):
        if path.name in ("LICENSE", "package-lock.json") or path.suffix in (".png", ".pta"):
            continue
        found[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8")
    return found


def test_root_holds_only_what_the_layout_allows(root):
    top = {path.relative_to(root).parts[0] for path in own_files(root)}
    assert {name for name in top if not name.startswith(".")} == ALLOWED_AT_ROOT


def test_no_test_folder_is_a_package(root):
    assert list((root / "tests").rglob("__init__.py")) == []


def test_test_files_have_names_of_their_own_within_a_folder(root):
    names = [path.relative_to(root / "tests").as_posix() for path in (root / "tests").rglob("test_*.py")]
    assert len(set(names)) == len(names)


REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"),
        ("download", "pytorch", "org"), ("deb", "debian", "org"), ("conda", "anaconda", "org"),
    )
]


@pytest.mark.parametrize("host", REGISTRIES)
def test_no_registry_is_named(host, texts):
    assert [name for name, text in texts.items() if host in text] == []


MACHINE_PATHS = re.compile(r"/(root|home/\w+|Users/\w+|work|opt)/")


def test_no_path_of_a_machine_is_in_a_file(texts):
    own = "tests/repo/test_tree.py"
    assert [name for name, text in texts.items() if name != own and MACHINE_PATHS.search(text)] == []


def test_lock_file_names_no_address(root):
    text = (root / "packages/ptoa-bridge/viewer/package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in text


def test_page_pins_every_package_exactly(root):
    text = (root / "packages/ptoa-bridge/viewer/package.json").read_text(encoding="utf-8")
    versions = re.findall(r'"(?:devDependencies|dependencies)": \{([^}]*)\}', text)
    pins = re.findall(r'": "([^"]+)"', "".join(versions))
    assert pins
    assert [pin for pin in pins if not re.fullmatch(r"\d+\.\d+\.\d+", pin)] == []


def test_lint_tools_are_pinned_exactly(noxfile):
    for tool in (*noxfile.LINT, *noxfile.TYPING, noxfile.NODE, noxfile.TORCH):
        assert re.fullmatch(r"[a-z-]+==\d+(\.\d+)+", tool)


def test_every_package_has_what_a_distribution_needs(package, root):
    folder = root / "packages" / package
    assert (folder / "LICENSE").read_bytes() == (root / "LICENSE").read_bytes()
    assert (folder / "README.md").read_text(encoding="utf-8").startswith(f"# {package}\n")
    assert (folder / "src" / package.replace("-", "_") / "py.typed").read_bytes() == b""


@pytest.fixture(scope="module")
def contracts(root):
    parser = configparser.ConfigParser()
    parser.read(root / ".importlinter", encoding="utf-8")
    return parser


def test_a_contract_holds_the_chain(contracts, chain):
    contract = contracts["importlinter:contract:chain"]
    assert contract["type"] == "layers"
    assert contract["layers"].split() == [name.replace("-", "_") for name in reversed(chain)]


def test_a_contract_keeps_the_readers_of_models_away_from_the_bridge(contracts):
    contract = contracts["importlinter:contract:readers"]
    assert (contract["type"], contract["source_modules"].strip()) == ("forbidden", "ptoa_torch")
    assert contract["forbidden_modules"].strip() == "ptoa_bridge"
    for line in contract["ignore_imports"].strip().splitlines():
        assert line.startswith("ptoa_torch.watch -> ptoa_bridge")


def test_ci_runs_both_commands_of_the_readme(root):
    readme = (root / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^python3 -m venv .*$", readme, re.MULTILINE)
    script = (root / ".ci/run").read_text(encoding="utf-8")
    assert len(commands) == 2
    assert [command for command in commands if command not in script] == []


def test_workflows_grant_nothing_by_default_and_pin_every_action(root):
    for path in (root / ".github/workflows").glob("*.yml"):
        text = path.read_text(encoding="utf-8")
        assert re.search(r"^permissions: \{\}$", text, re.MULTILINE), path.name
        for action in re.findall(r"uses: (\S+)", text):
            assert re.search(r"@(v\d+(\.\d+)*|release/v1|[0-9a-f]{40})$", action), action


def test_workflow_covers_the_releases_and_pythons_of_the_noxfile(root, noxfile):
    text = (root / ".github/workflows/test.yml").read_text(encoding="utf-8")
    assert [name for name in (*noxfile.RELEASES, *noxfile.PYTHONS) if f'"{name}"' not in text] == []
