"""Who may read the bridge: one pure function from the facts of a request to a refusal.

The bridge listens on the loopback address of a machine whose owner also visits strangers'
web pages. A hostile page can make the owner's browser send requests to
``http://127.0.0.1:PORT``. What it controls, and what it does not:

- It can send a GET without asking anybody: an image, a script, a form, a navigation, a
  ``no-cors`` fetch. It can guess the port. It can point a name of its own at 127.0.0.1 (DNS
  rebinding), and then the browser takes page and bridge for the same site.
- It cannot choose ``Host``: the browser writes the name in the address. A rebound name
  arrives as that name, so only loopback names are answered.
- It cannot choose or drop ``Origin`` on a request that may read the answer, nor
  ``Sec-Fetch-Site`` in a browser that sends it. A request without an Origin is a plain GET
  whose answer the page cannot read, though it could still be timed, or run as a script.
- It cannot know the token: 256 random bits that are in no page, no reply and no log.
- Another program on the machine can send anything, byte by byte. The strict reader in
  ``http`` and the token are for that one.

Each check stands alone; none relies on another. They run in the order of the formats'
table, so that a refusal tells a stranger as little as possible: who is not on this machine
learns nothing about methods, routes or tokens.

The comparison of Host looks at the name and lets every port pass, because the far end of
``ssh -L 9000:127.0.0.1:PORT`` is asked for ``127.0.0.1:9000``.

Source: FORMATS.md, section 7; RFC 9110, sections 7.2 and 15.5.20; Fetch Metadata.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["METHODS", "Facts", "Refusal", "is_loopback_host", "may_read", "refuse"]

METHODS = ("GET", "HEAD", "OPTIONS")

# Spelt out, not computed: "127.1", "0177.0.0.1", "2130706433" and "[::ffff:127.0.0.1]" reach
# this machine too, but no browser keeps those spellings in Host, so whoever sends one is odd.
_LOOPBACK_HOST = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\]):([1-9][0-9]{0,4})", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Refusal:
    """A status and the one sentence that says why.

    Attributes:
        status: The HTTP status, 400 to 505.
        reason: One sentence. It repeats nothing that the request carried.
    """

    status: int
    reason: str


@dataclass(frozen=True)
class Facts:
    """What the guard looks at; everything else in a request is of no account to it.

    Attributes:
        method: As sent; methods are case-sensitive.
        host: The Host field's value, ``None`` when there was none.
        authority: The authority of an absolute-form target, which stands above Host.
        origin: The Origin field's value, ``None`` when there was none.
        fetch_site: The Sec-Fetch-Site field's value, ``None`` when there was none.
        place: ``page`` for the local page and its files, ``data`` for the four data routes,
            ``unknown`` for every other path.
        tokens: Every token that the request offers, in any of the three places.
        fault: Why the request is malformed, when it is.
    """

    method: str = "GET"
    host: str | None = None
    authority: str | None = None
    origin: str | None = None
    fetch_site: str | None = None
    place: Literal["page", "data", "unknown"] = "data"
    tokens: tuple[str, ...] = ()
    fault: Refusal | None = None


def refuse(facts: Facts, *, token: str, foreign: Collection[str]) -> Refusal | None:
    """Why the bridge does not answer a request, or ``None`` when it does.

    Args:
        facts: What the request says about itself.
        token: The bridge's own token.
        foreign: The origins, besides the bridge's own, that may read: the Lab's.

    Returns:
        The first refusal in the order malformed, Host, Origin, Sec-Fetch-Site, method,
        route, token; ``None`` for a request that may be answered.

    Source:
        FORMATS.md, section 7.

    Example:
        >>> rebound = Facts(host="evil.example:8000", tokens=("secret",))
        >>> refuse(rebound, token="secret", foreign=()).status
        421
        >>> refuse(Facts(host="127.0.0.1:8000", tokens=("secret",)), token="secret", foreign=())
    """
    for check in _CHECKS:
        refusal = check(facts, token, foreign)
        if refusal is not None:
            return refusal
    return None


def is_loopback_host(text: str | None) -> bool:
    """Whether a Host value is a loopback name with a port.

    Args:
        text: The value as sent.

    Returns:
        True for ``127.0.0.1``, ``localhost`` and ``[::1]`` in any case, followed by a port
        from 1 to 65535 without leading zeros; False for everything else.

    Example:
        >>> is_loopback_host("LOCALHOST:8000"), is_loopback_host("localhost.evil.example:8000")
        (True, False)
    """
    found = _LOOPBACK_HOST.fullmatch(text or "")
    return found is not None and int(found[1]) <= 65535


def may_read(origin: str | None, host: str | None, foreign: Collection[str]) -> bool:
    """Whether a page of this origin may be answered.

    Args:
        origin: The Origin value as sent; ``None`` passes, since it names no page.
        host: The Host value of the same request: the bridge's own origin is made of it.
        foreign: The other origins that may read.

    Returns:
        True when the origin is the bridge's own or one of ``foreign``, byte for byte.

    Example:
        >>> may_read("http://127.0.0.1:9000", "127.0.0.1:9000", ())
        True
        >>> may_read("null", "127.0.0.1:9000", ())
        False
    """
    return origin is None or origin in foreign or origin == f"http://{(host or '').lower()}"


def _malformed(facts: Facts, _token: str, _foreign: Collection[str]) -> Refusal | None:
    """What the strict reader refused."""
    return facts.fault


def _wrong_host(facts: Facts, _token: str, _foreign: Collection[str]) -> Refusal | None:
    """A name that is not this machine's, or two names at once."""
    named = [facts.host] if facts.authority is None else [facts.authority, facts.host]
    same = facts.authority is None or facts.authority.lower() == (facts.host or "").lower()
    if same and all(map(is_loopback_host, named)):
        return None
    return Refusal(421, "The Host must be 127.0.0.1, localhost or [::1], with a port.")


