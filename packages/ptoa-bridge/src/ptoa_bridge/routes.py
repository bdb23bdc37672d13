"""From a request to an answer, without a socket: the table of paths and what each one gives.

``respond`` is the bridge as a function. It asks the guard first, and only a request that
passed reaches a row of the table. An answer's body is an iterator of pieces that the server
pulls as fast as the client reads, so a long history never exists as one text.

Source: FORMATS.md, section 7.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from .events import last_event_id
from .guard import METHODS, Facts, is_loopback_host, refuse
from .http import RequestError
from .page import SECURITY_POLICY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ptoa_core.history import FrameHistory

    from .events import EventLog
    from .http import Request
    from .page import Page

__all__ = ["Answer", "Content", "is_known", "respond"]

_ALWAYS = (
    ("Server", "ptoa-bridge"),
    ("Connection", "close"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
_ALLOWED_HEADERS = "authorization, x-pta-token, last-event-id"
_PREFLIGHT_SECONDS = 600
_BUSY = "The bridge already serves as many requests as it may; close a tab and try again."
_JSON = "application/json"

# Of a long history: so much that unpacking and sending wait seldom for a thread that computes,
# so little that each of 24 clients may hold as much.
_TOGETHER_BYTES = 512 * 1024

# No step is larger: whatever number a client asks for, the comparison stays an ordinary one.
_SINCE_LIMIT = 10**18


@dataclass(frozen=True)
class Content:
    """What the bridge has to give, and to whom.

    Attributes:
        token: The session's token.
        foreign: Origins besides the bridge's own that may read.
        pages: The local page's files by path.
        log: Specs, traces and tabs.
        history: Frames of health.
        settled: Asked when a request comes, gives a function that tells whether the frames
            which had been pushed by then are in the history.
    """

    token: str
    foreign: frozenset[str]
    pages: Mapping[str, Page]
    log: EventLog
    history: FrameHistory
    settled: Callable[[], Callable[[], bool]]


@dataclass(frozen=True)
class Answer:
    """A status, header fields and a body that is pulled piece by piece.

    Attributes:
        status: The HTTP status.
        headers: All header fields, in order.
        body: Byte pieces; a ``Tab`` gives ``b""`` while it has nothing.
        ready: Whether the body may be begun; ``None`` for at once.
        accepted: Whether the guard let the request pass.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: Iterable[bytes] = ()
    ready: Callable[[], bool] | None = None
    accepted: bool = False


def respond(request: Request | RequestError, content: Content, *, full: bool = False) -> Answer:
    """The answer to a request.

    Args:
        request: A parsed head, or the fault that the reader found.
        content: What the bridge has.
        full: Whether the bridge serves as many requests as it may.

    Returns:
        An answer. For HEAD the body is empty and no tab is opened.

    Example:
        >>> from .http import RequestError
        >>> respond(RequestError("no request"), content=None).status
        400
    """
    if isinstance(request, RequestError):
        return _sentence(request.status, str(request))
    answer = _judged(request, content, full=full)
    # A refusal too: what follows the head of an answer to HEAD would be taken for the next answer.
    return replace(answer, body=(), ready=None) if request.method == "HEAD" else answer


def _judged(request: Request, content: Content, *, full: bool) -> Answer:
    """The guard's refusal, or what the request's row of the table gives."""
    facts = _facts(request, content.pages)
    cors = _cors(facts, content.foreign)
    refusal = refuse(facts, token=content.token, foreign=content.foreign)
    if refusal is not None:
        return _sentence(refusal.status, refusal.reason, cors)
    if request.method == "OPTIONS":
        return _preflight(request, cors)
    if full:
        return _sentence(503, _BUSY, (*cors, ("Retry-After", "2")))
    route = _page if facts.place == "page" else _DATA[request.path]
    answer = route(request, content)
    return replace(answer, headers=(*answer.headers, *cors), accepted=True)


def is_known(path: str, pages: Mapping[str, Page]) -> bool:
    """Whether a path is in one of the tables.

    Example:
        >>> is_known("/spec", {}), is_known("/SPEC", {})
        (True, False)
    """
    return _place(path, pages) != "unknown"


def _facts(request: Request, pages: Mapping[str, Page]) -> Facts:
    """What the guard looks at."""
    headers = request.headers
    return Facts(
        method=request.method,
        host=headers.get("host"),
        authority=request.authority,
        origin=headers.get("origin"),
        fetch_site=headers.get("sec-fetch-site"),
        place=_place(request.path, pages),
        tokens=tuple(_tokens(request)),
    )


