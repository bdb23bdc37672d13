"""The subcommands on files and links: status, data on standard output, messages on standard error."""

from __future__ import annotations

import json
import os
import re

import pytest

import papertoanything as ptoa_package
from papertoanything.cli import main
from papertoanything.cli.table import display_width

# What a terminal obeys or reorders; a line feed ends our own lines.
ACTING = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff]"
)
EVIL_TEXTS = {
    "title": "m\x1b]0;owned\x07",
    "clear": "\x1b[2J\x1b[1A",
    "c1": "\x9b31m\x85",
    "bidi": "\u202egnp.exe\u2066",
    "lines": "one\r\ntwo\u2028three\x0b",
    "link": "\x1b]8;;http://evil\x1b\\x",
    "invisible": "a\u200bb\ufeff\xad",
}


def names(folder):
    return {path.name for path in folder.iterdir()}


def run(capsys, *argv):
    status = main(list(argv))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def evil_spec(spec, text):
    """The text in every place of a spec that a table shows."""
    first, second = spec()["blocks"]
    group = {"id": f"g{text}", "kind": "group", "label": text, "params": {}, "inputs": []}
    block = {
        "id": f"x{text}",
        "kind": f"k{text}",
        "label": text,
        "params": {f"p{text}": text, "variant": text, "deep": [{text: text}], "shape": [text]},
        "inputs": ["l0"],
        "group": group["id"],
    }
    return spec(
        name=text,
        blocks=[group, first, second, block],
        output=block["id"],
        origin={"kind": "torch", "source": text},
    )


def test_every_command_is_quiet_on_standard_error_when_all_is_well(folder, capsys, spec):
    link = ptoa_package.to_url(spec())
    for argv in (
        ["--version"],
        [],
        ["inspect", "spec.json"],
        ["inspect", "spec.json", "--json"],
        ["link", "spec.json", "--no-open"],
        ["decode", link],
        ["save", "spec.json", "-o", "o.pta"],
        ["inspect", "o.pta"],
    ):
        status, out, err = run(capsys, *argv)
        assert (status, err) == (0, ""), argv
        assert out


def test_version_names_the_five_packages(capsys):
    status, out, _ = run(capsys, "--version")
    assert status == 0
    lines = [line.split() for line in out.splitlines()]
    assert [name for name, _ in lines] == [
        "papertoanything",
        "ptoa-core",
        "ptoa-bridge",
        "ptoa-torch",
        "ptoa-integrations",
    ]
    assert {version for _, version in lines} == {ptoa_package.__version__}


@pytest.mark.parametrize("command", ["inspect", "link", "decode", "save", "serve", "view", "report"])
def test_help_of_a_command_shows_examples(capsys, command):
    status, out, err = run(capsys, command, "--help")
    assert (status, err) == (0, "")
    assert f"  ptoa {command} " in out or f"| ptoa {command}" in out


@pytest.mark.parametrize(
    "argv",
    [
        ["nosuch"],
        ["inspect"],
        ["inspect", "spec.json", "--nosuch"],
        ["inspect", "spec.json", "--dtype", "half"],
        ["inspect", "spec.json", "--dep", "1"],
        ["inspect", "spec.json", "--depth", "-1"],
        ["inspect", "spec.json", "--input-shape", "1,0"],
        ["inspect", "spec.json", "--input-shape", "a"],
        ["inspect", "spec.json", "--input-shape", ""],
        ["inspect", "spec.json", "--input-shape", "1,,2"],
        ["inspect", "spec.json", "--input-shape=-1,2"],
        ["inspect", "spec.json", "--input-shape", "٣,1"],
        ["inspect", "spec.json", "--input-shape", "9" * 5000],
        ["inspect", "spec.json", "--vocab", "0"],
        ["inspect", "spec.json", "--vocab", "1.5"],
        ["serve", "spec.json", "--port", "70000"],
        ["serve", "spec.json", "--port=-1"],
        ["serve", "spec.json", "--port", "abc"],
        ["serve", "spec.json", "--port", ""],
        ["decode"],
        ["decode", "a", "b"],
        ["nosuch\x1b[2J\u202e"],
        ["inspect", "spec.json", "--x\x1b]0;t\x07"],
    ],
    ids=lambda argv: ascii(" ".join(argv))[:40],
)
def test_wrong_usage_is_status_2_in_two_short_lines(folder, capsys, argv):
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 2
    assert "--help" in err
    assert not ACTING.search(err)