def _wrong_origin(facts: Facts, _token: str, foreign: Collection[str]) -> Refusal | None:
    """A page that is neither ours nor the Lab."""
    if may_read(facts.origin, facts.host, foreign):
        return None
    return Refusal(403, "Pages of this origin may not read the bridge.")


def _cross_site(facts: Facts, _token: str, _foreign: Collection[str]) -> Refusal | None:
    """Data asked for by another site's page, with no Origin to tell whose."""
    # The local page is exempt: a link in a notebook arrives as a cross-site navigation.
    if facts.place == "page" or facts.origin is not None:
        return None
    if facts.fetch_site in (None, "same-origin", "none"):
        return None
    return Refusal(403, "Another site's page may not ask for the bridge's data.")


def _wrong_method(facts: Facts, _token: str, _foreign: Collection[str]) -> Refusal | None:
    """Anything that does not read."""
    if facts.method in METHODS:
        return None
    return Refusal(405, "The bridge answers GET, HEAD and OPTIONS.")


def _no_route(facts: Facts, _token: str, _foreign: Collection[str]) -> Refusal | None:
    """A path that is in no table."""
    return Refusal(404, "There is nothing at this path.") if facts.place == "unknown" else None


def _wrong_token(facts: Facts, token: str, _foreign: Collection[str]) -> Refusal | None:
    """Data without the session's token."""
    # A browser sends a preflight without credentials, and its answer has no data.
    if facts.place != "data" or facts.method == "OPTIONS":
        return None
    if not any(facts.tokens):
        return Refusal(401, "The token is missing; open the address that the bridge printed.")
    # Every offer is compared, so that the time taken tells only how many there were.
    matches = [secrets.compare_digest(_utf8(offer), _utf8(token)) for offer in facts.tokens]
    if any(matches):
        return None
    return Refusal(403, "The token is wrong; open the address that this run of the bridge printed.")


def _utf8(text: str) -> bytes:
    """Bytes to compare: ``compare_digest`` takes no text beyond ASCII."""
    return text.encode("utf-8", "surrogatepass")


_CHECKS: tuple[Callable[[Facts, str, Collection[str]], Refusal | None], ...] = (
    _malformed,
    _wrong_host,
    _wrong_origin,
    _cross_site,
    _wrong_method,
    _no_route,
    _wrong_token,
)
