"""The sockets: one daemon thread that accepts, reads heads and sends answers.

Nothing here blocks and nothing waits in a queue. Every connection holds at most one piece
of its answer and pulls the next one when the last is with the kernel, so a client that
reads slowly costs a place and no memory. Places are few and each is given for a time:

- 32 connections may be on their way in or out (sending a head, or being closed after an
  answer). One more takes the place of the oldest, so that idle connections, however many,
  never keep a real request waiting. A head has 8 seconds to arrive.
- 24 may be answered at a time. One more is told so in one sentence.
- A tab for which more than 4 MB wait beyond the newest event, two seconds long, is
  disconnected; it comes back with the id of its last event and misses nothing that is kept.
  (A burst of frames is not slowness: hence the two seconds.)
- With a low limit on open files the places are fewer, since the training process needs
  files of its own.

After one answer a connection is closed. The client's further bytes are read and dropped for
a moment first: closing a socket with unread bytes resets it, and the client would lose the
end of the answer.

Source: FORMATS.md, section 7; RFC 9112, section 9.6 (closing in stages).
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .announce import complain
from .connection import PENDING, Connection, Stage
from .events import KEEP_ALIVE, Tab
from .http import RequestError, answer_head, parse_head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .events import EventLog
    from .http import Request
    from .routes import Answer

__all__ = [
    "CLOSING_SECONDS",
    "HEAD_SECONDS",
    "KEEP_ALIVE_SECONDS",
    "LATE_SECONDS",
    "MAX_BEHIND_BYTES",
    "READY_SECONDS",
    "STALL_SECONDS",
    "Places",
    "Responder",
    "Server",
    "making_sockets",
    "places_for",
]

HEAD_SECONDS = 8.0
CLOSING_SECONDS = 2.0
STALL_SECONDS = 30.0
READY_SECONDS = 3.0
KEEP_ALIVE_SECONDS = 15.0
LATE_SECONDS = 2.0
MAX_BEHIND_BYTES = 4 * 1024 * 1024

_TURN_PIECES = 4
_SEND_BUFFER = 256 * 1024
# Offered to the kernel in one call; it takes what fits, and each call waits for a thread that computes.
_SEND_BYTES = 1024 * 1024
_READ_BYTES = 64 * 1024
_MAX_UNWANTED_BYTES = 8 * 1024 * 1024
_ACCEPTS_A_TURN = 16
_ACCEPT_PAUSE = 0.5

# A program may have SIGPIPE at its default, where one gone client would end the training.
_SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)

# Held while a new connection is made and noted down; a fork waits for it, so that the child
# knows every socket that it has to let go. Its holder may fork: a reloaded module asks twice.
making_sockets = threading.RLock()


@dataclass(frozen=True)
class Places:
    """How many connections may be held.

    Attributes:
        pending: Connections whose head is awaited, or that are being closed.
        active: Connections that are being answered.
    """

    pending: int = 32
    active: int = 24


def places_for(open_files: int) -> Places:
    """The places that leave a process most of its open files.

    Args:
        open_files: The soft limit on open files; 0 or less for no limit.

    Returns:
        At most 32 pending and 24 active, together no more than a quarter of the limit, and
        never fewer than 4 and 3.

    Example:
        >>> places_for(1024), places_for(128)
        (Places(pending=32, active=24), Places(pending=18, active=14))
    """
    if open_files <= 0:
        return Places()
    share = open_files // 4
    active = min(24, max(3, share * 24 // 54))
    return Places(min(32, max(4, share - active)), active)


class Responder(Protocol):
    """Gives the answer to a request."""

    def __call__(self, request: Request | RequestError, *, full: bool) -> Answer:
        """The answer; ``full`` says that as many requests as may be are being answered."""


class Server:
    """The bridge's sockets and the thread that serves them.

    Args:
        listener: A listening socket; the server closes it.
        respond: Gives the answer to a request.
        log: The events that tabs read. Only the server's thread touches it.
        places: How many connections may be held.
        name: The thread's name.
        report: Called with a request and the status it got, when requests are to be logged.

    Attributes:
        tabs: The connections that read ``/events``.
        asked: Whether any request was accepted so far.
    """

    def __init__(
        self,
        listener: socket.socket,
        respond: Responder,
        log: EventLog,
        *,
        places: Places,
        name: str,
        report: Callable[[Request | RequestError, int], None] | None = None,
    ) -> None:
        """Take over ``listener``; nothing is served before ``start``."""
        self.tabs: set[Connection] = set()
        self.asked = False
        self._listener = listener
        self._respond = respond
        self._log = log
        self._places = places
        self._report = report
        self._inbox: deque[Callable[[], None]] = deque()
        self._alarm: tuple[float, Callable[[], None]] | None = None
        self._connections: dict[Connection, None] = {}
        self._accept_again: float | None = None
        self._stop_by: float | None = None
        self._stopping = False
        self._woken = False
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._waker = socket.socketpair()
        for sock in (listener, self._wake_reader, self._waker):
            sock.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._steps: dict[Stage, Callable[[Connection], None]] = {
            Stage.NEW: self._greet,
            Stage.HEAD: self._read_head,
            Stage.READY: self._send_when_ready,
            Stage.BODY: self._exchange,
            Stage.CLOSING: self._drain,
            Stage.CLOSED: lambda _connection: None,
        }

    def start(self) -> None:
        """Serve from a daemon thread."""
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, self._hear)
        self._thread.start()

    def call(self, action: Callable[[], None]) -> None:
        """Have ``action`` run on the server's thread, in the order of the calls; returns at once."""
        self._inbox.append(action)
        self._wake()

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Have ``action`` run once on the server's thread, unless the server ends first."""
        self._alarm = (time.monotonic() + seconds, action)
        self._wake()

    def stop(self, grace: float, timeout: float) -> None:
        """Close the port, say ``bye``, finish answers for ``grace`` seconds, and end the thread.

        Args:
            grace: Seconds that clients get to read what they were sent.
            timeout: Seconds to wait for the thread at most.
        """
        self._stop_by = time.monotonic() + grace
        self._wake()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def abandon(self) -> None:
        """In the child of a fork: let go of every socket, and leave them to the parent."""
        # The epoll object is shared with the parent: it is closed, never told to forget anything.
        sockets = [self._listener, self._wake_reader, self._waker]
        sockets += [connection.sock for connection in list(self._connections)]
        with contextlib.suppress(OSError):
            self._selector.close()
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.close()
        self.tabs = set()
        self._connections = {}

    def _wake(self) -> None:
        """Interrupt the thread's wait."""
        if not self._woken:
            self._woken = True
            with contextlib.suppress(OSError):
                self._waker.send(b"\0", _SEND_FLAGS)

    def _run(self) -> None:
        """The thread."""
        try:
            while not self._finished():
                self._turn()
        finally:
            self._close_everything()

    def _turn(self) -> None:
        """Wait for something to do, and do it."""
        ready = self._selector.select(self._patience())
        if any(key.data == self._hear for key, _ in ready):
            self._hear()
        self._take_inbox()
        if self._stop_by is not None and not self._stopping:
            self._begin_stopping()
        for key, _ in ready:
            if isinstance(key.data, Connection):
                self._serve(key.data)
        if any(key.data == self._accept for key, _ in ready):
            self._accept()
        self._look_after(time.monotonic())

    def _hear(self) -> None:
        """Take the bytes that woke the thread."""
        with contextlib.suppress(BlockingIOError):
            self._wake_reader.recv(4096)

    def _take_inbox(self) -> None:
        """Run what other threads asked for, as far as it had come by now."""
        self._woken = False
        for _ in range(len(self._inbox)):
            self._run_safely(self._inbox.popleft())

    @staticmethod
    def _run_safely(action: Callable[[], None]) -> None:
        """Run one action; what it raises must not end the thread."""
        try:
            action()
        except Exception as error:  # noqa: BLE001  # the thread serves other clients too
            complain(f"{type(error).__name__}: {error}")

    def _finished(self) -> bool:
        """Whether the thread may end."""
        if not self._stopping or self._stop_by is None:
            return False
        return not self._connections or time.monotonic() >= self._stop_by

    def _begin_stopping(self) -> None:
        """Close the port and send the last event."""
        self._stopping = True
        self._close_listener()
        self._log.add_bye()
        for connection in list(self._connections):
            if connection.stage in PENDING:
                self._close(connection)

    def _close_listener(self) -> None:
        """Stop listening, even where a forked process still holds the socket."""
        if self._accept_again is None:
            self._selector.unregister(self._listener)
        self._accept_again = None
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _close_everything(self) -> None:
        """Give back every socket."""
        for connection in list(self._connections):
            self._close(connection)
        self._listener.close()
        self._selector.close()
        self._wake_reader.close()
        self._waker.close()

    def _accept(self) -> None:
        """Take what clients have connected; a few at a time, so that others get their turn."""
        for _ in range(_ACCEPTS_A_TURN):
            if self._stopping or self._accept_again is not None:
                return
            try:
                with making_sockets:
                    sock, _ = self._listener.accept()
                    connection = Connection(sock, time.monotonic() + HEAD_SECONDS)
                    self._connections[connection] = None
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # No file handle left. The waiting client keeps the listener ready, so that
                # trying on would spin.
                self._pause_accepting()
                return
            self._make_room()
            self._serve(connection)

    def _greet(self, connection: Connection) -> None:
        """Set a new socket up, and look at once whether its request has come with it."""
        sock = connection.sock
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel's default grows to megabytes, which would hide how far a tab is behind.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self._selector.register(sock, selectors.EVENT_READ, connection)
        connection.stage = Stage.HEAD
        self._read_head(connection)

    def _pause_accepting(self) -> None:
        """Leave the port alone for a moment, and give one handle back."""
        self._selector.unregister(self._listener)
        self._accept_again = time.monotonic() + _ACCEPT_PAUSE
        pending = self._in_stage(*PENDING)
        if pending:
            self._close(pending[0])

    def _make_room(self) -> None:
        """Close the oldest pending connections beyond the places for them."""
        pending = self._in_stage(*PENDING)
        for connection in pending[: max(0, len(pending) - self._places.pending)]:
            self._close(connection)

    def _in_stage(self, *stages: Stage) -> list[Connection]:
        """The connections in one of the stages, oldest first."""
        return [connection for connection in self._connections if connection.stage in stages]

    def _serve(self, connection: Connection) -> None:
        """Do what a connection is ready for; a broken one is closed without a word."""
        try:
            self._steps[connection.stage](connection)
        except OSError:
            self._close(connection)
        except Exception as error:  # noqa: BLE001  # one request must not end the others
            complain(f"a request failed: {type(error).__name__}: {error}")
            self._close(connection)

    def _read_head(self, connection: Connection) -> None:
        """Take bytes of a request head, and answer once it is complete."""
        try:
            data = connection.sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        if not data:
            self._close(connection)
            return
        request: Request | RequestError
        try:
            head = connection.reader.feed(data)
            if head is None:
                return
            request = parse_head(head)
        except RequestError as error:
            request = error
        self._begin_answer(connection, request)

    def _begin_answer(self, connection: Connection, request: Request | RequestError) -> None:
        """Find the answer, and send it as soon as it is ready."""
        # What was pushed before a request came belongs in its answer.
        self._take_inbox()
        active = self._in_stage(Stage.READY, Stage.BODY)
        answer = self._respond(request, full=len(active) >= self._places.active)
        self.asked = self.asked or answer.accepted
        if self._report is not None:
            self._report(request, answer.status)
        connection.answer = answer
        connection.stage = Stage.READY
        connection.deadline = time.monotonic() + READY_SECONDS
        self._selector.unregister(connection.sock)
        self._send_when_ready(connection)

    def _send_when_ready(self, connection: Connection) -> None:
        """Begin to send, unless frames that belong in the answer are still being encoded."""
        answer, now = connection.answer, time.monotonic()
        if answer is None or (answer.ready and not answer.ready() and now < connection.deadline):
            return
        connection.stage = Stage.BODY
        connection.deadline = now + STALL_SECONDS
        connection.piece = memoryview(answer_head(answer.status, answer.headers))
        connection.body = iter(answer.body)
        # Tells a client that has gone, and takes what it should not have sent.
        self._selector.register(connection.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
        if isinstance(connection.body, Tab):
            connection.tab = connection.body
            connection.keep_alive_at = now + KEEP_ALIVE_SECONDS
            self.tabs.add(connection)
        self._send(connection)

    def _exchange(self, connection: Connection) -> None:
        """Send more of an answer; notice a tab that has gone."""
        if connection.tab is not None and not self._drop_unwanted(connection):
            self._close(connection)
            return
        self._send(connection)

    def _send(self, connection: Connection) -> None:
        """Send for one turn, or until the kernel takes no more."""
        for _ in range(_TURN_PIECES):
            if not connection.next_piece():
                break
            try:
                sent = connection.sock.send(connection.piece[:_SEND_BYTES], _SEND_FLAGS)
            except (BlockingIOError, InterruptedError):
                self._await(connection, writable=True)
                return
            connection.piece = connection.piece[sent:]
            connection.deadline = time.monotonic() + STALL_SECONDS
            connection.keep_alive_at = time.monotonic() + KEEP_ALIVE_SECONDS
        if connection.next_piece() or not (connection.exhausted or connection.tab):
            self._await(connection, writable=True)
        elif connection.exhausted:
            self._finish(connection)
        else:
            self._await(connection, writable=False)

    def _await(self, connection: Connection, *, writable: bool) -> None:
        """Ask to be told when a connection is ready."""
        # Bytes after a request are for nobody. Only a tab is watched for its end: another
        # client may close its half of the connection and still read the answer.
        read = selectors.EVENT_READ if connection.tab is not None else 0
        events = read | (selectors.EVENT_WRITE if writable else 0)
        if self._selector.get_key(connection.sock).events != events:
            self._selector.modify(connection.sock, events, connection)

    def _finish(self, connection: Connection) -> None:
        """Say that the answer is complete, and wait for the client to close."""
        self.tabs.discard(connection)
        connection.stage = Stage.CLOSING
        connection.deadline = time.monotonic() + CLOSING_SECONDS
        if self._stopping:
            self._drop_unwanted(connection)
            self._close(connection)
            return
        connection.sock.shutdown(socket.SHUT_WR)
        self._selector.modify(connection.sock, selectors.EVENT_READ, connection)
        self._make_room()

    def _drain(self, connection: Connection) -> None:
        """Read on until the client closes."""
        if not self._drop_unwanted(connection):
            self._close(connection)

    def _drop_unwanted(self, connection: Connection) -> bool:
        """Read and drop what a client sends after its request; False at its end, or over a bound."""
        try:
            data = connection.sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return True
        connection.unwanted += len(data)
        return bool(data) and connection.unwanted <= _MAX_UNWANTED_BYTES

    def _close(self, connection: Connection) -> None:
        """Forget a connection and give its socket back."""
        if connection.stage is Stage.CLOSED:
            return
        connection.stage = Stage.CLOSED
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        connection.sock.close()
        connection.body = iter(())
        self.tabs.discard(connection)
        self._connections.pop(connection, None)

    def _look_after(self, now: float) -> None:
        """Serve tabs that have something to read, and see to all that has run out of time."""
        if self._accept_again is not None and now >= self._accept_again:
            self._accept_again = None
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        for connection in list(self._connections):
            if connection.tab is not None and connection.stage is Stage.BODY:
                self._look_after_tab(connection, connection.tab, now)
            elif connection.stage is Stage.READY:
                self._serve(connection)
            elif now >= connection.deadline:
                self._close(connection)
        self._log.prune([connection.tab for connection in self.tabs if connection.tab is not None])
        self._sound_alarm(now)

    def _look_after_tab(self, connection: Connection, tab: Tab, now: float) -> None:
        """Send what is new, keep a quiet tab alive, and part from one that does not keep up."""
        blocked = bool(connection.piece)
        if self._is_late(connection, tab, now, blocked=blocked) or tab.dropped:
            self._close(connection)
        if blocked or connection.stage is not Stage.BODY:
            return
        if not connection.next_piece() and now >= connection.keep_alive_at:
            connection.piece = memoryview(KEEP_ALIVE)
        if connection.piece or connection.exhausted:
            connection.deadline = now + STALL_SECONDS
            self._serve_tab(connection)

    def _is_late(self, connection: Connection, tab: Tab, now: float, *, blocked: bool) -> bool:
        """Whether a tab has taken nothing for long, or has been far behind for a moment."""
        if not blocked or self._log.behind(tab) <= MAX_BEHIND_BYTES:
            connection.late_since = None
        elif connection.late_since is None:
            connection.late_since = now
        stalled = blocked and now >= connection.deadline
        return stalled or (connection.late_since is not None and now - connection.late_since >= LATE_SECONDS)

    def _serve_tab(self, connection: Connection) -> None:
        """Send to a tab; a broken connection is closed without a word."""
        try:
            self._send(connection)
        except OSError:
            self._close(connection)

    def _sound_alarm(self, now: float) -> None:
        """Run what ``call_later`` asked for, once it is time."""
        alarm = self._alarm
        if alarm is not None and now >= alarm[0]:
            self._alarm = None
            self._run_safely(alarm[1])

    def _patience(self) -> float | None:
        """Seconds until something runs out of time; ``None`` when nothing does."""
        moments = [moment for connection in self._connections for moment in self._moments(connection)]
        moments += [moment for moment in (self._accept_again, self._stop_by) if moment is not None]
        if self._alarm is not None:
            moments.append(self._alarm[0])
        if self._inbox or (self._stop_by is not None and not self._stopping):
            return 0.0
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    @staticmethod
    def _moments(connection: Connection) -> Iterator[float]:
        """When a connection next needs looking after."""
        if connection.tab is None:
            yield connection.deadline
            return
        yield connection.deadline if connection.piece else connection.keep_alive_at
        if connection.late_since is not None:
            yield connection.late_since + LATE_SECONDS