BAD_SOURCES = {
    "missing": ("nothing.json", "nothing.json"),
    "empty name": ("", "no such file"),
    "folder": ("sub", "folder"),
    "empty file": ("empty.json", "empty.json"),
    "text": ("text.json", "text.json"),
    "cut": ("cut.json", "cut.json"),
    "list": ("list.json", "list.json"),
    "binary": ("binary.pta", "binary.pta"),
    "foreign": ("foreign.json", "foreign.json"),
    "python without a name": ("model.py", "model.py:Name"),
    "missing python": ("nothing.py:Net", "nothing.py"),
    "windows path": ("C:\\x\\m.py:Net", "m.py"),
    "windows path without a name": ("C:\\x\\m.py", "no such file"),
    "no python name": ("model.py:1x", "1x"),
    "dangling link": ("dangling.json", "dangling.json"),
    "device": ("/dev/null", "device"),
}


@pytest.mark.parametrize("command", ["inspect", "link", "save"])
@pytest.mark.parametrize("kind", BAD_SOURCES)
def test_a_bad_source_is_status_1_in_one_line_that_names_it(folder, capsys, model_text, command, kind):
    (folder / "sub").mkdir()
    (folder / "model.py").write_text(model_text)
    for name, data in {
        "empty.json": b"",
        "text.json": b"hello",
        "cut.json": b'{"v":1,"name":"s","blo',
        "list.json": b"[]",
        "binary.pta": bytes(range(256)),
        "foreign.json": b'{"name":"package","version":"1.0"}',
    }.items():
        (folder / name).write_bytes(data)
    (folder / "dangling.json").symlink_to("nowhere")
    before = sorted(names(folder))
    source, mention = BAD_SOURCES[kind]
    status, out, err = run(capsys, command, source)
    assert (status, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("ptoa: ")
    assert mention in err
    assert sorted(names(folder)) == before


@pytest.mark.parametrize(
    "text",
    [
        "hello world",
        "",
        "https://example.org/",
        "#s=",
        "https://lab.papertoanything.com/#s=q1Yq",
        "#s=!!!",
        "-" * 50,
        "\x1b[2J",
    ],
    ids=ascii,
)
def test_decode_of_what_is_no_link_is_status_1_in_one_line(folder, capsys, text):
    status, out, err = run(capsys, "decode", "--", text)
    assert (status, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert not ACTING.search(err)


def test_decode_prints_the_spec_as_json(capsys, spec):
    status, out, err = run(capsys, "decode", ptoa_package.to_url(spec(name="模型")))
    assert (status, err) == (0, "")
    assert json.loads(out) == spec(name="模型")
    assert "模型" in out


@pytest.mark.parametrize("form", ["{}", "  {}\n", "#{}"], ids=["whole", "in spaces", "fragment"])
def test_decode_reads_a_link_from_standard_input(ptoa, spec, form):
    link = ptoa_package.to_url(spec())
    text = form.format(link.partition("#")[2] if form.startswith("#") else link)
    done = ptoa("decode", "-", stdin=text.encode())
    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out) == spec()


@pytest.mark.parametrize("stdin", [b"", b"\xff\xfe", b"A" * 100], ids=["empty", "not text", "no link"])
def test_decode_refuses_what_standard_input_holds_instead_of_a_link(ptoa, stdin):
    done = ptoa("decode", "-", stdin=stdin)
    assert (done.status, done.out) == (1, "")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("kind", EVIL_TEXTS)
@pytest.mark.parametrize(
    "argv", [["inspect", "evil.json"], ["inspect", "evil.json", "--json"], ["decode"]], ids=" ".join
)
def test_a_strangers_text_reaches_no_terminal_raw(folder, capsys, spec, kind, argv):
    evil = evil_spec(spec, EVIL_TEXTS[kind])
    (folder / "evil.json").write_text(json.dumps(evil))
    if argv == ["decode"]:
        argv = ["decode", ptoa_package.to_url(evil)]
    status, out, err = run(capsys, *argv)
    assert status == 0, err
    assert not ACTING.search(out)
    assert not ACTING.search(err)
    if "--json" in argv or argv[0] == "decode":
        assert json.loads(out) == evil


@pytest.mark.parametrize("kind", EVIL_TEXTS)
def test_an_error_shows_a_strangers_text_escaped_in_one_line(folder, capsys, spec, kind):
    text = EVIL_TEXTS[kind]
    (folder / "bad.json").write_text(json.dumps(spec(output=text)))
    status, out, err = run(capsys, "inspect", "bad.json")
    assert (status, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert not ACTING.search(err)


def test_a_file_name_that_acts_is_shown_escaped(folder, capsys):
    status, _, err = run(capsys, "inspect", "x\x1b[2J\n\u202e.json")
    assert status == 1
    assert len(err.splitlines()) == 1
    assert not ACTING.search(err)


def test_inspect_shows_nesting_shapes_counts_and_params(folder, capsys, spec):
    blocks = [
        {"id": "g0", "kind": "group", "label": "layers.0 (Layer)", "params": {}, "inputs": []},
        {
            "id": "g1",
            "kind": "group",
            "label": "layers.0.mlp (MLP)",
            "params": {},
            "inputs": [],
            "group": "g0",
        },
        {"id": "t0", "kind": "tokens", "params": {"vocab": 4}, "inputs": []},
        {
            "id": "m0",
            "kind": "mlp",
            "params": {"d": 4, "hidden": 16, "shape": [1, 8, 4], "paramCount": 12345, "flops": 2400},
            "inputs": ["t0"],
            "group": "g1",
        },
    ]
    (folder / "nested.json").write_text(json.dumps(spec(blocks=blocks, output="m0")))
    status, out, _ = run(capsys, "inspect", "nested.json")
    assert status == 0
    assert out == (
        "block   kind    label               shape  params   share   flops  settings       inputs\n"
        "t0      tokens                                                     vocab=4\n"
        "g0      group   layers.0 (Layer)           12,345  100.0%  2.40 k\n"
        "  g1    group   layers.0.mlp (MLP)         12,345  100.0%  2.40 k\n"
        "    m0  mlp                         1,8,4  12,345  100.0%  2.40 k  d=4 hidden=16  t0\n"
        "\n"
        "s: 4 blocks, output m0, origin lab\n"
        "12,345 parameters, 2.40 k flops in the pass that was read\n"
    )


LAYERS = [
    {"id": "g0", "kind": "group", "label": "h.0 (Layer)", "params": {"repeats": 3}, "inputs": []},
    {"id": "g1", "kind": "group", "label": "h.1 (Layer)", "params": {"repeatOf": "g0"}, "inputs": []},
    {"id": "g2", "kind": "group", "label": "h.2 (Layer)", "params": {"repeatOf": "g0"}, "inputs": []},
    {"id": "i0", "kind": "input", "params": {}, "inputs": []},
    *(
        {
            "id": f"l{place}",
            "kind": "linear",
            "label": f"h.{place}.up",
            "params": {"paramCount": 200, "flops": 4_000_000},
            "inputs": [f"l{place - 1}" if place else "i0"],
            "group": f"g{place}",
        }
        for place in range(3)
    ),
    {"id": "n0", "kind": "norm", "label": "end", "params": {"paramCount": 400}, "inputs": ["l2"]},
]


def test_inspect_folds_equal_layers_into_one_row(folder, capsys, spec):
    """Its numbers are those of one layer, its share that of all three."""
    (folder / "layers.json").write_text(json.dumps(spec(blocks=LAYERS, output="n0")))
    _, out, _ = run(capsys, "inspect", "layers.json")
    assert out == (
        "block  kind    label            params  share   flops  inputs\n"
        "i0     input\n"
        "g0     group   h.0 (Layer) × 3     200  60.0%  4.00 M\n"
        "  l0   linear  h.0.up              200  60.0%  4.00 M  i0\n"
        "n0     norm    end                 400  40.0%          l2\n"
        "\n"
        "s: 8 blocks, output n0, origin lab\n"
        "1,000 parameters, 12.0 M flops in the pass that was read\n"
    )


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        pytest.param(["--all"], ["i0", "g0", "l0", "g1", "l1", "g2", "l2", "n0"], id="all"),
        pytest.param(["--filter", "h.1"], ["g1", "l1"], id="filter-finds-any-of-them"),
        pytest.param(["--depth", "0"], ["i0", "g0", "n0"], id="depth"),
    ],
)
def test_inspect_shows_layers_one_by_one_where_asked(folder, capsys, spec, options, shown):
    """A filter looks at every layer."""
    (folder / "layers.json").write_text(json.dumps(spec(blocks=LAYERS, output="n0")))
    _, out, _ = run(capsys, "inspect", "layers.json", *options)
    assert [line.split()[0] for line in out.partition("\n\n")[0].splitlines()[1:]] == shown


