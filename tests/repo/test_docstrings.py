"""The examples in the docstrings run."""

from __future__ import annotations

import doctest

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def test_examples_of_the_module_run(module, tree, import_module, tmp_path, monkeypatch):
    if module.endswith("__main__"):
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTA_NO_BROWSER", "1")
    loaded = import_module(module)
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    for test in doctest.DocTestFinder(exclude_empty=True).find(loaded, module):
        runner.run(test, clear_globs=False)  # an example may have registered what it defines
    assert runner.summarize(verbose=False).failed == 0
