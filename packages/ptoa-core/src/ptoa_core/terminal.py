"""A stranger's text on a terminal, made harmless.

A block's label comes from a file or a link that somebody sent. Printed as it is, it can
move the cursor, set the window's title, hide text or reverse the order of what follows.
``escape`` leaves letters of every script alone and writes everything else as an escape.
"""

from __future__ import annotations

__all__ = ["escape", "shown"]

# Printable for Python, yet drawn as nothing: they make two names look alike.
_INVISIBLE = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, range(0xFE00, 0xFE10)))
)


def escape(text: str) -> str:
    r"""One line of ``text`` in which every character that could act is written out.

    Control characters of both sets, line and paragraph separators, bidirectional marks,
    characters without a width, spaces other than U+0020 and lone surrogates become
    ``\xNN``, ``\uNNNN`` or ``\UNNNNNNNN``. A backslash stays as it is: the result is for
    reading, not for reading back.

    Args:
        text: Any text.

    Returns:
        Text that fits on one line and encodes as UTF-8.

    Source:
        ``README.md``, "Privacy": names in a file or a link are a stranger's text.

    Example:
        >>> escape("layers.0 \x1b[2J\u202e模型")
        'layers.0 \\x1b[2J\\u202e模型'
    """
    if text.isprintable() and not _INVISIBLE.intersection(text):
        return text
    return "".join(map(_escaped, text))


def _escaped(char: str) -> str:
    """``char`` itself, or its escape."""
    if char.isprintable() and char not in _INVISIBLE:
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown(value: object, limit: int = 60) -> str:
    """A short form of any value for an error message, on one line.

    Args:
        value: What was found.
        limit: The most characters of a text that are shown.

    Returns:
        Python's spelling of text and numbers, cut to ``limit``; the kind and size of
        everything else, whose own ``repr`` could be endless.

    Example:
        >>> shown("a" * 100, limit=5)
        "'aaaaa'... (100 characters)"
        >>> shown([1, 2, 3])
        'a list of 3'
    """
    if isinstance(value, str):
        return _shown_text(value, limit)
    if value is None or isinstance(value, (bool, float)):
        return repr(value)
    if isinstance(value, int):
        # Python refuses to spell integers of more than 4,300 digits.
        return repr(value) if value.bit_length() <= 128 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object with {len(value)} keys"
    return f"a {type(value).__name__}"


def _shown_text(text: str, limit: int) -> str:
    """``repr`` of the first ``limit`` characters."""
    if len(text) <= limit:
        return _invisible_escaped(repr(text))
    return f"{_invisible_escaped(repr(text[:limit]))}... ({len(text)} characters)"


def _invisible_escaped(text: str) -> str:
    """``text`` without the characters that ``repr`` takes for printable."""
    return text if not _INVISIBLE.intersection(text) else "".join(map(_escaped, text))
