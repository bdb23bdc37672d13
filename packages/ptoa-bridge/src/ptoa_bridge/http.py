"""A strict reader of request heads and a writer of answer heads: bytes in, values out.

A lenient reader is how two programs come to see two different requests in the same bytes
(request smuggling). This one refuses whatever RFC 9112 leaves to a server's goodwill: bare
CR or LF, folded lines, a space before the colon, a second Host, a length beside a transfer
coding, targets with foreign schemes, bytes that are not printable. Bodies are never read:
the bridge answers from the head alone and then closes, so that nothing which follows a head
is ever taken for a request.

A head is at most 32 KiB and 100 lines. ``HeadReader`` looks at each byte once, however
slowly they come, and refuses at the first byte that cannot be part of a head.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from ptoa_core.errors import PtoaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "MAX_HEAD_BYTES",
    "MAX_HEAD_LINES",
    "HeadReader",
    "Request",
    "RequestError",
    "answer_head",
    "parse_head",
]

MAX_HEAD_BYTES = 32 * 1024
MAX_HEAD_LINES = 100

_NAME = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"(" + _NAME + rb") ([\x21-\x7e]+) HTTP/1\.([01])")
_FIELD_NAME = re.compile(_NAME)
_ABSOLUTE = re.compile(r"http://([^/?]*)(.*)", re.IGNORECASE)
_NOT_IN_HEAD = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?=[^\n])|(?<!\r)\n")

# Fields that decide something: two of them would leave it open which one counts.
_ONCE = frozenset(
    {
        "access-control-request-headers",
        "access-control-request-method",
        "access-control-request-private-network",
        "authorization",
        "content-length",
        "host",
        "last-event-id",
        "origin",
        "sec-fetch-site",
        "transfer-encoding",
        "x-pta-token",
    }
)

_REASONS = {
    200: "OK",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class RequestError(PtoaError, ValueError):
    """A head that is not a request; the message is the sentence to answer with.

    Attributes:
        status: 400, or 431 for a head that is too large.
    """

    def __init__(self, sentence: str, status: int = 400) -> None:
        """Keep ``status`` beside the sentence."""
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True)
class Request:
    """One request head, taken apart and not yet judged.

    Attributes:
        method: As sent.
        path: As sent, with every ``%`` escape left alone: a path is compared, never opened.
        query: The names and values of the query, decoded, in order.
        headers: Values by lower-case name; repeated fields are joined with ``", "``.
        authority: The authority of an absolute-form target, else ``None``.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: Mapping[str, str]
    authority: str | None = None

    def values(self, name: str) -> list[str]:
        r"""Every value of one query parameter, in order.

        Example:
            >>> parse_head(b"GET /health?since=5 HTTP/1.1\r\nHost: localhost:1\r\n").values("since")
            ['5']
        """
        return [value for key, value in self.query if key == name]


class HeadReader:
    r"""Collects bytes until a head is complete, and refuses what cannot become one.

    Example:
        >>> reader = HeadReader()
        >>> reader.feed(b"GET / HTTP/1.1\r\nHost: localhost:1\r\n")
        >>> reader.feed(b"\r\nwhatever follows")
        b'GET / HTTP/1.1\r\nHost: localhost:1\r\n'
    """

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._data = bytearray()
        self._lines = 0

    def feed(self, data: bytes) -> bytes | None:
        """Add what has arrived.

        Args:
            data: The next bytes from the client.

        Returns:
            The head with the line end of its last line, without the empty line; ``None``
            while it is incomplete. What follows the head is dropped.

        Raises:
            RequestError: As soon as the bytes cannot be a head, or exceed its limits.
        """
        seen = len(self._data)
        self._data += data
        end = self._data.find(b"\r\n\r\n", max(0, seen - 3))
        stop = len(self._data) if end < 0 else end + 4
        # One byte back: a CR that ended the last packet is judged with the byte after it.
        if _NOT_IN_HEAD.search(self._data, max(0, seen - 1), stop):
            raise RequestError("The request head holds a byte or a line end that HTTP does not allow.")
        self._lines += self._data.count(b"\n", seen, stop)
        if stop > MAX_HEAD_BYTES or self._lines > MAX_HEAD_LINES + 1:
            raise RequestError("The request head is over 32 KiB or 100 lines.", 431)
        return None if end < 0 else bytes(self._data[: end + 2])


def parse_head(head: bytes) -> Request:
    r"""Take a complete request head apart.

    Args:
        head: Lines that each end with CR LF, without the empty line after them.

    Returns:
        The request.

    Raises:
        RequestError: If any line is not exactly what RFC 9112 asks a client to send.

    Example:
        >>> parse_head(b"GET /spec?token=a HTTP/1.1\r\nHost: 127.0.0.1:1\r\n").path
        '/spec'
    """
    first, *fields = head.split(b"\r\n")[:-1]
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise RequestError("The request line must be a method, a target and HTTP/1.1 or HTTP/1.0.")
    headers = _headers(fields)
    _check_framing(headers, minor=line[3])
    authority, target = _split_target(line[2].decode("ascii"))
    path, _, query = target.partition("?")
    return Request(line[1].decode("ascii"), path, _parse_query(query), headers, authority)


def _headers(fields: list[bytes]) -> dict[str, str]:
    """Field values by lower-case name."""
    headers: dict[str, str] = {}
    for field in fields:
        raw_name, colon, value = field.partition(b":")
        if not colon or _FIELD_NAME.fullmatch(raw_name) is None:
            raise RequestError("A header line must be a name, a colon and a value, with no space before.")
        name = raw_name.decode("ascii").lower()
        text = value.strip(b" \t").decode("latin-1")
        if name in headers and name in _ONCE:
            raise RequestError("A header field that decides something was sent twice.")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


def _check_framing(headers: Mapping[str, str], *, minor: bytes) -> None:
    """Refuse lengths and codings that could be read in two ways."""
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    if minor == b"1" and "host" not in headers:
        raise RequestError("An HTTP/1.1 request must have a Host.")
    if length is not None and re.fullmatch(r"[0-9]{1,19}", length) is None:
        raise RequestError("The Content-Length must be a plain decimal number.")
    if coding is None:
        return
    if length is not None or minor == b"0" or coding.lower() != "chunked":
        raise RequestError("The Transfer-Encoding is not one that a request may have.")


def _split_target(target: str) -> tuple[str | None, str]:
    """The authority, if the target has one, and the path with its query."""
    if "#" in target:
        raise RequestError("The request target must not have a fragment.")
    if target.startswith("/"):
        return None, target
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise RequestError("The request target must be a path that starts with a slash.")
    rest = absolute[2]
    return absolute[1], rest if rest.startswith("/") else "/" + rest


def _parse_query(query: str) -> tuple[tuple[str, str], ...]:
    """Names and values, ``+`` and ``%`` escapes decoded; a bad escape stays as it is."""
    pairs = (part.partition("=") for part in query.split("&") if part)
    return tuple((_unquote(name), _unquote(value)) for name, _, value in pairs)


def _unquote(text: str) -> str:
    """Text of one query name or value."""
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "replace")


def answer_head(status: int, headers: Iterable[tuple[str, str]]) -> bytes:
    r"""Status line and header lines of an answer, with the empty line that ends them.

    Args:
        status: One of the statuses that the bridge gives.
        headers: Names and values, written in order.

    Returns:
        ASCII bytes.

    Example:
        >>> answer_head(204, [("Connection", "close")])
        b'HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n'
    """
    lines = [f"HTTP/1.1 {status} {_REASONS[status]}", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
