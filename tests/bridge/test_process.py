"""How a process with a bridge ends, is ended, forks, and runs short of files."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from typing import ClassVar

import pytest

START = """
import os, signal, sys, threading, time
from ptoa_bridge import Bridge
# Both are ignored by a job that was started in the background or without a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
BLOCK = {"id": "i0", "kind": "input", "params": {}, "inputs": []}
SPEC = {"v": 1, "name": "s", "blocks": [BLOCK], "output": "i0"}
bridge = Bridge(SPEC).start()
print(bridge.port, bridge.token, flush=True)
"""

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and signals")


def told_bye(tab):
    """Whether the tab's stream ends with bye."""
    return tab.names(until="bye")[-1:] == ["bye"] and tab.next() is None and tab.ended


class TestTheEnd:
    ENDS: ClassVar = {
        "end-of-script": ("", 0),
        "sys.exit": ("sys.exit(0)", 0),
        "sys.exit-3": ("sys.exit(3)", 3),
        "closed-before": ("bridge.close()", 0),
        "never-read-tab": (
            "[bridge.push_health({'step': n, 't': 0, 'loss': None, 'blocks': []}) for n in range(99)]",
            0,
        ),
        "five-bridges": ("others = [Bridge(SPEC).start() for _ in range(5)]", 0),
        "non-daemon-thread": ("threading.Thread(target=lambda: time.sleep(0.2)).start()", 0),
    }

    @pytest.mark.parametrize(("code", "status"), ENDS.values(), ids=ENDS)
    def test_a_script_that_ends_says_bye_and_nothing_else(self, script, code, status):
        one = script(START + "sys.stdin.readline()\n" + code)
        client = one.client()
        tab = client.tab()
        assert tab.next()[0] == "hello"
        one.tell()
        start = time.monotonic()
        assert told_bye(tab)
        assert one.end() == (status, "")
        assert time.monotonic() - start < 5
        tab.close()

    def test_a_script_that_fails_says_bye_and_shows_its_own_error_alone(self, script):
        one = script(START + "sys.stdin.readline()\nraise KeyError('mine')")
        tab = one.client().tab()
        one.tell()
        assert told_bye(tab)
        status, err = one.end()
        assert (status, err.strip().split("\n")[-1]) == (1, "KeyError: 'mine'")
        assert "ptoa" not in err
        tab.close()

    @posix
    def test_ctrl_c_says_bye(self, script):
        one = script(START + "time.sleep(60)")
        tab = one.client().tab()
        assert tab.next()[0] == "hello"
        one.process.send_signal(signal.SIGINT)
        assert told_bye(tab)
        status, err = one.end()
        assert err.strip().split("\n")[-1] == "KeyboardInterrupt"
        assert status in (1, 130, -signal.SIGINT)
        tab.close()

    @posix
    def test_ctrl_c_ends_serve_forever_quietly(self, script):
        one = script(
            START + "wait = bridge._closed.wait\n"
            "bridge._closed.wait = lambda seconds: print('waits', flush=True) or wait(60)\n"
            "bridge.serve_forever()\nprint('after', flush=True)"
        )
        tab = one.client().tab()
        assert tab.next()[0] == "hello"
        assert one.line() == "waits"
        one.process.send_signal(signal.SIGINT)
        assert told_bye(tab)
        assert one.line() == "after"
        assert one.end() == (0, "")
        tab.close()


