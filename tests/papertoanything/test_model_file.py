"""`file.py:Name`: any file loads, none replaces what is installed, failures show only the user's lines."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from papertoanything.model_file import ModelFileError, ModelRef, importable, load_model, parse_ref, user_code

needs_torch = pytest.mark.skipif(
    __import__("importlib.util").util.find_spec("torch") is None, reason="builds a model"
)


@pytest.fixture
def write(folder, model_text):
    """Write Python files below the current folder; `MODEL` in a text stands for the model's code.

    What was imported from them is forgotten afterwards.
    """
    before = set(sys.modules)

    def files(**texts):
        for name, text in texts.items():
            path = folder / (name.replace("_in_", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("MODEL", model_text), encoding="utf-8")

    yield files
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def load(source):
    ref = parse_ref(source)
    with importable(ref):
        return load_model(ref)


def refusal(source):
    with pytest.raises(ModelFileError) as caught:
        load(source)
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "path", "name"),
    [
        ("model.py:Net", "model.py", "Net"),
        ("a b/m.py:Net", "a b/m.py", "Net"),
        ("a:b/m.py:Net", "a:b/m.py", "Net"),
        ("m.py:Outer.Inner", "m.py", "Outer.Inner"),
        ("C:\\x\\m.py:Net", "C:\\x\\m.py", "Net"),
        ("m.txt:Net", "m.txt", "Net"),
    ],
    ids=str,
)
def test_a_file_is_split_at_its_last_colon(folder, source, path, name):
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("")
    assert parse_ref(source) == ModelRef(path, None, name)


def test_what_is_no_file_but_a_dotted_name_is_a_module(folder):
    assert parse_ref("package.module:Net") == ModelRef(None, "package.module", "Net")


@pytest.mark.parametrize(
    "source",
    [
        "Net",
        "",
        ":Net",
        "model.py:",
        "model.py",
        "C:\\x\\m.py",
        "C:/x/m.py",
        "nothing.py:Net",
        "a b:Net",
        "m:1",
        "m:a-b",
        "sub:Net",
        "x" * 70_000 + ".py:Net",
    ],
    ids=lambda s: s[:15],
)
def test_what_names_no_model_is_refused_shortly(folder, source):
    (folder / "sub").mkdir()
    with pytest.raises(ValueError, match=r"\S") as caught:
        parse_ref(source)
    assert len(str(caught.value)) < 300


def test_the_origin_leaves_folders_out(folder):
    (folder / "m.py").write_text("")
    assert parse_ref(f"{folder}/m.py:Net").origin == "m.py:Net"
    assert parse_ref("a.b:Net").origin == "a.b:Net"


@needs_torch
@pytest.mark.parametrize("name", ["Net", "make", "instance", "partial", "Outer.Inner", "Outer.make"])
def test_a_class_a_function_and_an_instance_all_give_a_model(write, name):
    write(
        model="MODEL\nimport functools\ndef make(width=4):\n    return Net()\n"
        "instance = Net()\npartial = functools.partial(make, width=2)\n"
        "class Outer:\n    Inner = Net\n    @staticmethod\n    def make():\n        return Net()\n"
    )
    assert type(load(f"model.py:{name}")).__name__ == "Net"


@needs_torch
def test_a_file_in_a_package_may_import_relatively(write):
    write(
        pack_in___init__="",
        pack_in_sub_in___init__="from .model import Net\n",
        pack_in_blocks="WIDTH = 4\n",
        pack_in_sub_in_model="from ..blocks import WIDTH\nMODEL",
        pack_in_sub_in_other="from . import model\nNet = model.Net",
    )
    model = load("pack/sub/model.py:Net")
    assert type(model).__module__ == "pack.sub.model"
    assert type(load("pack/sub/other.py:Net")) is type(model)
    assert type(load("pack/sub/__init__.py:Net")) is type(model)


@needs_torch
def test_a_file_may_import_what_lies_beside_it(write):
    write(
        sub_in_model_beside="MODEL\nimport helper_beside",
        sub_in_helper_beside="from model_beside import torch\n",
    )
    assert load("sub/model_beside.py:Net") is not None


@needs_torch
@pytest.mark.parametrize(
    "name", ["random", "types", "json", "torch", "numpy", "statistics", "time", "a.b-c d"]
)
def test_a_file_never_stands_in_for_what_is_installed(write, name):
    write(**{f"sub_in_{name}": "import json, random, types, statistics, time\nMODEL\nrandom.random()\n"})
    before = dict(sys.modules)
    assert load(f"sub/{name}.py:Net") is not None
    assert all(
        sys.modules.get(key) is before[key] for key in ("random", "json", "types", "time") if key in before
    )


@needs_torch
def test_a_package_named_like_the_standard_library_still_loads(write):
    write(
        random_in___init__="",
        random_in_part="X = 1\n",
        random_in_model="from .part import X\nimport random\nrandom.random()\nMODEL",
    )
    assert load("random/model.py:Net") is not None


@needs_torch
@pytest.mark.parametrize("name", ["random", "torch", "json", "typing", "argparse", "statistics"])
def test_in_a_folder_of_misleading_names_the_command_still_works(write, folder, ptoa, name):
    """`python -m` puts the current folder first; what is imported before our code is Python's business."""
    if name in ("json", "typing"):
        pytest.skip("imported by Python or by the package itself before anything can be done")
    write(model="import random\nMODEL", **{name: "raise RuntimeError('taken for the real one')"})
    if name == "argparse":
        pytest.skip("imported with the command")
    done = ptoa("inspect", "model.py:Net", "--input-shape", "1,4", cwd=folder)
    assert done.status == 0, done.err


