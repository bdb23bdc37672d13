"""Which Lab a page is opened in: the hosted one, another one, or the local page.

The address of a Lab also decides whose browser page may read the bridge, so it is taken
apart strictly: one scheme, one host, nothing hidden in front of or behind it.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from .errors import SettingError
from .protocol import ENV_LAB_URL, LAB_ORIGIN
from .terminal import shown

__all__ = ["LOCAL", "Lab", "resolve_lab"]

LOCAL = "local"

# Compiled when an address is first given, which most processes never do.
_ADDRESS = (
    r"(?i)(?P<scheme>https?)://(?P<host>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>/[A-Za-z0-9._~!$'()*+,;=:@%/-]*)?"
)
_LOOPBACK = r"localhost|127(?:\.[0-9]{1,3}){3}|\[::1\]"
_DEFAULT_PORTS = {"https": 443, "http": 80}


class Lab(NamedTuple):
    """A Lab that pages are opened in.

    Attributes:
        url: Its address, ending where ``?`` or ``#`` can follow; empty for the local page,
            whose address only a running bridge knows.
        origin: Scheme, host and port as a browser sends them in ``Origin``; empty for the
            local page.
        local: Whether it is the page that the bridge itself serves.

    Example:
        >>> resolve_lab("https://lab.example.org:443/x").origin
        'https://lab.example.org'
    """

    url: str
    origin: str
    local: bool


def resolve_lab(lab_url: str | None = None) -> Lab:
    """The Lab that the user chose: the argument, else ``PTA_LAB_URL``, else the hosted one.

    Args:
        lab_url: An address (https, or http on a loopback name), or ``local``.

    Raises:
        SettingError: If the address is anything else: another scheme, a user name, a query,
            a fragment, white space.

    Source:
        ``FORMATS.md``, section 7.

    Example:
        >>> resolve_lab("local").local
        True
        >>> resolve_lab("http://a.org/")
        Traceback (most recent call last):
        ptoa_core.errors.SettingError: lab_url is 'http://a.org/': http is only for a loopback name; use https
    """
    if lab_url is not None:
        return _parsed(lab_url, "lab_url")
    chosen = os.environ.get(ENV_LAB_URL)
    return _parsed(chosen, ENV_LAB_URL) if chosen else Lab(f"{LAB_ORIGIN}/", LAB_ORIGIN, False)


def _parsed(value: object, what: str) -> Lab:
    """The Lab that ``value`` names."""
    if value == LOCAL:
        return Lab("", "", True)
    found = re.fullmatch(_ADDRESS, value) if isinstance(value, str) else None
    if found is None:
        raise SettingError(
            f"{what} is {shown(value)}; an address like {LAB_ORIGIN}/ without a query is wanted, or 'local'"
        )
    scheme, host = found["scheme"].lower(), found["host"].lower()
    if scheme == "http" and not re.fullmatch(_LOOPBACK, host):
        raise SettingError(f"{what} is {shown(value)}: http is only for a loopback name; use https")
    port = int(found["port"]) if found["port"] else _DEFAULT_PORTS[scheme]
    if not 0 < port < 65_536:
        raise SettingError(f"{what} is {shown(value)}: {port} is no port")
    origin = f"{scheme}://{host}" + ("" if port == _DEFAULT_PORTS[scheme] else f":{port}")
    return Lab(origin + (found["path"] or "/"), origin, False)