@posix
class TestEndingSignals:
    ENDING = pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])

    @ENDING
    @pytest.mark.parametrize(
        "busy", ["time.sleep(60)", "while True: pass", "while True: bridge.push_health(F)"]
    )
    def test_it_says_bye_and_ends_the_process_as_it_would_have(self, script, busy, name):
        one = script(START + f"F = {{'step': 1, 't': 0, 'loss': None, 'blocks': []}}\n{busy}")
        tab = one.client().tab()
        assert tab.next()[0] == "hello"
        one.process.send_signal(getattr(signal, name))
        assert tab.names(until="bye", timeout=8)[-1:] == ["bye"]
        assert one.end() == (-getattr(signal, name), "")
        tab.close()

    def test_tabs_are_told_even_when_the_bridge_cannot_be_closed_in_full(self, script):
        """As when the main thread was interrupted while it held the lock of the queue of frames."""
        one = script(
            START + "bridge.push_health({'step': 1, 't': 0, 'loss': None, 'blocks': []})\n"
            "bridge._pump.close = lambda timeout: threading.Event().wait()\n"
            "print('stuck', flush=True)\ntime.sleep(60)"
        )
        tab = one.client().tab()
        assert one.line() == "stuck"
        one.process.send_signal(signal.SIGTERM)
        assert tab.names(until="bye", timeout=8)[-1:] == ["bye"]
        assert one.end() == (-signal.SIGTERM, "")
        tab.close()

    @ENDING
    def test_a_handler_of_the_users_is_left_alone(self, script, name):
        code = START.replace(
            "bridge = ",
            f"mine = lambda *_: print('mine', flush=True)\nsignal.signal(signal.{name}, mine)\nbridge = ",
        )
        one = script(
            code + "time.sleep(60) if not sys.stdin.readline() else 0\nbridge.close()\n"
            f"print(signal.getsignal(signal.{name}) is mine, flush=True)"
        )
        one.client()
        one.process.send_signal(getattr(signal, name))
        assert one.line() == "mine"
        one.tell()
        assert one.line() == "True"
        assert one.end()[0] == 0

    @ENDING
    def test_ours_goes_away_with_the_last_bridge(self, script, name):
        one = script(
            START + f"default = lambda: signal.getsignal(signal.{name}) is signal.SIG_DFL\n"
            "other = Bridge().start()\nseen = [default()]\nbridge.close()\nseen.append(default())\n"
            "other.close()\nseen.append(default())\n"
            f"last = Bridge().start()\nsignal.signal(signal.{name}, signal.SIG_IGN)\nlast.close()\n"
            f"seen.append(signal.getsignal(signal.{name}) is signal.SIG_IGN)\nprint(seen, flush=True)"
        )
        one.client()
        assert one.line() == "[False, False, True, True]"

    @ENDING
    def test_a_bridge_started_in_a_thread_sets_no_handler(self, script, name):
        one = script(
            "import signal, threading\nfrom ptoa_bridge import Bridge\nbridges = []\n"
            "thread = threading.Thread(target=lambda: bridges.append(Bridge().start()))\nthread.start()\n"
            "thread.join()\n"
            f"print(signal.getsignal(signal.{name}) is signal.SIG_DFL, flush=True)"
        )
        assert one.line() == "True"
        assert one.end() == (0, "")


@posix
class TestFork:
    def test_the_port_is_free_once_the_parent_closes_it(self, script):
        one = script(
            START + "pid = os.fork()\nif not pid:\n    time.sleep(30)\n    os._exit(0)\n"
            "print(pid, flush=True)\nsys.stdin.readline()\nbridge.close()\n"
            "print('closed', flush=True)\nsys.stdin.readline()"
        )
        client = one.client()
        pid = int(one.line())
        try:
            tab = client.tab()
            assert tab.next()[0] == "hello"
            one.tell()
            assert one.line() == "closed"
            assert told_bye(tab)
            with pytest.raises(ConnectionRefusedError):
                client.connect(timeout=1)
            tab.close()
        finally:
            os.kill(pid, signal.SIGKILL)
        one.tell()
        assert one.end() == (0, "")

    def test_a_tab_of_before_the_fork_gets_its_end_although_the_child_lives(self, script):
        one = script(
            START
            + "sys.stdin.readline()\npid = os.fork()\nif not pid:\n    time.sleep(30)\n    os._exit(0)\n"
            "print(pid, flush=True)\nbridge.close()\nsys.stdin.readline()"
        )
        tab = one.client().tab()
        assert tab.next()[0] == "hello"
        one.tell()
        pid = int(one.line())
        try:
            assert told_bye(tab)
        finally:
            os.kill(pid, signal.SIGKILL)
        tab.close()

    def test_a_child_has_no_socket_no_lock_and_no_say(self, script):
        """The child's calls return at once, whatever the parent's threads held when it forked."""
        one = script(
            START
            + """
frame = {"step": 1, "t": 0.0, "loss": None, "blocks": []}
stop = threading.Event()
def push():
    while not stop.is_set():
        bridge.push_health(frame)
        time.sleep(0.0001)
pushing = threading.Thread(target=push)
pushing.start()
statuses = []
for _ in range(20):
    pid = os.fork()
    if not pid:
        signal.alarm(10)
        files = [f"/proc/self/fd/{fd}" for fd in range(3, 40)]
        links = [os.readlink(file) for file in files if os.path.exists(file)]
        bad = [link for link in links if "socket" in link or "eventpoll" in link]
        bridge.push_health(frame)
        bridge.push({"step": 1, "tensors": []})
        bridge.set_spec(SPEC)
        bridge.health_since(-1)
        repr(bridge)
        bridge.close()
        bridge.close()
        os._exit(5 if bad else 0)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
stop.set()
pushing.join()
print(statuses, flush=True)
sys.stdin.readline()
"""
        )
        client = one.client()
        tab = client.tab()
        assert tab.next()[0] == "hello"
        assert one.line() == str([0] * 20)
        assert client.get("/spec").status == 200
        one.tell()
        assert told_bye(tab)
        assert one.end() == (0, "")
        tab.close()

    def test_sigterm_ends_a_child_on_the_spot(self, script):
        one = script(
            START + "pid = os.fork()\nif not pid:\n    time.sleep(30)\n    os._exit(7)\n"
            "os.kill(pid, signal.SIGTERM)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)\nsys.stdin.readline()"
        )
        client = one.client()
        assert one.line() == str(-signal.SIGTERM)
        assert client.get("/spec").status == 200

    def test_a_child_that_ends_as_python_ends_disturbs_no_tab(self, script):
        one = script(
            START + "sys.stdin.readline()\npid = os.fork()\nif not pid:\n    sys.exit(0)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)\nsys.stdin.readline()"
        )
        client = one.client()
        tab = client.tab()
        assert tab.next()[0] == "hello"
        one.tell()
        assert one.line() == "0"
        assert tab.next(0.3) is None
        assert not tab.ended
        one.tell()
        assert told_bye(tab)
        assert one.end() == (0, "")
        tab.close()

    def test_a_module_that_was_loaded_twice_does_not_stop_a_fork(self, script):
        one = script(
            START + "import importlib, ptoa_bridge.process\n"
            "importlib.reload(ptoa_bridge.process)\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    os._exit(7)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)\n"
            "bridge.close()\n"
        )
        one.client()
        assert one.line() == "7"
        assert one.end() == (0, "")

    def test_a_child_may_start_a_bridge_of_its_own(self, script):
        one = script(
            START + "pid = os.fork()\nif not pid:\n"
            "    try:\n        bridge.start()\n    except ValueError:\n        pass\n"
            "    with Bridge(SPEC) as own:\n        print(own.port, own.token, flush=True)\n"
            "        sys.stdin.readline()\n"
            "    os._exit(0)\nos.waitpid(pid, 0)"
        )
        parent, child = one.client(), one.client()
        assert parent.get("/spec").status == child.get("/spec").status == 200
        assert parent.port != child.port
        one.tell()
        assert one.end() == (0, "")


