"""One version for all five packages, and pins that follow it."""

from __future__ import annotations

import ast
import re
import shutil

import pytest


def dunder_version(path):
    """The text of `__version__` in a module, read without importing it."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__version__":
            return ast.literal_eval(node.value)
    return None


def requirements(project):
    """Every requirement of a package, its extras' included."""
    extras = project.get("optional-dependencies", {}).values()
    return [*project["dependencies"], *(one for extra in extras for one in extra)]


def is_sibling(requirement, chain):
    return re.split(r"[\[=~<>! ]", requirement)[0] in chain


def test_all_packages_have_one_version(projects):
    assert len({project["version"] for project in projects.values()}) == 1


def test_package_says_its_version(package, project, modules):
    assert dunder_version(modules[package.replace("-", "_")]) == project["version"]


def test_metapackage_pins_its_siblings_exactly(projects, chain):
    project = projects["papertoanything"]
    pins = [one for one in requirements(project) if is_sibling(one, chain)]
    assert len(pins) == len(requirements(project))
    assert [pin for pin in pins if not pin.endswith(f"=={project['version']}")] == []
    assert {re.split(r"[\[=]", pin)[0] for pin in project["dependencies"]} == set(chain) - {"papertoanything"}


def test_siblings_ask_for_a_compatible_release(package, project, chain):
    if package == "papertoanything":
        return
    pins = [one for one in requirements(project) if is_sibling(one, chain)]
    assert [pin for pin in pins if not pin.endswith(f"~={project['version']}")] == []


def test_package_requires_only_what_stands_below_it(package, project, chain):
    below = chain[: chain.index(package)]
    siblings = {re.split(r"[\[=~]", one)[0] for one in project["dependencies"]}
    assert siblings <= set(below)
    assert (package == "ptoa-core") == (not siblings)


def test_nothing_but_siblings_is_required_without_an_extra(project, chain):
    assert [one for one in project["dependencies"] if not is_sibling(one, chain)] == []


def test_third_party_requirements_have_a_lower_bound_and_no_upper(project, chain):
    for requirement in requirements(project):
        if not is_sibling(requirement, chain):
            assert re.fullmatch(r"[a-z]+>=\d+(\.\d+)*", requirement)


def test_the_floor_of_torch_is_the_oldest_release_that_is_tested(projects, noxfile):
    assert projects["ptoa-torch"]["optional-dependencies"]["torch"] == ["torch>=2.0"]
    assert next(iter(noxfile.RELEASES)).startswith("2.0.")


def test_metapackage_forwards_every_extra_that_users_are_told_of(projects):
    assert set(projects["papertoanything"]["optional-dependencies"]) == {"torch", "hf", "lightning"}


def test_project_tables_agree_where_they_should(projects):
    for key in ("requires-python", "license", "authors", "classifiers"):
        assert len({str(project[key]) for project in projects.values()}) == 1, key


def test_changelog_has_a_section_for_the_version(root, projects):
    text = (root / "packages/papertoanything/CHANGELOG.md").read_text(encoding="utf-8")
    release = re.match(r"\d+\.\d+\.\d+", projects["papertoanything"]["version"])[0]
    assert f"## {release}" in text


@pytest.fixture
def copy(root, tmp_path, noxfile, chain):
    """A copy of what a bump rewrites."""
    for name in chain:
        source = noxfile.SOURCES[name].relative_to(root)
        (tmp_path / source).mkdir(parents=True)
        shutil.copy(root / source / "__init__.py", tmp_path / source)
        shutil.copy(root / "packages" / name / "pyproject.toml", tmp_path / "packages" / name)
    return tmp_path


@pytest.mark.parametrize("new", ["0.2.0", "0.3.0.dev0", "1.0.0rc1"])
def test_bump_changes_every_version_and_every_pin(copy, noxfile, projects, new):
    old = projects["ptoa-core"]["version"]
    changed = noxfile.bump_version(copy, new)
    assert len(changed) == 10
    for path in changed:
        text = path.read_text(encoding="utf-8")
        assert f'"{new}"' in text
        assert f'{old}"' not in text
    again = noxfile.bump_version(copy, old)
    assert again == changed


def test_bump_leaves_everything_else_as_it_was(copy, noxfile, root, projects):
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    noxfile.bump_version(copy, "9.9.9")
    noxfile.bump_version(copy, projects["ptoa-core"]["version"])
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("bad", ["", "1", "1.2", "v1.2.3", "1.2.3.4", "1.2.3-dev", "1.2.3 ", 'x"'])
def test_bump_refuses_what_is_no_version(copy, noxfile, bad):
    with pytest.raises(SystemExit, match="is no version"):
        noxfile.bump_version(copy, bad)


def test_bump_changes_nothing_when_one_file_has_another_version(copy, noxfile, chain):
    project = copy / "packages" / chain[1] / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    project.write_text(text.replace('version = "', 'version = "9').replace("~=", "~=9"), encoding="utf-8")
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit, match="nothing was changed"):
        noxfile.bump_version(copy, "1.0.0")
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