@pytest.mark.parametrize(
    "marks",
    [
        pytest.param({"repeatOf": "g0"}, id="of-itself"),
        pytest.param({"repeatOf": "g9"}, id="of-nothing"),
        pytest.param({"repeats": "many", "repeatOf": 3}, id="wrong-types"),
        pytest.param({"repeats": True}, id="flag"),
        pytest.param({"paramCount": -5, "flops": "much"}, id="numbers-that-are-none"),
    ],
)
def test_inspect_of_strange_marks_hides_nothing(folder, capsys, spec, marks):
    """A stranger's file may say anything there."""
    blocks = [{**LAYERS[0], "params": marks}, LAYERS[3], LAYERS[4]]
    (folder / "odd.json").write_text(json.dumps(spec(blocks=blocks, output="l0")))
    status, out, _ = run(capsys, "inspect", "odd.json")
    assert status == 0
    assert [line.split()[0] for line in out.partition("\n\n")[0].splitlines()[1:]] == ["i0", "g0", "l0"]


def test_inspect_depth_hides_what_lies_deeper_and_says_how_much(folder, capsys, spec):
    blocks = [
        {"id": "g0", "kind": "group", "label": "top", "params": {}, "inputs": []},
        {"id": "l0", "kind": "linear", "params": {}, "inputs": [], "group": "g0"},
        {"id": "l1", "kind": "linear", "params": {}, "inputs": ["l0"], "group": "g0"},
    ]
    (folder / "nested.json").write_text(json.dumps(spec(blocks=blocks, output="l1")))
    _, out, _ = run(capsys, "inspect", "nested.json", "--depth", "0")
    assert "top +2 inside" in out
    assert "l1  linear" not in out


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("l0", ["g0", "l0"]),
        ("LINEAR", ["g0", "l0", "g1", "l1"]),
        ("up*", ["g0", "l0"]),
        ("t?", ["t0"]),
        ("inner", ["g0", "g1", "l1"]),
    ],
)
def test_inspect_filter_keeps_matches_and_what_they_lie_in(folder, capsys, spec, text, shown):
    blocks = [
        {"id": "g0", "kind": "group", "label": "outer", "params": {}, "inputs": []},
        {"id": "g1", "kind": "group", "label": "inner", "params": {}, "inputs": [], "group": "g0"},
        {"id": "t0", "kind": "tokens", "params": {}, "inputs": []},
        {"id": "l0", "kind": "linear", "label": "up", "params": {}, "inputs": ["t0"], "group": "g0"},
        {"id": "l1", "kind": "linear", "label": "down", "params": {}, "inputs": ["l0"], "group": "g1"},
    ]
    (folder / "nested.json").write_text(json.dumps(spec(blocks=blocks, output="l1")))
    status, out, _ = run(capsys, "inspect", "nested.json", "--filter", text)
    assert status == 0
    assert [line.split()[0] for line in out.partition("\n\n")[0].splitlines()[1:]] == shown


