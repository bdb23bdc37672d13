"""Each module says what is public, all of it and nothing more; an underscore crosses no package border."""

from __future__ import annotations

import ast
import inspect

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def names_in_all(tree):
    """What `__all__` lists, or None."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if "__all__" in [getattr(target, "id", "") for target in targets]:
            return ast.literal_eval(node.value)
    return None


def top_level_names(tree):
    """Names that a module defines itself, imports left out."""
    for node in tree.body:
        if isinstance(node, DEFINITIONS):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def is_private(module):
    return any(part.startswith("_") for part in module.split("."))


def test_all_is_complete(module, tree):
    if is_private(module):
        return
    listed = names_in_all(tree)
    assert listed is not None, "a public module has an __all__"
    assert [name for name in top_level_names(tree) if not name.startswith("_") and name not in listed] == []


def test_all_lists_no_name_twice(tree, module):
    listed = names_in_all(tree) or []
    assert len(set(listed)) == len(listed)


def test_module_opens_with_what_it_is_for(module, tree):
    assert ast.get_docstring(tree), f"{module} has no docstring"


def test_library_code_has_no_assert(module, tree):
    assert [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)] == []


def test_no_underscore_crosses_a_package_border(module, tree):
    own = module.split(".")[0]
    crossing = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and is_ours(node.module) != own:
            crossing += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            crossing += [alias.name for alias in node.names if is_ours(alias.name) != own]
    ours = [name for name in crossing if is_ours(name)]
    assert [name for name in ours if is_private(name.replace("__version__", "version"))] == []


def is_ours(dotted):
    """The package of ours that a dotted name belongs to."""
    first = (dotted or "").split(".")[0]
    return first if first == "papertoanything" or first.startswith("ptoa_") else ""


def test_every_listed_name_is_there(module, tree, import_module):
    listed = names_in_all(tree)
    if listed and not is_private(module):
        loaded = import_module(module)
        assert [name for name in listed if not hasattr(loaded, name)] == []


def test_every_public_function_and_class_is_documented(module, tree, import_module):
    if is_private(module):
        return
    loaded = import_module(module)
    for name in names_in_all(tree) or []:
        value = getattr(loaded, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name
