"""`ptoa --version`: the five distributions, so that a mixed installation shows."""

from __future__ import annotations

import importlib.util
import re

__all__ = ["DISTRIBUTIONS", "version_lines", "version_of"]

DISTRIBUTIONS = ("papertoanything", "ptoa-core", "ptoa-bridge", "ptoa-torch", "ptoa-integrations")


def version_lines() -> list[str]:
    """Name and version of each distribution, a line each.

    Example:
        >>> version_lines()[0].split()[0]
        'papertoanything'
    """
    width = max(map(len, DISTRIBUTIONS))
    return [f"{name:<{width}}  {version_of(name)}" for name in DISTRIBUTIONS]


def version_of(distribution: str) -> str:
    """The version that the installed package states, or `not installed`.

    Read from the source and not by import: `ptoa_torch` takes seconds to import with PyTorch, and
    cannot be imported without.
    """
    found = importlib.util.find_spec(distribution.replace("-", "_"))
    if found is None or found.origin is None:
        return "not installed"
    with open(found.origin, encoding="utf-8") as source:
        match = re.search(r'^__version__ = "([^"]+)"', source.read(), re.MULTILINE)
    return match[1] if match else "unknown"