def test_inspect_filter_that_matches_nothing_is_status_1(folder, capsys):
    status, out, err = run(capsys, "inspect", "spec.json", "--filter", "nosuch")
    assert (status, out) == (1, "")
    assert "nosuch" in err


def test_inspect_shows_every_block_of_groups_that_lie_in_each_other():
    from papertoanything.cli.inspect import nested
    from papertoanything.spec import Block

    circle = [
        Block("g0", "group", group="g1"),
        Block("g1", "group", group="g0"),
        Block("l0", "linear", group="g9"),
    ]
    assert sorted(row.block.id for row in nested(circle)) == ["g0", "g1", "l0"]


def test_inspect_of_a_very_deep_nest_ends(folder, capsys, spec):
    blocks = [{"id": "g0", "kind": "group", "params": {}, "inputs": []}]
    blocks += [
        {"id": f"g{i}", "kind": "group", "params": {}, "inputs": [], "group": f"g{i - 1}"}
        for i in range(1, 5000)
    ]
    blocks.append({"id": "l0", "kind": "linear", "params": {}, "inputs": [], "group": "g4999"})
    (folder / "deep.json").write_text(json.dumps(spec(blocks=blocks, output="l0")))
    status, out, _ = run(capsys, "inspect", "deep.json")
    assert status == 0
    assert len(out.splitlines()) == 5001 + 3