@needs_torch
def test_the_path_and_the_finders_are_put_back(write):
    write(sub_in_model="import sys\nsys.path.append('/left/behind')\nMODEL")
    path, finders, argv = list(sys.path), list(sys.meta_path), list(sys.argv)
    load("sub/model.py:Net")
    assert (sys.path, sys.meta_path, sys.argv) == (path, finders, argv)
    write(sub_in_broken="raise ValueError('x')")
    refusal("sub/broken.py:Net")
    assert (sys.path, sys.meta_path, sys.argv) == (path, finders, argv)


@needs_torch
@pytest.mark.parametrize("ends", ["MODEL", "raise ValueError('x')\n"], ids=["loads", "raises"])
def test_a_file_that_goes_to_another_folder_takes_us_not_along(folder, write, ends):
    write(model=f"import os\nos.chdir('/')\n{ends}")
    with contextlib.suppress(ModelFileError):
        load("model.py:Net")
    assert Path.cwd() == folder


@needs_torch
def test_a_file_that_takes_our_finder_away_is_read(write):
    finders = list(sys.meta_path)
    write(model="MODEL\nimport sys\nsys.meta_path.pop(0)")
    assert load("model.py:Net") is not None
    assert sys.meta_path == finders


@needs_torch
def test_the_file_sees_its_own_argv(write):
    write(model="import sys\nassert sys.argv == ['model.py'], sys.argv\nMODEL")
    assert load("model.py:Net") is not None


FAILURES = {
    "raises": (
        "import torch\n\nraise RuntimeError('boom at import')\n",
        ["RuntimeError: boom at import", "line 3"],
    ),
    "raises deep": (
        "def a(): b()\ndef b(): c()\ndef c(): 1 / 0\na()\n",
        ["ZeroDivisionError", "line 3, in c", "line 4"],
    ),
    "exits": ("import sys\nsys.exit(0)\n", ["sys.exit(0)", "__main__"]),
    "exits with words": ("raise SystemExit('no GPU')\n", ["no GPU"]),
    "syntax": ("def f(:\n    pass\n", ["SyntaxError", "line 1", "def f(:"]),
    "indentation": ("if True:\npass\n", ["IndentationError", "line 2"]),
    "null bytes": ("x = 1\x00\n", ["SyntaxError"]),
    "missing package": ("import nosuchpackage\n", ["No module named 'nosuchpackage'", "line 1"]),
    "recursion": ("def f(): f()\nf()\n", ["RecursionError"]),
    "own base exception": ("class Stop(BaseException): pass\nraise Stop('x')\n", ["Stop: x"]),
    "mute": ("class E(Exception):\n    def __str__(self): 1 / 0\nraise E\n", ["cannot be shown"]),
    "many lines": ("raise ValueError('\\n'.join('line' for _ in range(1000)))\n", ["ValueError: line"]),
    "long line": ("raise ValueError('x' * 100000)\n", ["ValueError: xxx"]),
    "memory": ("raise MemoryError\n", ["MemoryError"]),
    "reads arguments": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('x')\np.parse_args()\n",
        ["sys.exit(2)"],
    ),
}


@needs_torch
@pytest.mark.parametrize("kind", FAILURES)
def test_a_failing_file_is_told_with_the_users_own_lines(write, kind):
    text, mentions = FAILURES[kind]
    write(model=text)
    message = refusal("model.py:Net")
    assert message.startswith("model.py failed")
    assert all(mention in message for mention in mentions), message
    lines = message.splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 200
    assert not any(word in message for word in ("importlib", "papertoanything", "model_file", "Traceback"))


