"""One client of the bridge: its socket, what it waits for, and the piece that is being sent.

A body is an iterator of pieces. Only one piece is held at a time, and the next is fetched
when the last is with the kernel: that is why a client which reads slowly holds no memory.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from .http import HeadReader

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from .events import Tab
    from .routes import Answer

__all__ = ["PENDING", "Connection", "Stage"]

_PIECE_BYTES = 64 * 1024


class Stage(Enum):
    """What a connection waits for."""

    NEW = auto()
    HEAD = auto()
    READY = auto()
    BODY = auto()
    CLOSING = auto()
    CLOSED = auto()


PENDING = (Stage.NEW, Stage.HEAD, Stage.CLOSING)


class Connection:
    """One client: its socket, its stage and the piece that is being sent.

    Attributes:
        sock: The socket, non-blocking.
        stage: What the connection waits for.
        deadline: When it is closed unless it has got on, on the monotonic clock.
        reader: Takes the request's head.
        answer: What is sent, once there is an answer.
        body: The rest of the answer's pieces.
        piece: What is being sent, without what the kernel has taken.
        exhausted: Whether ``body`` has ended.
        tab: The body, where that is a tab's cursor.
        late_since: Since when a tab has been too far behind.
        keep_alive_at: When a tab that got nothing is sent a comment.
        unwanted: Bytes that came after the request.
    """

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self.sock = sock
        self.stage = Stage.NEW
        self.deadline = deadline
        self.reader = HeadReader()
        self.answer: Answer | None = None
        self.body: Iterator[bytes] = iter(())
        self.piece = memoryview(b"")
        self.exhausted = False
        self.tab: Tab | None = None
        self.late_since: float | None = None
        self.keep_alive_at = 0.0
        self.unwanted = 0

    def next_piece(self) -> bool:
        """Fetch what is to be sent next; whether there is anything."""
        if not self.piece and not self.exhausted:
            self.piece = memoryview(self._gather())
        return bool(self.piece)

    def _gather(self) -> bytes:
        """Pieces of the body up to a good size for one call; small ones are joined."""
        parts: list[bytes] = []
        size = 0
        for part in self.body:
            if not part:
                break
            parts.append(part)
            size += len(part)
            if size >= _PIECE_BYTES:
                break
        else:
            self.exhausted = True
        return parts[0] if len(parts) == 1 else b"".join(parts)