@posix
class TestShortOfFiles:
    def test_two_hundred_idle_connections_leave_the_process_its_files(self, script):
        one = script(
            "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))\n"
            + START
            + """
sys.stdin.readline()
files = [open(os.devnull) for _ in range(40)]
used = time.process_time()
time.sleep(1)
print(time.process_time() - used < 0.5, flush=True)
sys.stdin.readline()
"""
        )
        client = one.client()
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                with contextlib.suppress(OSError):
                    stack.enter_context(contextlib.closing(client.connect(timeout=0.2)))
            one.tell()
            assert one.line() == "True"
        assert client.get("/spec").status == 200

    def test_a_process_without_a_single_file_left_does_not_spin_and_comes_back(self, script):
        one = script(
            "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
            + START
            + """
files = []
try:
    while True:
        files.append(open(os.devnull))
except OSError:
    pass
print("full", flush=True)
sys.stdin.readline()
used = time.process_time()
time.sleep(1)
spent = time.process_time() - used
files.clear()
print(spent < 0.5, flush=True)
sys.stdin.readline()
"""
        )
        client = one.client()
        assert one.line() == "full"
        waiting = client.connect()
        waiting.sendall(client.head(f"/spec?token={client.token}"))
        one.tell()
        assert one.line() == "True"
        assert waiting.recv(1 << 16).startswith(b"HTTP/1.1 200")
        waiting.close()
        one.tell()
        assert one.end() == (0, "")


@posix
def test_a_client_that_goes_does_not_end_a_process_with_the_default_sigpipe(script, tools):
    one = script(
        "import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        + START
        + "blocks = [{'id': 'x' * 20000}]\n"
        "for n in range(300): bridge.push_health({'step': n, 't': 0.0, 'loss': None, 'blocks': blocks})\n"
        "bridge.health_since(-1)\nprint('ready', flush=True)\nsys.stdin.readline()\nsys.stdin.readline()"
    )
    client = one.client()
    assert one.line() == "ready"
    for _ in range(10):
        sock = client.connect(rcvbuf=4096)
        sock.sendall(client.head(f"/health?token={client.token}"))
        sock.recv(10)
        sock.shutdown(socket.SHUT_WR)  # after this end, a reset makes the next send a broken pipe
        tools.reset(sock)
    one.tell()
    assert client.get("/spec").status == 200
    one.tell()
    assert one.end() == (0, "")


def test_importing_starts_nothing(script):
    one = script(
        "import socket, threading, sys\nmade = []\n"
        "init = socket.socket.__init__\n"
        "socket.socket.__init__ = lambda *a, **k: (made.append(1), init(*a, **k))[1]\n"
        "import ptoa_bridge\n"
        "print(threading.active_count(), made, 'torch' in sys.modules, flush=True)"
    )
    assert one.line() == "1 [] False"
    assert one.end() == (0, "")


def test_the_bridge_runs_without_standard_streams(script):
    one = script(
        START + "sys.stdout.flush()\nsys.stdin.readline()\nsys.stderr = sys.stdout = None\nbridge.announce()"
    )
    client = one.client()
    assert client.get("/spec").status == 200
    one.tell()
    assert one.end() == (0, "")