@needs_torch
def test_ctrl_c_in_the_users_code_stays_ctrl_c(write):
    write(model="raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load("model.py:Net")


@needs_torch
@pytest.mark.parametrize(
    ("name", "mentions"),
    [
        ("N", ["the int 5"]),
        ("f", ["f() returned the str 'x'"]),
        ("nothing", ["returned None"]),
        ("join", ["needs arguments", "model.py:build"]),
        ("Plain", ["class 'Plain'"]),
        ("Needs", ["needs arguments: width, depth", "return Needs(width=..., depth=...)", "model.py:build"]),
        ("fails", ["building model.py:fails failed", "ZeroDivisionError", "line"]),
        ("Missing", ["no 'Missing'", "Needs", "Net"]),
        ("Net.nothing", ["no 'nothing'"]),
        ("evil", ["no model here"]),
        ("json", ["module"]),
    ],
)
def test_a_name_that_is_no_model_is_refused_with_what_it_is(write, name, mentions):
    write(
        model="MODEL\nimport json\nfrom os.path import join\nN = 5\n"
        "def f(): return 'x'\ndef nothing(): pass\n"
        "class Plain: pass\nclass Needs(Net):\n    def __init__(self, width, depth, *rest, bias=True): pass\n"
        "def fails(): return 1 / 0\n"
        "def __getattr__(name):\n    if name == 'evil':\n        raise RuntimeError('no model here')\n"
        "    raise AttributeError(name)\n"
    )
    message = refusal(f"model.py:{name}")
    assert all(mention in message for mention in mentions), message
    assert len(message.splitlines()) <= 6


@needs_torch
@pytest.mark.parametrize("name", ["nosuchmodule.at.all", "json.nothing"])
def test_a_module_that_cannot_be_imported_is_told_shortly(folder, name):
    message = refusal(f"{name}:Net")
    assert "ModuleNotFoundError" in message
    assert len(message.splitlines()) <= 4
    assert "importlib" not in message


@needs_torch
def test_a_module_of_the_current_folder_is_imported(write):
    write(here_in___init__="", here_in_model="MODEL")
    assert type(load("here.model:Net")).__module__ == "here.model"


def test_output_of_user_code_goes_to_standard_error_even_past_python(tmp_path):
    code = (
        "import os, subprocess, sys\n"
        "from papertoanything.model_file import user_code\n"
        "print('before')\n"
        "with user_code('it failed'):\n"
        "    print('printed')\n"
        "    os.write(1, b'written\\n')\n"
        "    subprocess.run([sys.executable, '-c', \"print('child')\"], check=True)\n"
        "    sys.__stdout__.write('past\\n')\n"
        "print('after')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "before\nafter\n"
    assert sorted(done.stderr.split()) == ["child", "past", "printed", "written"]


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_user_code_that_closes_a_stream_does_not_silence_us(closed):
    code = (
        "import sys\n"
        "from papertoanything.model_file import user_code\n"
        "with user_code('it failed'):\n"
        f"    sys.{closed}.close()\n"
        "print('out')\n"
        "print('err', file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "err\n")


def test_a_stream_that_user_code_keeps_stays_open(capfd):
    with user_code("it failed"):
        kept = sys.stdout
    print("later", file=kept)
    assert capfd.readouterr() == ("", "later\n")


def test_where_standard_error_is_no_file_user_code_prints_into_it(monkeypatch):
    messages = io.StringIO()
    monkeypatch.setattr(sys, "stderr", messages)
    with user_code("it failed"):
        print("printed")
    assert messages.getvalue() == "printed\n"


@needs_torch
def test_a_file_name_that_is_no_utf_8_is_written_out_in_the_origin(folder, ptoa, model_text):
    name = os.fsdecode(b"\xff.py")
    (folder / name).write_text(model_text)
    done = ptoa("save", f"{name}:Net", "-o", "out.pta", cwd=folder)
    assert done.status == 0, done.err
    assert json.loads((folder / "out.pta").read_text())["spec"]["origin"]["source"] == r"\udcff.py:Net"


@needs_torch
def test_a_model_that_cannot_list_its_modules_is_the_users_failure(folder, write, ptoa):
    write(model="MODEL\nNet.modules = None")
    done = ptoa("inspect", "model.py:Net", "--input-shape", "1,4", cwd=folder)
    assert done.status == 1
    assert "fault of ptoa" not in done.err
    assert "TypeError" in done.err


def test_our_own_errors_pass_through_user_code_as_they_are():
    with pytest.raises(ModelFileError, match=r"^mine$"), user_code("it failed"):
        raise ModelFileError("mine")


def test_without_torch_the_extra_is_named(write, monkeypatch):
    write(model="raise RuntimeError('never run')")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"papertoanything\[torch\]"):
        load("model.py:Net")