@pytest.mark.parametrize("width", [1, 5, 20, 40, 80, 200])
def test_inspect_fits_the_width(folder, capsys, monkeypatch, spec, width):
    monkeypatch.setenv("COLUMNS", str(width))
    long = "模" * 5000 + "x" * 5000
    (folder / "long.json").write_text(json.dumps(evil_spec(spec, long)))
    status, out, _ = run(capsys, "inspect", "long.json")
    assert status == 0
    table = out.partition("\n\n")[0]
    assert max(map(display_width, table.splitlines())) <= width


def test_inspect_of_very_long_labels_is_bounded_in_a_pipe(folder, capsys, spec):
    (folder / "long.json").write_text(json.dumps(evil_spec(spec, "x" * 10_000)))
    _, out, _ = run(capsys, "inspect", "long.json")
    assert len(out) < 5000


def test_inspect_of_a_run_file_counts_its_frames(folder, capsys, run_text):
    (folder / "run.pta").write_text(run_text(4))
    status, out, err = run(capsys, "inspect", "run.pta")
    assert (status, err) == (0, "")
    assert out.endswith("run: 4 frames, steps 0 to 30, last loss 0.25\n")


@pytest.mark.parametrize("cut", [1, 30, 60], ids=str)
def test_inspect_of_a_run_file_that_was_cut_shows_what_is_whole(ptoa, folder, run_text, cut):
    (folder / "run.pta").write_text(run_text(4)[:-cut])
    done = ptoa("inspect", "run.pta", cwd=folder)
    assert done.status == 0
    assert "l0" in done.out
    assert "frames, steps 0 to" in done.out
    assert "Traceback" not in done.err


def test_inspect_of_a_run_file_without_frames_says_so(folder, capsys, run_text):
    (folder / "run.pta").write_text(run_text(0))
    assert run(capsys, "inspect", "run.pta")[1].endswith("run: no frames\n")


def test_inspect_warns_about_what_is_odd_and_shows_it(folder, capsys, spec):
    blocks = [{"id": "q0", "kind": "quantum", "params": {}, "inputs": []}]
    (folder / "odd.json").write_text(json.dumps(spec(blocks=blocks, output="q0")))
    status, out, err = run(capsys, "inspect", "odd.json")
    assert status == 0
    assert "quantum" in out
    assert err == "ptoa: warning: spec.blocks[0].kind is 'quantum', which is no kind of version 1\n"


def test_inspect_link_follows_the_table_and_stays_out_of_json(folder, capsys):
    _, out, _ = run(capsys, "inspect", "spec.json", "--link")
    assert ptoa_package.from_url(out.splitlines()[-1]).name == "s"
    _, out, err = run(capsys, "inspect", "spec.json", "--link", "--json")
    assert json.loads(out)["name"] == "s"
    assert "#s=" in err


def test_input_options_with_a_file_are_said_to_be_idle(folder, capsys):
    status, _, err = run(capsys, "inspect", "spec.json", "--input-shape", "1,4")
    assert status == 0
    assert "for models" in err


def test_link_prints_nothing_but_the_link(folder, capsys, spec):
    status, out, err = run(capsys, "link", "spec.json", "--no-open")
    assert (status, err) == (0, "")
    assert ptoa_package.from_url(out.removesuffix("\n")).to_dict() == spec()


def test_link_goes_to_the_lab_that_the_environment_names(folder, capsys, monkeypatch):
    monkeypatch.setenv("PTA_LAB_URL", "https://lab.example.org/x/")
    assert run(capsys, "link", "spec.json", "--no-open")[1].startswith("https://lab.example.org/x/#s=")


@pytest.mark.parametrize("lab", ["ftp://x/", "http://example.org/", "javascript:alert(1)", "https://a@b/"])
def test_link_refuses_a_lab_that_cannot_be_one(folder, capsys, monkeypatch, lab):
    monkeypatch.setenv("PTA_LAB_URL", lab)
    status, out, err = run(capsys, "link", "spec.json", "--no-open")
    assert (status, out) == (1, "")
    assert "PTA_LAB_URL" in err


