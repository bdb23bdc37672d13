"""The bridge: what a training run pushes on one side, what a browser tab reads on the other.

Three threads meet here. The caller's thread puts frames into a queue and goes on training.
The pump's thread encodes each frame once and stores it. The server's thread owns the sockets
and the order of events; the others hand it small actions and never wait for it.
"""

from __future__ import annotations

import errno
import getpass
import os
import re
import secrets
import socket
import sys
import threading
from collections import deque
from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from ptoa_core.encoded import EncodedFrame, encode_frame, encode_trace
from ptoa_core.errors import FrameError, SettingError
from ptoa_core.frames import BridgeHello, TraceFrame
from ptoa_core.history import FrameHistory
from ptoa_core.jsontext import dumps
from ptoa_core.labs import resolve_lab
from ptoa_core.protocol import (
    BRIDGE_PROTOCOL,
    DEV_ORIGIN,
    ENV_DEBUG,
    LAB_ORIGIN,
    MAX_INTEGER,
    PROTOCOL_VERSION,
    producer,
)
from ptoa_core.pump import FramePump
from ptoa_core.spec import ModelSpec
from ptoa_core.terminal import shown

from .announce import HINT_SECONDS, addresses, complain, hint, say, ssh_line
from .browser import open_in_browser
from .events import EventLog
from .http import RequestError
from .page import read_pages
from .process import discharge, enlist
from .routes import Content, is_known, respond
from .server import Server, making_sockets, places_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from typing_extensions import Self

    from ptoa_core.frames import HealthFrame

    from .http import Request
    from .server import Places

__all__ = ["Bridge"]

