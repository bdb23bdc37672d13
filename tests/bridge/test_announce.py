"""What is printed: addresses, a command to paste, a hint."""

from __future__ import annotations

import sys

import pytest

from ptoa_bridge.announce import addresses, complain, hint, ssh_line

REMOTE = {
    "plain": ({"SSH_CONNECTION": "1.2.3.4 50000 10.0.0.5 22"}, "ssh -L 80:127.0.0.1:80 ada@10.0.0.5"),
    "other-port": (
        {"SSH_CONNECTION": "1.2.3.4 50000 10.0.0.5 2222"},
        "ssh -p 2222 -L 80:127.0.0.1:80 ada@10.0.0.5",
    ),
    "ipv6": ({"SSH_CONNECTION": "::1 50000 2001:db8::5 22"}, "ssh -L 80:127.0.0.1:80 ada@2001:db8::5"),
    "client-alone": ({"SSH_CLIENT": "1.2.3.4 50000 22"}, "ssh -L 80:127.0.0.1:80 ada@box"),
    "terminal-alone": ({"SSH_TTY": "/dev/pts/0"}, "ssh -L 80:127.0.0.1:80 ada@box"),
    "hub": ({"JUPYTERHUB_USER": "ada"}, "ssh -L 80:127.0.0.1:80 ada@box"),
    "cut-short": ({"SSH_CONNECTION": "1.2.3.4"}, "ssh -L 80:127.0.0.1:80 ada@box"),
    "hostile-address": ({"SSH_CONNECTION": "a b $(reboot) 22"}, "ssh -L 80:127.0.0.1:80 ada@host"),
    "option-as-address": ({"SSH_CONNECTION": "a b -oProxyCommand=x 22"}, "ssh -L 80:127.0.0.1:80 ada@host"),
    "hostile-port": ({"SSH_CONNECTION": "a b 10.0.0.5 22;reboot"}, "ssh -L 80:127.0.0.1:80 ada@10.0.0.5"),
}


@pytest.mark.parametrize(("environ", "line"), REMOTE.values(), ids=REMOTE)
def test_a_remote_session_gets_a_command_to_paste(environ, line):
    assert ssh_line(80, environ, user="ada", machine="box") == line


@pytest.mark.parametrize("environ", [{}, {"SSH_CONNECTION": ""}, {"SSH_AUTH_SOCK": "/tmp/agent"}], ids=str)
def test_a_session_on_this_machine_gets_none(environ):
    assert ssh_line(80, environ, user="ada", machine="box") is None


@pytest.mark.parametrize("name", ["a b", "a;b", "$(a)", "-a", "", "é", "a\nb", "a@b"])
def test_a_name_that_a_shell_would_not_take_is_left_to_fill_in(name):
    assert ssh_line(80, {"SSH_TTY": "x"}, user=name, machine=name) == "ssh -L 80:127.0.0.1:80 user@host"


def test_both_pages_are_named_and_the_local_one_alone_where_it_was_chosen():
    both = addresses(lab_url="https://lab/?x", local_url="http://local/#y", ssh="ssh z")
    assert [line.split()[-1] for line in both.split("\n") if "://" in line] == [
        "https://lab/?x",
        "http://local/#y",
    ]
    assert both.split("\n")[-1] == "  ssh z"
    assert addresses(lab_url=None, local_url="http://local/#y", ssh=None).count("\n") == 0


@pytest.mark.parametrize(
    "word", ["Chrome", "Edge", "Firefox", "Safari", "permission", "remote", "local page", "file mode"]
)
def test_the_hint_names_what_may_be_in_the_way(word):
    assert word in hint(lab=True)
    assert "\n" not in hint(lab=True)


def test_the_hint_for_the_local_page_speaks_of_no_permission():
    assert "permission" not in hint(lab=False)
    assert "file mode" in hint(lab=False)


def test_a_complaint_is_one_harmless_line(capsys):
    complain("a\nb\x1b[2J")
    assert capsys.readouterr().err == "ptoa-bridge: a\\x0ab\\x1b[2J\n"


@pytest.mark.parametrize("stream", [None, "closed"])
def test_a_complaint_without_standard_error_is_no_error(monkeypatch, tmp_path, stream):
    if stream == "closed":
        with open(tmp_path / "err", "w") as stream:
            pass
    monkeypatch.setattr(sys, "stderr", stream)
    complain("a")