def _place(path: str, pages: Mapping[str, Page]) -> Literal["page", "data", "unknown"]:
    """Which table holds a path."""
    if path in pages:
        return "page"
    return "data" if path in _DATA else "unknown"


def _tokens(request: Request) -> Iterator[str]:
    """Every token that a request offers."""
    yield from request.values("token")
    yield request.headers.get("x-pta-token", "")
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield credentials.strip()


def _cors(facts: Facts, foreign: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Leave to read, for the Lab's origins alone; on a refusal too, so that it can say why."""
    if facts.origin is None or facts.origin not in foreign or not is_loopback_host(facts.host):
        return ()
    return (("Access-Control-Allow-Origin", facts.origin), ("Vary", "Origin"))


def _sentence(status: int, text: str, headers: Iterable[tuple[str, str]] = ()) -> Answer:
    """A short plain-text answer."""
    allow = (("Allow", ", ".join(METHODS)),) if status == 405 else ()
    return _whole(status, "text/plain; charset=utf-8", (f"{text}\n".encode(),), (*allow, *headers))


def _whole(
    status: int, content_type: str, body: tuple[bytes, ...], headers: Iterable[tuple[str, str]] = ()
) -> Answer:
    """An answer whose length is known."""
    length = ("Content-Length", str(sum(map(len, body))))
    return Answer(status, (*_ALWAYS, ("Content-Type", content_type), length, *headers), body)


def _preflight(request: Request, cors: tuple[tuple[str, str], ...]) -> Answer:
    """What a browser asks before it lets a foreign page send our header fields."""
    headers = [*_ALWAYS, ("Allow", ", ".join(METHODS)), *cors]
    if cors:
        headers += [
            ("Access-Control-Allow-Methods", "GET, HEAD"),
            ("Access-Control-Allow-Headers", _ALLOWED_HEADERS),
            ("Access-Control-Max-Age", str(_PREFLIGHT_SECONDS)),
        ]
    if cors and request.headers.get("access-control-request-private-network") == "true":
        headers.append(("Access-Control-Allow-Private-Network", "true"))
    return Answer(204, tuple(headers), accepted=True)


def _page(request: Request, content: Content) -> Answer:
    """A file of the local page."""
    page = content.pages[request.path]
    policy = ("Content-Security-Policy", SECURITY_POLICY)
    return _whole(200, page.content_type, (page.body,), (policy,))


def _json_or_nothing(data: tuple[bytes, ...]) -> Answer:
    """JSON, or 204 while there is none."""
    return _whole(200, _JSON, data) if data else Answer(204, _ALWAYS)


def _spec(_request: Request, content: Content) -> Answer:
    """The hello, which holds the spec."""
    return _json_or_nothing(content.log.hello)


def _trace(_request: Request, content: Content) -> Answer:
    """The latest trace frame."""
    return _json_or_nothing(content.log.trace)


def _health(request: Request, content: Content) -> Answer:
    """Frames with a step above ``since``, oldest first."""
    since = _since(request.values("since"))
    if since is None:
        return _sentence(400, "since must be one plain decimal integer.")
    # No length and no chunks: the end of the stream ends the text, as the sum is not known.
    headers = (*_ALWAYS, ("Content-Type", _JSON))
    return Answer(200, headers, _frames(content.history, since), content.settled())


def _since(values: list[str]) -> int | None:
    """The step to start after; -1 when none is named, ``None`` for nonsense."""
    if not values:
        return -1
    if len(values) > 1 or re.fullmatch(r"-?[0-9]+", values[0]) is None:
        return None
    # Python refuses to read integers of thousands of digits.
    digits = values[0].lstrip("-").lstrip("0")
    size = _SINCE_LIMIT if len(digits) > 18 else int(digits or "0")
    return -size if values[0].startswith("-") else size


def _frames(history: FrameHistory, since: int) -> Iterator[bytes]:
    """One JSON object with the frames, some frames at a time."""
    lead = b'{"frames":['
    for texts in history.joined_since(since, _TOGETHER_BYTES):
        yield lead
        yield texts
        lead = b","
    yield b"]}" if lead == b"," else lead + b"]}"


def _events(request: Request, content: Content) -> Answer:
    """The stream of events, from now on or from the last one that the client got."""
    headers = (*_ALWAYS, ("Content-Type", "text/event-stream"), ("X-Accel-Buffering", "no"))
    if request.method == "HEAD":
        return Answer(200, headers)
    return Answer(200, headers, content.log.new_tab(last_event_id(request.headers.get("last-event-id"))))


_DATA: Mapping[str, Callable[[Request, Content], Answer]] = {
    "/spec": _spec,
    "/trace": _trace,
    "/health": _health,
    "/events": _events,
}