# How each loopback name is bound and written in an address.
_HOSTS = {
    "127.0.0.1": (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
    "localhost": (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
    "::1": (socket.AF_INET6, "::1", "[::1]"),
    "[::1]": (socket.AF_INET6, "::1", "[::1]"),
}

_PUMP_SECONDS = 1.0
_GRACE_SECONDS = 1.0
_JOIN_SECONDS = 1.6
_SETTLE_SECONDS = 3.0
_BACKLOG = 128
_TRACES_WAITING = 32

# A frame that is none: the sink meets it when everything pushed before it is stored.
_MARK_STEP = -1


class Bridge:
    """A loopback server that shows a model and its training to this machine's own browser.

    It listens on a loopback address only, answers only requests with its token, and only
    pages of its own, of the hosted Lab, and of a Lab that the user set. ``push`` and
    ``push_health`` return at once, whatever the tabs do.

    Args:
        spec: The model to show, an object or its JSON object; it can come later.
        lab_url: The Lab to open: an address, or ``local`` for the page that the bridge
            itself serves. Default: ``PTA_LAB_URL``, else the hosted Lab.
        host: A loopback name: ``127.0.0.1``, ``localhost`` or ``::1``.
        port: A fixed port, or 0 for a free one.
        token: The session's token, of url-safe characters. Default: 256 random bits.
        name: What the bridge's threads and its ``repr`` are called.

    Raises:
        SettingError: If ``host`` is no loopback name, ``port`` is no port, or ``token`` or
            ``lab_url`` cannot be used.
        FormatError: If ``spec`` is no spec, or cannot be said in JSON.

    Source:
        FORMATS.md, section 7; README.md, "Privacy".

    Example:
        >>> with Bridge(lab_url="local") as bridge:
        ...     bridge.local_url.startswith(f"http://127.0.0.1:{bridge.port}/#token=")
        True
    """

    def __init__(
        self,
        spec: ModelSpec | Mapping[str, Any] | None = None,
        lab_url: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        name: str | None = None,
    ) -> None:
        """Check the settings; no socket is opened and no thread started before ``start``."""
        self._lab = resolve_lab(lab_url)
        self._host = _checked_host(host)
        self._port = _checked_port(port)
        self._token = secrets.token_urlsafe(32) if token is None else _checked_token(token)
        self._name = name or "ptoa-bridge"
        self._spec: ModelSpec | None = None
        self._spec_text = b""
        self._trace: TraceFrame | Mapping[str, Any] | None = None
        self._traces: deque[list[TraceFrame | Mapping[str, Any]]] = deque()
        self._history = FrameHistory()
        self._log: EventLog | None = None
        self._server: Server | None = None
        self._pump: FramePump | None = None
        self._mark_asked = 0
        self._mark_stored = 0
        self._abandoned = False
        self._closing = False
        self._closed = threading.Event()
        if spec is not None:
            self._spec, self._spec_text = _read_spec(spec)

    # -- life

    def start(self) -> Self:
        """Open the port and serve from a daemon thread; returns the bridge itself.

        On the main thread, where nobody handles SIGTERM or SIGHUP, a handler is set that closes
        the bridge before the signal ends the process. A second call does nothing.

        Raises:
            OSError: If the port is taken or not allowed; the message names it.
            SettingError: If the bridge was closed, or belongs to the process that forked.
        """
        with making_sockets:
            if self._closing or self._abandoned:
                raise SettingError("this bridge is closed; make a new one")
            if self._server is not None:
                return self
            listener = self._listen()
            try:
                server = self._make_server(listener)
            except OSError:
                listener.close()
                raise
            self._port = listener.getsockname()[1]
            server.start()
            self._server = server
            enlist(self)
        if self._spec is not None:
            self._announce_spec(self._spec_text)
        if self._trace is not None:
            self._queue_trace(server, self._trace)
        return self

    def close(self) -> None:
        """Say ``bye`` to every tab, close the port and end the threads, within 3 seconds.

        May be called again, and from any thread. Frames that were pushed before are still
        sent. What is pushed afterwards is dropped. In a forked child it does nothing.
        """
        if self._abandoned:
            return
        if self._closing:
            self._closed.wait(_PUMP_SECONDS + _JOIN_SECONDS)
            return
        self._closing = True
        # Ctrl+C during one wait must not leave undone what comes after it.
        try:
            with making_sockets:
                pump = self._pump
            if pump is not None:
                pump.close(_PUMP_SECONDS)
        finally:
            try:
                if self._server is not None:
                    self._server.stop(_GRACE_SECONDS, _JOIN_SECONDS)
            finally:
                self._closed.set()
                discharge(self)

    def serve_forever(self) -> None:
        """Start, then wait until the bridge is closed; Ctrl+C closes it and returns."""
        try:
            self.start()
            # In steps, as a wait without end cannot be interrupted on every system.
            while not self._closed.wait(0.5):
                pass
        except KeyboardInterrupt:
            self.close()

    def hang_up(self) -> None:
        """Say ``bye`` and close the port, without waiting for frames that are still queued."""
        self._closing = True
        if self._server is not None and not self._abandoned:
            self._server.stop(_GRACE_SECONDS, _JOIN_SECONDS)

    def abandon(self) -> None:
        """In the child of a fork: let go of the parent's sockets and do nothing from then on."""
        self._abandoned = True
        if self._server is not None:
            self._server.abandon()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def __repr__(self) -> str:
        """Name and state, without the token: notebooks save what they show."""
        if self._abandoned or self._closing:
            return f"<{type(self).__name__} {self._name}: closed>"
        return f"<{type(self).__name__} {self._name}: {self.origin if self._server else 'not started'}>"

    # -- addresses

    @property
    def port(self) -> int:
        """The port; before ``start`` the one that was asked for, 0 for a free one."""
        return self._port

    @property
    def token(self) -> str:
        """The session's token."""
        return self._token

    @property
    def origin(self) -> str:
        """Scheme, host and port of the local page; the port is 0 before ``start``."""
        return f"http://{self._host[2]}:{self._port}"

    @property
    def local_url(self) -> str:
        """The local page's address; the token is in the fragment, which no browser sends."""
        return f"{self.origin}/#token={self._token}"

    @property
    def url(self) -> str:
        """The address to open in the Lab that the user chose.

        For the local page it is ``local_url``. For any other Lab the address carries the
        bridge and the token in its query, which the Lab's server sees when the page loads.
        """
        if self._lab.local:
            return self.local_url
        return f"{self._lab.url}?bridge={self.origin}&token={self._token}"

    # -- what the tabs are given

    @property
    def spec(self) -> ModelSpec | None:
        """The model that is shown, if there is one yet."""
        return self._spec

    @property
    def history(self) -> FrameHistory:
        """The frames that are kept for tabs which come late."""
        return self._history

    @property
    def _subs(self) -> Collection[object]:
        """The tabs that read events at the moment."""
        return self._server.tabs if self._server is not None else ()

    def hello(self) -> BridgeHello | None:
        """What a tab is told first; ``None`` before there is a spec.

        Example:
            >>> Bridge().hello() is None
            True
        """
        return None if self._spec is None else BridgeHello(self._spec, producer())

    def set_spec(self, spec: ModelSpec | Mapping[str, Any]) -> None:
        """Show another model, or the first one, and tell every tab.

        Args:
            spec: A spec or its JSON object.

        Raises:
            FormatError: If it is no spec, or cannot be said in JSON.
        """
        if self._ended():
            return
        self._spec, self._spec_text = _read_spec(spec)
        if self._server is not None:
            self._announce_spec(self._spec_text)

    def begin(self, spec: ModelSpec | Mapping[str, Any]) -> None:
        """Begin a new watch: forget frames and trace of the one before, and show its model.

        Args:
            spec: A spec or its JSON object.

        Raises:
            FormatError: If it is no spec, or cannot be said in JSON.

        Source:
            FORMATS.md, section 7: history is cleared and ``spec`` is sent.
        """
        if self._ended():
            return
        model, text = _read_spec(spec)
        if self._pump is not None:
            self._pump.flush(_PUMP_SECONDS)
        self._history.clear()
        self._trace = None
        self._spec, self._spec_text = model, text
        if self._server is not None:
            self._server.call(self._restart)
            self._announce_spec(text)

    def push(self, frame: TraceFrame | Mapping[str, Any]) -> None:
        """Show a recorded forward pass; returns at once.

        When many are pushed faster than they can be encoded, the oldest of them are left out.

        Args:
            frame: A trace frame or its JSON object. Its list of tensors is copied; the
                tensors must not change afterwards.

        Raises:
            FrameError: If it is neither, its step is no integer of at least 0, or its tensors
                are no list.
        """
        if self._ended():
            return
        kept = _kept_trace(frame)
        self._trace = kept
        if self._server is not None:
            self._queue_trace(self._server, kept)

    def push_health(self, frame: HealthFrame | EncodedFrame | Mapping[str, Any]) -> None:
        """Show a training step; returns at once.

        The frame is queued; a thread of the bridge encodes it. When that cannot keep up, the
        frame is dropped rather than training delayed.

        Args:
            frame: A health frame, its JSON object, or one that is encoded already. Its list
                of blocks is copied; the blocks must not change afterwards.
        """
        if self._ended():
            return
        pump = self._pump or self._start_pump()
        if pump is not None:
            pump.push_health(frame)

    def _start_pump(self) -> FramePump | None:
        """The pump, made by the first frame from whichever thread; ``None`` after the end."""
        # A lock that no child of a fork finds held.
        with making_sockets:
            if self._pump is None and not self._ended():
                self._pump = FramePump([_Store(self._take)], on_error=_report, name=f"{self._name}-pump")
            return self._pump

    def health_since(self, since: int) -> list[str]:
        """The JSON of every kept frame with a step above ``since``, oldest first.

        Args:
            since: The last step that is known already; -1 for all.

        Example:
            >>> bridge = Bridge()
            >>> bridge.push_health({"step": 7, "t": 0.0, "loss": 1.5, "blocks": []})
            >>> bridge.health_since(-1)
            ['{"step":7,"t":0.0,"loss":1.5,"blocks":[]}']
        """
        if self._pump is not None and not self._abandoned:
            self._pump.flush(_SETTLE_SECONDS)
        return [text.decode("utf-8") for text in self._history.iter_since(since)]

    # -- what the user is told

    def announce(self, *, open_browser: bool = True, file: TextIO | None = None) -> None:
        """Print where to look, and open the page that the user chose.

        Prints the Lab's address and the local page's, and a ready ``ssh -L`` line when the
        session looks remote. When no page has asked for anything ten seconds later, one
        line on standard error says what may be in the way.

        Args:
            open_browser: Whether to open the page; ``PTA_NO_BROWSER`` forbids it anyway.
            file: Where to print; standard output by default.
        """
        self.start()
        lab = None if self._lab.local else self.url
        ssh = ssh_line(self._port, os.environ, user=_user(), machine=socket.gethostname())
        say(addresses(lab_url=lab, local_url=self.local_url, ssh=ssh), sys.stdout if file is None else file)
        if self._server is not None:
            self._server.call_later(HINT_SECONDS, self._hint)
        if open_browser:
            open_in_browser(self.url)

    def _hint(self) -> None:
        """Say what may be in the way, unless a page has come."""
        if self._server is not None and not self._server.asked:
            complain(hint(lab=not self._lab.local))

    # -- inside

    def _ended(self) -> bool:
        """Whether what is pushed goes nowhere."""
        return self._closing or self._abandoned

    def _listen(self) -> socket.socket:
        """A socket that listens on the loopback address."""
        family, address, _ = self._host
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            _forbid_sharing(listener)
            listener.bind((address, self._port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            raise _port_error(error, address, self._port) from error
        return listener

    def _make_server(self, listener: socket.socket) -> Server:
        """The server with everything it answers from."""
        self._log = EventLog(self._history)
        lab = frozenset() if self._lab.local else frozenset({self._lab.origin})
        content = Content(
            token=self._token,
            foreign=frozenset({LAB_ORIGIN, DEV_ORIGIN}) | lab,
            pages=read_pages(),
            log=self._log,
            history=self._history,
            settled=self._settled,
        )
        report = _log_request(content) if os.environ.get(ENV_DEBUG) else None
        answer = partial(respond, content=content)
        return Server(listener, answer, self._log, places=_places(), name=self._name, report=report)

    def _announce_spec(self, text: bytes) -> None:
        """Send a spec, after what was sent before it."""
        if self._server is not None and self._log is not None:
            self._server.call(partial(self._log.add_spec, _hello_pieces(text), text))

    def _queue_trace(self, server: Server, frame: TraceFrame | Mapping[str, Any]) -> None:
        """Have a trace sent; of more than a few that wait, the oldest is not."""
        box = [frame]
        server.call(partial(self._send_trace, box))
        self._traces.append(box)
        if len(self._traces) > _TRACES_WAITING:
            self._traces.popleft().clear()

    def _send_trace(self, box: list[TraceFrame | Mapping[str, Any]]) -> None:
        """On the server's thread: encode a trace and send it, unless too many newer ones wait."""
        try:
            frame = box.pop()
        except IndexError:
            return
        step = frame.step if isinstance(frame, TraceFrame) else frame["step"]
        if self._log is not None:
            self._log.add_trace((encode_trace(frame),), step)

    def _restart(self) -> None:
        """On the server's thread: forget the watch before."""
        if self._server is not None and self._log is not None:
            tabs = [connection.tab for connection in self._server.tabs]
            self._log.restart(tab for tab in tabs if tab is not None)

    def _take(self, frame: EncodedFrame) -> None:
        """On the pump's thread: store a frame and have it sent."""
        server, log = self._server, self._log
        if frame.step == _MARK_STEP:
            self._mark_stored = int(frame.text)
            action: Callable[[], None] = _nothing
        else:
            seq = self._history.append(frame)
            if log is None:
                return
            action = partial(log.add_health, seq, frame.step, frame.text)
        # After the end nobody empties the server's list of actions.
        if server is not None and not self._closed.is_set():
            server.call(action)

    def _settled(self) -> Callable[[], bool]:
        """On the server's thread: a function that tells when what was pushed by now is stored."""
        if self._pump is None:
            return _true
        self._mark_asked = mark = self._mark_asked + 1
        self._pump.push_health(EncodedFrame(_MARK_STEP, b"%d" % mark, None))
        return lambda: self._mark_stored >= mark


class _Store:
    """The pump's sink: gives each encoded frame to a function."""

    def __init__(self, take: Callable[[EncodedFrame], None]) -> None:
        self._take = take
        self._failed = False

    def push_health(self, frame: HealthFrame | EncodedFrame) -> None:
        """Take a frame that the pump has encoded; what is raised for one ends nothing for the next."""
        try:
            self._take(encode_frame(frame))
        except Exception as error:  # noqa: BLE001  # the pump gives a sink that raises nothing more
            if not self._failed:
                self._failed = True
                _report(self, error)

    def close(self) -> None:
        """Nothing to finish."""


def _nothing() -> None:
    """An action that only wakes the server."""


def _true() -> bool:
    """Nothing is waited for."""
    return True


def _report(_sink: object, error: BaseException) -> None:
    """Say that frames are left out; the pump asks once."""
    complain(f"a frame was left out: {str(error) or type(error).__name__}")


def _checked_host(host: object) -> tuple[socket.AddressFamily, str, str]:
    """Family, address and written form of a loopback name."""
    known = _HOSTS.get(host.lower()) if isinstance(host, str) else None
    if known is None:
        raise SettingError(
            f"host is {shown(host)}; the bridge listens on loopback only: 127.0.0.1, localhost or ::1. "
            "To reach it from another machine, use ssh -L"
        )
    return known


def _checked_port(port: object) -> int:
    """A port, or 0."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise SettingError(f"port is {shown(port)}; an integer from 0 to 65535 is wanted, 0 for a free port")
    return port


def _checked_token(token: object) -> str:
    """A token that can stand in an address as it is."""
    if not isinstance(token, str) or re.fullmatch(r"[A-Za-z0-9._~-]+", token) is None:
        raise SettingError("token must be a text of letters, digits and . _ ~ - (this one is not shown)")
    return token


def _read_spec(spec: ModelSpec | Mapping[str, Any]) -> tuple[ModelSpec, bytes]:
    """A spec and its JSON; encoded here, so that a bad one is the caller's error."""
    model = spec if isinstance(spec, ModelSpec) else ModelSpec.from_dict(spec)
    return model, dumps(model.to_dict()).encode("utf-8")


def _hello_pieces(spec: bytes) -> tuple[bytes, ...]:
    """The hello's JSON around a spec's, without a copy of it."""
    lead = {"protocol": BRIDGE_PROTOCOL, "v": PROTOCOL_VERSION, "producer": producer()}
    return (dumps(lead).encode("utf-8")[:-1] + b',"spec":', spec, b"}")


def _kept_trace(frame: TraceFrame | Mapping[str, Any]) -> TraceFrame | Mapping[str, Any]:
    """A copy that the caller's later changes to the frame do not reach."""
    kept: TraceFrame | Mapping[str, Any]
    if isinstance(frame, TraceFrame):
        kept = copy(frame)
        kept.tensors = list(frame.tensors)
        step: object = frame.step
    elif isinstance(frame, Mapping):
        tensors = frame.get("tensors", [])
        if not isinstance(tensors, (list, tuple)):
            raise FrameError(f"trace.tensors must be a list, found {shown(tensors)}")
        kept = {**frame, "tensors": list(tensors)}
        step = frame.get("step")
    else:
        raise FrameError(f"push() takes a TraceFrame or its JSON object, found {shown(frame)}")
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= MAX_INTEGER:
        raise FrameError(f"trace.step must be an integer of at least 0, found {shown(step)}")
    return kept


def _forbid_sharing(listener: socket.socket) -> None:
    """Let the port be taken again after a restart, and by nobody else meanwhile."""
    # On Windows SO_REUSEADDR would let two programs share the port.
    if sys.platform == "win32":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def _port_error(error: OSError, address: str, port: int) -> OSError:
    """The same error, with the port in its message."""
    if error.errno == errno.EADDRINUSE:
        return OSError(error.errno, f"port {port} on {address} is in use; choose another, or 0 for any")
    if error.errno == errno.EACCES:
        return OSError(error.errno, f"port {port} on {address} is not allowed; choose one above 1023")
    return OSError(error.errno, f"cannot listen on port {port} of {address}: {error.strerror}")


def _places() -> Places:
    """Places for connections under this process's limit on open files."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return places_for(0)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return places_for(0 if soft == resource.RLIM_INFINITY else soft)


def _log_request(content: Content) -> Callable[[Request | RequestError, int], None]:
    """A function that logs requests; nothing of a query, a header or an unknown path is shown."""

    def log(request: Request | RequestError, status: int) -> None:
        if isinstance(request, RequestError):
            complain(f"a malformed request: {status}")
            return
        path = request.path if is_known(request.path, content.pages) else "(unknown path)"
        complain(f"{request.method[:16]} {path}: {status}")

    return log


def _user() -> str:
    """The name of the user who runs the process."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        return "user"
