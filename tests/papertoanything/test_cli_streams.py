"""The command in odd places: closed pipes, full disks, narrow encodings, terminals of every size."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

linux = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
COMMAND = [sys.executable, "-m", "papertoanything"]


def shell(line, cwd, **env):
    """Run a line of shell in which `$PTOA` is the command."""
    environment = {**os.environ, "PTOA": " ".join(COMMAND), "PTA_NO_BROWSER": "1", **env}
    environment.pop("PYTHONUNBUFFERED", None)  # what is still buffered at the end is half of the trouble
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, cwd=cwd, env=environment, timeout=60
    )


@pytest.fixture
def many(folder, spec):
    """A spec whose table is larger than a pipe's buffer."""
    blocks = [
        {"id": f"l{i}", "kind": "linear", "label": "x" * 60, "params": {}, "inputs": []} for i in range(5000)
    ]
    (folder / "many.json").write_text(json.dumps(spec(blocks=blocks, output="l0")))
    return folder


@pytest.mark.parametrize(
    "arguments", ["inspect many.json", "inspect many.json --json", "--help", "inspect spec.json"]
)
def test_a_reader_that_leaves_early_is_no_error(many, arguments):
    done = shell(f"set -o pipefail; $PTOA {arguments} | head -n 1", many)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_a_reader_that_is_gone_at_once_is_no_error(many):
    done = shell("$PTOA inspect many.json | true; exit ${PIPESTATUS[0]}", many)
    assert (done.returncode, done.stderr) == (0, "")


@linux
@pytest.mark.parametrize(
    "arguments",
    [
        "inspect spec.json",
        "inspect many.json",
        "inspect spec.json --json",
        "link spec.json --no-open",
        "--version",
        "--help",
        "inspect --help",
        "",
    ],
)
def test_a_full_disk_is_status_1_in_one_line(many, arguments):
    done = shell(f"$PTOA {arguments} >/dev/full", many)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "No space left" in done.stderr


@linux
def test_help_that_does_not_fit_is_status_1_without_a_buffer_too(folder):
    done = shell("PYTHONUNBUFFERED=1 $PTOA --help >/dev/full", folder)
    assert done.returncode == 1
    assert "No space left" in done.stderr


@pytest.mark.parametrize("arguments", ["inspect spec.json", "--version", "--help", "save --help"])
def test_a_closed_standard_output_is_status_1(folder, arguments):
    done = shell(f"$PTOA {arguments} >&-", folder)
    assert done.returncode == 1
    assert done.stderr == "ptoa: there is no standard output\n"


def test_a_closed_standard_error_changes_nothing(folder):
    done = shell("$PTOA inspect spec.json 2>&-", folder)
    assert done.returncode == 0
    assert "l0" in done.stdout


def test_messages_that_nobody_reads_leave_the_status_as_it_is(folder):
    assert shell("$PTOA inspect nothing.json 2>/dev/full", folder).returncode == 1


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8", "utf-16"])
@pytest.mark.parametrize(
    "arguments",
    [["inspect", "cjk.json"], ["inspect", "cjk.json", "--json"], ["link", "cjk.json", "--no-open"]],
    ids=" ".join,
)
def test_every_encoding_of_the_terminal_does(ptoa, folder, spec, encoding, arguments):
    named = spec(name="模型 — ü \U0001f600")
    (folder / "cjk.json").write_text(json.dumps(named))
    done = ptoa(*arguments, cwd=folder, PYTHONIOENCODING=encoding)
    assert (done.status, done.err) == (0, "")
    if "--json" in arguments and encoding in ("ascii", "utf-8"):
        assert json.loads(done.out) == named


def test_an_error_message_can_be_printed_in_ascii(ptoa, folder):
    done = ptoa("inspect", "模型.json", cwd=folder, PYTHONIOENCODING="ascii")
    assert done.status == 1
    assert "\\u6a21" in done.err


def in_terminal(argv, cwd, columns, rows=24, **env):
    """Run the command on a pseudo-terminal of a size; gives its status and what the terminal got."""
    import fcntl
    import pty
    import struct
    import termios

    environment = {**os.environ, "PTA_NO_BROWSER": "1", "TERM": "xterm", **env}
    environment = {k: v for k, v in environment.items() if k not in ("COLUMNS", "LINES") and v is not None}
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    child = subprocess.Popen(
        [*COMMAND, *argv], stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=environment
    )
    os.close(slave)
    got = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # Linux ends a terminal whose last writer left with EIO
            break
        if not piece:
            break
        got += piece
    os.close(master)
    return child.wait(60), got.decode("utf-8", "replace")


@linux
@pytest.mark.parametrize("columns", [0, 1, 10, 40, 80, 300])
def test_the_table_fits_a_terminal_of_any_width(many, columns):
    status, text = in_terminal(["inspect", "spec.json"], many, columns, NO_COLOR="1")
    assert status == 0
    table = text.replace("\r\n", "\n").partition("\n\n")[0]
    assert max(map(len, table.splitlines())) <= (columns or 80)


@linux
def test_colours_are_for_terminals_that_want_them(folder):
    assert "\x1b[1m" in in_terminal(["inspect", "spec.json"], folder, 80, NO_COLOR=None)[1]
    assert "\x1b" not in in_terminal(["inspect", "spec.json"], folder, 80, NO_COLOR="1")[1]
    assert "\x1b" not in in_terminal(["inspect", "spec.json"], folder, 80, NO_COLOR=None, TERM="dumb")[1]


@linux
def test_on_a_terminal_only_our_own_styles_are_escapes(folder, spec):
    (folder / "evil.json").write_text(
        json.dumps(
            spec(
                name="\x1b[2J\x9b1m",
                blocks=[
                    {
                        "id": "l0\x1b[5m",
                        "kind": "k\x1b]0;t\x07",
                        "label": "\x1b[1A",
                        "params": {"p\x1b[0m": "\x85"},
                        "inputs": [],
                    },
                ],
                output="l0\x1b[5m",
            )
        )
    )
    status, text = in_terminal(["inspect", "evil.json"], folder, 120, NO_COLOR=None)
    assert status == 0
    assert not re.search("[\x00-\x09\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]", text)
    assert set(re.findall("\x1b.{0,3}", text)) <= {"\x1b[1m", "\x1b[2m", "\x1b[36", "\x1b[0m"}


@linux
def test_save_on_a_terminal_says_what_the_file_lacks(folder):
    _, text = in_terminal(["save", "spec.json"], folder, 80)
    assert "--input-shape" in text
