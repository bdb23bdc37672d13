"""What a module is drawn as, and the rows that users add for modules of their own.

The table of `matchers` knows layers by class and structure. A row of the user's own is asked
before it, the latest first, and what it answers is checked at once: a row that returns something
else, or raises, is named in the error together with the class that it was asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptoa_core.errors import PtoaError, SettingError
from ptoa_core.kinds import BLOCK_KINDS
from ptoa_core.spec import BlockParams

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Matcher", "Role", "own_role", "register_matcher"]

_ROLES = ("block", "transparent", "container")
# They stand for what the model is given, which no module makes.
_KINDS = tuple(kind for kind in BLOCK_KINDS if kind not in ("tokens", "input"))


@dataclass
class Role:
    """What a module is drawn as.

    Attributes:
        role: ``block`` for one block, ``transparent`` for nothing at all (dropout, identity),
            ``container`` for whatever is found inside.
        kind: The block's kind where ``role`` is ``block``.
        params: What is known of the block's params.
        label: What the block is called; None for the module's path.
    """

    role: str
    kind: str | None = None
    params: BlockParams = field(default_factory=BlockParams)
    label: str | None = None


@dataclass(frozen=True, eq=False)
class Matcher:
    """A row of the table: a name, and a function from a module to its role, or None to pass."""

    name: str
    match: Callable[[nn.Module], Role | None]

    def remove(self) -> None:
        """Take the row out again, if it is one of the user's own; once is enough."""
        if self in _OWN:
            _OWN.remove(self)


_OWN: list[Matcher] = []


def register_matcher(
    match: Any, name: str = "", *, kind: str | None = None, params: Any = None, label: Any = None
) -> Matcher:
    """Add a row of your own in front of the table that says what a module is.

    A module that a row knows is drawn as one block, whatever runs inside of it.

    Args:
        match: With ``kind``: a module class, a tuple of them, or a function from a module to
            True or False. Without: a function from a module to its `Role`, or None to pass.
            It is asked about every module that is read and must not change it.
        name: What the row is about, for error messages; the class's or function's name by default.
        kind: The block's kind, one of `ptoa_core.kinds.BLOCK_KINDS` but ``tokens`` and ``input``.
        params: The block's params: `BlockParams`, a mapping with the keys of the format (``d``,
            ``heads``, ``in``, or keys of your own), or a function from the module to either.
        label: What the block is called, a text or a function from the module to one; its path
            by default.

    Returns:
        The row; ``row.remove()`` takes it out again. Rows are asked from the latest to the first.

    Raises:
        SettingError: If the row can never be used. What it answers later is checked when it does.

    Source:
        README.md, "How a model becomes blocks".

    Example:
        >>> from torch import nn
        >>> from ptoa_torch import from_module
        >>> class Mixer(nn.Sequential): ...
        >>> row = register_matcher(Mixer, kind="mlp", params=lambda m: {"d": m[0].in_features})
        >>> model = nn.Sequential(Mixer(nn.Linear(8, 8), nn.ReLU()))
        >>> [(block.kind, block.params.d) for block in from_module(model).blocks]
        [('input', None), ('mlp', 8)]
        >>> row.remove()
    """
    if kind is None:
        if params is not None or label is not None:
            raise SettingError("params and label belong to a kind: give kind as well, or return a Role")
        if isinstance(match, (type, tuple)) or not callable(match):
            raise SettingError(
                f"match must be a function from a module to a Role or None, got {match!r}; "
                "to match a class, say which kind it is"
            )
        row = Matcher(name or _name_of(match), match)
    else:
        if kind not in _KINDS:
            raise SettingError(f"kind must be one of {', '.join(_KINDS)}, got {kind!r}")
        row = Matcher(name or _name_of(match), _rule(_test_of(match), kind, params, label))
    _OWN.insert(0, row)
    return row


def _name_of(match: Any) -> str:
    """What a row is called where the user gave it no name."""
    named = match[0] if isinstance(match, tuple) and match else match
    return str(getattr(named, "__name__", "") or type(named).__name__)


def _test_of(match: Any) -> Callable[[Any], bool]:
    """A function that says whether a row is about a module."""
    classes = match if isinstance(match, tuple) else (match,)
    if classes and all(isinstance(cls, type) for cls in classes):
        return lambda module: isinstance(module, classes)
    if not callable(match):
        raise SettingError(
            f"match must be a module class, a tuple of classes or a function from a module to "
            f"True or False, got {match!r}"
        )
    return lambda module: bool(match(module))


def _rule(test: Callable[[Any], bool], kind: str, params: Any, label: Any) -> Callable[[Any], Role | None]:
    """The function from a module to its role for a row that was given in parts."""

    def match(module: Any) -> Role | None:
        if not test(module):
            return None
        given = params(module) if callable(params) else params
        called = label(module) if callable(label) else label
        if given is None:
            given = {"type": type(module).__name__} if kind == "group" else {}
        # Mappings are read as the format's own, so that `in` and keys of the user's own go through.
        read = BlockParams.from_dict(dict(given)) if isinstance(given, Mapping) else given
        return Role("block", kind, read, called)

    return match


def own_role(module: nn.Module) -> Role | None:
    """The role that a row of the user's own gives to a module; None where none knows it.

    Raises:
        SettingError: If a row raises, or answers with something that is no role.
    """
    for row in tuple(_OWN):
        try:
            role = row.match(module)
        except Exception as error:
            asked = type(module).__name__
            text = f"matcher {row.name!r} raised {type(error).__name__} on {asked}: {error}"
            raise SettingError(text) from error
        if role is not None:
            problem = _problem(role)
            if problem:
                raise SettingError(f"matcher {row.name!r} answered for {type(module).__name__}: {problem}")
            return role
    return None


def _problem(role: Any) -> str | None:
    """What is wrong with a row's answer, in words; None where nothing is."""
    if not isinstance(role, Role):
        return f"got {role!r}, wanted a Role or None"
    given: dict[str, Any] = vars(role)
    wrong = next((text for right, text in _CHECKS if not right(given)), None)
    if wrong is not None:
        return wrong.format(**given)
    try:
        BlockParams.from_dict(role.params.to_dict())
    except PtoaError as error:
        return str(error)
    return None


_CHECKS: tuple[tuple[Callable[[dict[str, Any]], bool], str], ...] = (
    (lambda given: given["role"] in _ROLES, f"role must be one of {', '.join(_ROLES)}, got {{role!r}}"),
    (
        lambda given: given["role"] != "block" or given["kind"] in _KINDS,
        f"kind must be one of {', '.join(_KINDS)}, got {{kind!r}}",
    ),
    (
        lambda given: isinstance(given["params"], BlockParams),
        "params must be BlockParams or a mapping, got {params!r}",
    ),
    (lambda given: isinstance(given["label"], (str, type(None))), "label must be a text, got {label!r}"),
)
