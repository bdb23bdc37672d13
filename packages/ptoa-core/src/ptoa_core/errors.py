"""Every exception and warning that ptoa raises on purpose.

::

    PtoaError(Exception)
      FormatError(PtoaError, ValueError)    data is not what the formats say
        JsonError                           not the strict JSON that the formats allow
        SpecError                           not a model spec; ``problems`` lists what is wrong
        LinkError                           not a link to a spec
        TensorError                         a tensor's text, shape and clipping disagree
        FrameError                          not a trace frame, health frame or hello
        FileError                           not a .pta file, run file or spec
      SettingError(PtoaError, ValueError)   an argument or an environment variable cannot be used
      MissingExtraError(PtoaError, ImportError)   a package is missing; says which extra brings it
    PtoaWarning(UserWarning)                the work went on, and something was left out

A reader raises a ``FormatError`` or an ``OSError`` and nothing else, so
``except (ValueError, OSError)`` is enough around a stranger's data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .validate import Problem

__all__ = [
    "FileError",
    "FormatError",
    "FrameError",
    "JsonError",
    "LinkError",
    "MissingExtraError",
    "PtoaError",
    "PtoaWarning",
    "SettingError",
    "SpecError",
    "TensorError",
    "missing_extra",
]

# What each extra brings, in words that a user would search for.
_EXTRAS = {
    "torch": "PyTorch 2.0 or newer",
    "hf": "transformers",
    "lightning": "lightning",
}


class PtoaError(Exception):
    """Any error that ptoa raises on purpose."""


class FormatError(PtoaError, ValueError):
    """Data that is not what the formats say.

    Example:
        >>> issubclass(FormatError, ValueError)
        True
    """


class JsonError(FormatError):
    """Text that is not the strict JSON of ``FORMATS.md``, section 2."""


class SpecError(FormatError):
    """A model spec that cannot be used.

    Attributes:
        problems: What ``validate`` found, worst first; empty when reading stopped at the
            first wrong type.

    Example:
        >>> SpecError("the output names no block").problems
        ()
    """

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        """Keep ``problems`` beside the message."""
        super().__init__(message)
        self.problems: tuple[Problem, ...] = tuple(problems)


class LinkError(FormatError):
    """Text that is no link to a model spec, or a spec that does not fit into one."""


class TensorError(FormatError):
    """A tensor whose text, shape and clipping do not agree, or that cannot be encoded."""


class FrameError(FormatError):
    """An object that is no trace frame, health frame, diagnosis or hello."""


class FileError(FormatError):
    """A file that is no .pta file, no run file and no bare spec."""


class SettingError(PtoaError, ValueError):
    """An argument or an environment variable that cannot be used."""


class MissingExtraError(PtoaError, ImportError):
    """A package that an optional feature needs is not installed."""


class PtoaWarning(UserWarning):
    """The work went on, and something was left out or renamed."""


def missing_extra(extra: str, needed_for: str) -> MissingExtraError:
    """The error to raise where an optional package is missing.

    Args:
        extra: ``torch``, ``hf`` or ``lightning``.
        needed_for: What the user called, as they would write it.

    Returns:
        An exception to raise ``from None``.

    Raises:
        SettingError: If no extra has that name.

    Example:
        >>> str(missing_extra("torch", "watch(model)"))
        'watch(model) needs PyTorch 2.0 or newer: pip install "papertoanything[torch]"'
    """
    if extra not in _EXTRAS:
        raise SettingError(f"no extra is named {extra!r}; there are {', '.join(_EXTRAS)}")
    return MissingExtraError(f'{needed_for} needs {_EXTRAS[extra]}: pip install "papertoanything[{extra}]"')
