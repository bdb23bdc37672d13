"""A started bridge, clients that speak bytes, and scripts in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import time

import pytest

from ptoa_bridge import Bridge

SPEC = {
    "v": 1,
    "name": "s",
    "blocks": [
        {"id": "t0", "kind": "tokens", "params": {"vocab": 4}, "inputs": []},
        {"id": "l0", "kind": "linear", "params": {"in": 4, "out": 4}, "inputs": ["t0"]},
    ],
    "output": "l0",
    "origin": {"kind": "torch"},
}


class Answer:
    """A raw answer, taken apart without the library's own code."""

    def __init__(self, raw):
        self.raw = raw
        head, _, self.body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1]) if lines[0].startswith("HTTP/1.1 ") else 0
        pairs = [line.partition(": ") for line in lines[1:]]
        self.names = [name.lower() for name, _, _ in pairs]
        self.headers = {name.lower(): value for name, _, value in pairs}

    def json(self):
        return json.loads(self.body)


# From 3.12 on Python says so whenever a process with threads forks, which these tests do on purpose.
FORK_WARNING = "ignore:This process:DeprecationWarning"

_opened = []


class Client:
    """Talks to one bridge."""

    def __init__(self, port, token):
        self.port, self.token = port, token

    def connect(self, *, rcvbuf=None, timeout=5):
        sock = socket.socket()
        _opened.append(sock)
        if rcvbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        sock.settimeout(timeout)
        sock.connect(("127.0.0.1", self.port))
        return sock

    def head(self, target, headers=(), method="GET", host=None, version="HTTP/1.1"):
        host = f"127.0.0.1:{self.port}" if host is None else host
        pairs = [("Host", host), *(headers.items() if isinstance(headers, dict) else headers)]
        lines = [f"{method} {target} {version}", *(f"{name}: {value}" for name, value in pairs)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def raw(self, data, timeout=10):
        """What comes back until the bridge closes."""
        with contextlib.closing(self.connect(timeout=timeout)) as sock:
            with contextlib.suppress(ConnectionError):
                sock.sendall(data)
            return Answer(read_all(sock))

    def ask(self, target, headers=(), **kw):
        return self.raw(self.head(target, headers, **kw))

    def get(self, path, headers=(), **kw):
        mark = "&" if "?" in path else "?"
        return self.ask(f"{path}{mark}token={self.token}", headers, **kw)

    def tab(self, headers=(), rcvbuf=None):
        return Tab(self, headers, rcvbuf)


class Tab:
    """A client of /events."""

    def __init__(self, client, headers, rcvbuf):
        self.sock = client.connect(rcvbuf=rcvbuf)
        self.sock.sendall(client.head(f"/events?token={client.token}", headers))
        self.buffer = b""
        self.ended = False
        while b"\r\n\r\n" not in self.buffer and self._more(time.monotonic() + 5):
            pass
        self.answer = Answer(self.buffer)
        self.buffer = self.answer.body
        self.status = self.answer.status

    def _more(self, deadline):
        self.sock.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            data = self.sock.recv(1 << 18)
        except TimeoutError:
            return False
        except ConnectionError:
            data = b""
        self.buffer += data
        self.ended = self.ended or not data
        return bool(data)

    def next(self, timeout=5):
        """(event, id, data) or None at the end or when nothing comes; comments are skipped."""
        deadline = time.monotonic() + timeout
        while True:
            block, found, rest = self.buffer.partition(b"\n\n")
            if found:
                self.buffer = rest
                fields = dict(
                    line.split(b": ", 1) for line in block.split(b"\n") if not line.startswith(b":")
                )
                if b"data" in fields:
                    step = fields.get(b"id")
                    return fields[b"event"].decode(), None if step is None else int(step), fields[b"data"]
            elif self.ended or time.monotonic() > deadline or not self._more(deadline):
                return None

    def steps(self, count, timeout=10):
        """The ids of the next health events."""
        found = []
        while len(found) < count:
            event = self.next(timeout)
            if event is None:
                break
            if event[0] == "health":
                found.append(event[1])
        return found

    def names(self, until, timeout=5):
        """The names of the events up to one of this name."""
        found = []
        while not found or found[-1] != until:
            event = self.next(timeout)
            if event is None:
                break
            found.append(event[0])
        return found

    def close(self):
        self.sock.close()


def read_all(sock):
    parts = []
    with contextlib.suppress(ConnectionError, TimeoutError):
        while data := sock.recv(1 << 18):
            parts.append(data)
    return b"".join(parts)


def reset(sock):
    """Close with RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def wait_until(look, seconds=10):
    """Poll until `look` is true; whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def frame(step, **fields):
    return {"step": step, "t": 1.0, "loss": 0.5, "blocks": [], **fields}


def padded(step, size):
    pattern = {"head": 0, "size": 1, "b64": "A" * size}
    return frame(step, blocks=[{"id": "t0", "headPattern": [pattern]}])


class Script:
    """A Python process; `say` waits for its next line."""

    def __init__(self, code, env):
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PTA_NO_BROWSER": "1", "PYTHONWARNINGS": FORK_WARNING, **env},
            text=True,
        )

    def line(self):
        return self.process.stdout.readline().strip()

    def client(self):
        port, token = self.line().split()
        return Client(int(port), token)

    def tell(self, text="go"):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def end(self, timeout=20):
        """Exit status and what was written to standard error."""
        _, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, err


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    """No test opens a browser, and none sees the settings of who runs it."""
    for name in ("PTA_LAB_URL", "PTA_DEBUG", "BROWSER", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PTA_NO_BROWSER", "1")


@pytest.fixture(autouse=True)
def _closed_sockets():
    """Sockets that a failed test leaves open would fail the next one."""
    yield
    while _opened:
        _opened.pop().close()


@pytest.fixture
def spec():
    return json.loads(json.dumps(SPEC))


@pytest.fixture
def bridge(spec):
    with Bridge(spec) as running:
        yield running


@pytest.fixture
def client(bridge):
    return Client(bridge.port, bridge.token)


@pytest.fixture
def make_client():
    return lambda bridge: Client(bridge.port, bridge.token)


@pytest.fixture
def script():
    """Starts scripts, and ends those that a failed test leaves."""
    started = []

    def start(code, **env):
        started.append(Script(code, env))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


@pytest.fixture
def tools():
    """Functions that several test files use."""

    class Tools:
        frame = staticmethod(frame)
        padded = staticmethod(padded)
        read_all = staticmethod(read_all)
        reset = staticmethod(reset)
        wait_until = staticmethod(wait_until)
        answer = Answer

    return Tools
