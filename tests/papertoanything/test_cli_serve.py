"""`serve`, `view` and `link` to the local page: addresses on standard output, a clean end on a signal."""

from __future__ import annotations

import contextlib
import json
import re
import select
import signal
import socket
import time
import urllib.request
from pathlib import Path

import pytest


def read_until(child, pattern, seconds=30):
    """What the child prints up to something that matches; fails when it ends or is silent too long."""
    text, end = b"", time.monotonic() + seconds
    while not (found := re.search(pattern, text)):
        ready, _, _ = select.select([child.stdout], [], [], max(0.0, end - time.monotonic()))
        piece = child.stdout.read1(65536) if ready else b""
        if not piece:
            child.kill()
            pytest.fail(f"no {pattern!r} in {text!r}; messages: {child.stderr.read()!r}")
        text += piece
    return found


@pytest.fixture
def server(start, folder):
    """Start a subcommand that serves, and give the child with its port and token."""

    def run(*argv, **env):
        child = start("-m", "papertoanything", *argv, cwd=folder, **env)
        found = read_until(child, rb"127\.0\.0\.1:(\d+)/#token=([\w-]+)")
        child.port, child.token = int(found[1]), found[2].decode()
        return child

    return run


def get(child, path):
    address = f"http://127.0.0.1:{child.port}{path}"
    request = urllib.request.Request(address, headers={"X-PTA-Token": child.token})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read() or b"null")


@contextlib.contextmanager
def tab(child):
    """An open stream of events, its head read."""
    with socket.create_connection(("127.0.0.1", child.port), timeout=10) as stream:
        stream.sendall(
            f"GET /events?token={child.token} HTTP/1.1\r\nHost: 127.0.0.1:{child.port}\r\n\r\n".encode()
        )
        head = b""
        while b"hello" not in head:
            head += stream.recv(65536)
        yield stream


def rest_of(stream):
    """What still comes until the other side closes."""
    text = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := stream.recv(65536):
            text += piece
    return text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
@pytest.mark.parametrize("command", ["serve", "view"])
def test_a_signal_ends_it_with_bye_and_status_0(server, command, number):
    child = server(command, "spec.json", "--no-open")
    with tab(child) as stream:
        child.send_signal(number)
        assert child.wait(10) == 0
        assert b"event: bye" in rest_of(stream)
    assert child.stderr.read() == b""


def test_serve_serves_the_spec(server, spec):
    child = server("serve", "spec.json", "--no-open")
    assert get(child, "/spec")["spec"] == spec()


def test_serve_without_a_source_serves_nothing_yet(server):
    assert get(server("serve", "--no-open"), "/spec") is None


def test_serve_takes_a_fixed_port(server):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert server("serve", "spec.json", "--no-open", "--port", str(port)).port == port


def test_serve_prints_the_lab_that_was_chosen(start, folder):
    child = start(
        "-m",
        "papertoanything",
        "serve",
        "spec.json",
        "--no-open",
        "--lab-url",
        "https://lab.example/",
        cwd=folder,
    )
    read_until(child, rb"https://lab\.example/\?bridge=http://127\.0\.0\.1:\d+&token=[\w-]+")


def test_a_port_that_is_taken_is_status_1_in_one_line(ptoa, folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = ptoa("serve", "spec.json", "--no-open", "--port", str(port), cwd=folder)
    assert (done.status, done.out) == (1, "")
    assert len(done.err.splitlines()) == 1
    assert str(port) in done.err


@pytest.mark.parametrize("lab", ["http://example.org", "local ", "ftp://x"])
def test_a_lab_that_cannot_be_one_is_status_1_in_one_line(ptoa, folder, lab):
    done = ptoa("serve", "spec.json", "--no-open", "--lab-url", lab, cwd=folder)
    assert (done.status, done.out) == (1, "")
    assert len(done.err.splitlines()) == 1


def test_view_of_a_run_file_serves_every_frame(server, folder, run_text):
    (folder / "run.pta").write_text(run_text(50))
    child = server("view", "run.pta", "--no-open")
    assert [frame["step"] for frame in get(child, "/health?since=-1")["frames"]] == list(range(0, 500, 10))


def test_view_of_a_long_run_serves_the_last_frames_and_says_so(server, folder, run_text):
    (folder / "run.pta").write_text(run_text(5100))
    child = server("view", "run.pta", "--no-open")
    steps = [frame["step"] for frame in get(child, "/health?since=-1")["frames"]]
    assert (len(steps), steps[-1]) == (5000, 50_990)
    child.send_signal(signal.SIGINT)
    assert b"5,100 frames" in child.communicate(timeout=10)[1]


def test_view_of_a_pta_serves_its_trace(server, folder, spec):
    import papertoanything as package
    from papertoanything.frames import frame_tensor_from_values

    package.save(
        spec(), "x.pta", trace=package.TraceFrame(7, [frame_tensor_from_values("l0:out", [1], [2.5])])
    )
    assert get(server("view", "x.pta", "--no-open"), "/trace")["step"] == 7


@pytest.mark.parametrize("name", ["nothing.pta", "sub", "text.json"])
def test_view_of_what_it_cannot_read_is_status_1_in_one_line(ptoa, folder, name):
    (folder / "sub").mkdir()
    (folder / "text.json").write_text("hello")
    done = ptoa("view", name, "--no-open", cwd=folder)
    assert (done.status, done.out) == (1, "")
    assert len(done.err.splitlines()) == 1


def test_the_token_is_in_no_argument_list(server):
    """A browser is opened by a file: any user of the machine can read the arguments of a process."""
    child = server("serve", "spec.json", "--no-open")
    arguments = Path(f"/proc/{child.pid}/cmdline")
    if not arguments.exists():
        pytest.skip("needs /proc")
    assert child.token.encode() not in arguments.read_bytes()


def test_a_link_to_the_local_page_stays_answered_until_a_signal(start, folder):
    child = start("-m", "papertoanything", "link", "spec.json", "--no-open", cwd=folder, PTA_LAB_URL="local")
    found = read_until(child, rb"http://127\.0\.0\.1:(\d+)/#s=[\w-]+\n")
    with urllib.request.urlopen(f"http://127.0.0.1:{int(found[1])}/", timeout=10) as page:
        assert page.status == 200
    child.send_signal(signal.SIGTERM)
    assert child.wait(10) == 0