def big_spec(spec, groups=3000):
    import random

    letters = random.Random(1)
    extra = [
        {
            "id": f"g{i}",
            "kind": "group",
            "label": "".join(letters.choices("abcdefghijklmnop", k=24)),
            "params": {},
            "inputs": [],
        }
        for i in range(groups)
    ]
    return spec(blocks=spec()["blocks"] + extra)


def test_a_link_over_the_limit_is_printed_and_file_mode_is_named(folder, capsys, spec):
    (folder / "big.json").write_text(json.dumps(big_spec(spec)))
    status, out, err = run(capsys, "link", "big.json", "--no-open")
    assert status == 0
    assert len(out.splitlines()) == 1
    assert len(out) > 32_000
    assert "ptoa save" in err
    assert len(err.splitlines()) == 1


def test_save_prints_the_path_and_keeps_the_spec(folder, capsys, spec):
    status, out, err = run(capsys, "save", "spec.json")
    assert (status, out, err) == (0, "s.pta\n", "")
    assert ptoa_package.load("s.pta")[0].to_dict() == spec()


def test_save_without_a_name_replaces_nothing(folder, capsys):
    assert [run(capsys, "save", "spec.json")[1] for _ in range(3)] == ["s.pta\n", "s-2.pta\n", "s-3.pta\n"]
    (folder / "s-4.pta").symlink_to(folder / "elsewhere")
    assert run(capsys, "save", "spec.json")[1] == "s-5.pta\n"
    assert not (folder / "elsewhere").exists()


def test_save_to_a_given_name_replaces_it(folder, capsys, spec):
    (folder / "o.pta").write_text("old")
    assert run(capsys, "save", "spec.json", "-o", "o.pta")[0] == 0
    assert ptoa_package.load("o.pta")[0].to_dict() == spec()


@pytest.mark.parametrize(
    "name",
    [
        "../../escaped",
        "/abs/x",
        "..\\..\\win",
        ".",
        "..",
        ".hidden",
        "a\x00b",
        "CON",
        "x" * 5000,
        "\x1b[2J",
        "",
        "模型",
        "-rf",
    ],
    ids=lambda name: ascii(name)[:20],
)
def test_save_of_a_strangers_name_stays_in_the_folder(tmp_path, folder, capsys, spec, name):
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    os.chdir(inner)
    (inner / "spec.json").write_text(json.dumps(spec(name=name)))
    status, out, err = run(capsys, "save", "spec.json")
    assert status == 0, err
    made = sorted(names(inner) - {"spec.json"})
    assert len(made) == 1
    assert made[0].endswith(".pta")
    assert not made[0].startswith((".", "-"))
    assert sorted(names(folder)) == ["a", "spec.json"]
    assert not ACTING.search(out)


@pytest.mark.parametrize(
    "output", ["no/such/folder/x.pta", "sub", ""], ids=["no folder", "a folder", "empty"]
)
def test_save_where_nothing_can_be_written_is_status_1(folder, capsys, output):
    (folder / "sub").mkdir()
    status, out, err = run(capsys, "save", "spec.json", "-o", output)
    assert (status, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert output in err
    assert ".tmp" not in err
    assert sorted(names(folder)) == ["spec.json", "sub"]


def test_save_of_a_run_file_says_that_the_frames_stay(folder, capsys, run_text):
    (folder / "run.pta").write_text(run_text())
    status, out, err = run(capsys, "save", "run.pta")
    assert (status, out) == (0, "s.pta\n")
    assert "frames stay" in err


def test_an_error_that_nobody_expected_is_one_line_and_status_1(folder, capsys, monkeypatch):
    monkeypatch.setattr("papertoanything.cli.inspect.read_source", lambda *_, **__: 1 / 0)
    status, out, err = run(capsys, "inspect", "spec.json")
    assert (status, out) == (1, "")
    assert "ZeroDivisionError" in err
    assert len(err.splitlines()) == 1


def test_ctrl_c_is_quiet(folder, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("papertoanything.cli.inspect.read_source", interrupted)
    assert run(capsys, "inspect", "spec.json") == (130, "", "")
