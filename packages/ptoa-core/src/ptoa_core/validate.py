"""Whether the blocks of a spec fit together: every problem, none raised.

``validate`` looks at anything (a spec, a parsed JSON object, or neither) and lists what is
wrong with it; ``check`` raises when a reader could not use the spec. Each rule is one
function from the blocks to problems; all take time that grows with the number of blocks
and inputs only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from .errors import JsonError, SpecError
from .jsontext import dumps
from .kinds import KIND_LETTERS, VARIANTS
from .protocol import MAX_BLOCKS
from .spec import ModelSpec, read_spec
from .terminal import shown

__all__ = ["Problem", "check", "validate"]

_MOST_NAMED = 8
_MOST_KEPT = 100


class Problem(NamedTuple):
    """One thing that is wrong with a spec.

    Attributes:
        code: A short name of the rule, such as ``dangling-input``.
        where: The place, such as ``spec.blocks[3].inputs[0]``.
        message: A sentence for the person who made the spec.
        severity: ``error`` when a reader cannot use the spec, else ``warning``.

    Example:
        >>> Problem("no-output", "output", "output names no block", "error").severity
        'error'
    """

    code: str
    where: str
    message: str
    severity: str


def validate(spec: object) -> list[Problem]:
    """Every problem of a spec, errors first.

    Args:
        spec: A ``ModelSpec``, a parsed JSON object, or anything else.

    Returns:
        An empty list for a spec without problems. Where a type is wrong, the rules that
        build on it are not asked.

    Source:
        ``FORMATS.md``, section 1.

    Example:
        >>> block = {"id": "e0", "kind": "embedding", "params": {}, "inputs": ["ghost"]}
        >>> spec = {"v": 1, "name": "x", "blocks": [block], "output": "e0", "origin": {"kind": "lab"}}
        >>> [(problem.code, problem.where) for problem in validate(spec)]
        [('dangling-input', 'spec.blocks[0].inputs[0]')]
    """
    try:
        problems = _problems(spec)
    except Exception as error:  # noqa: BLE001  # an object may raise anything when it is looked at
        problems = [Problem("unreadable", "spec", f"the spec cannot be read: {shown(str(error))}", "error")]
    return sorted(problems, key=lambda problem: problem.severity != "error")


def check(spec: ModelSpec | Mapping[str, Any]) -> ModelSpec:
    """The spec itself, when a reader can use it.

    Args:
        spec: A ``ModelSpec`` or a parsed JSON object.

    Returns:
        ``spec``, or the ``ModelSpec`` that the object describes.

    Raises:
        SpecError: If it has problems of severity ``error``; the message names the first
            ones and ``problems`` holds up to a hundred.

    Example:
        >>> check(ModelSpec("x", [], "u0"))
        Traceback (most recent call last):
        ptoa_core.errors.SpecError: spec.output is 'u0', and no block has that id
    """
    if isinstance(spec, ModelSpec):
        _raise_errors(validate(spec))
        return spec
    read = read_spec(spec)
    _raise_errors(_misfits(read))
    return read


def _raise_errors(problems: Iterable[Problem]) -> None:
    """Raise when there is a problem that is no warning."""
    # A stranger's spec may have a million problems; the first hundred say enough.
    errors = list(islice((problem for problem in problems if problem.severity == "error"), _MOST_KEPT))
    if errors:
        named = "; ".join(problem.message for problem in errors[:_MOST_NAMED])
        raise SpecError(named + ("; and more" if len(errors) > _MOST_NAMED else ""), errors)


def _problems(spec: object) -> list[Problem]:
    """Wrong types first, then what does not fit together among the values that are right."""
    blocks = spec.blocks if isinstance(spec, ModelSpec) else isinstance(spec, Mapping) and spec.get("blocks")
    if isinstance(blocks, list) and len(blocks) > MAX_BLOCKS:
        message = f"the spec has {len(blocks)} blocks, at most {MAX_BLOCKS} are read"
        return [Problem("too-many-blocks", "spec.blocks", message, "error")]
    data = spec.to_dict() if isinstance(spec, ModelSpec) else spec
    problems: list[Problem] = []

    def note(where: str, message: str) -> None:
        problems.append(Problem("type", where, f"{where} {message}", "error"))

    typed = read_spec(data, note)
    problems.extend(_left_out(data))
    problems.extend(_not_json(data))
    problems.extend(_misfits(typed))
    return problems


def _left_out(data: object) -> Iterator[Problem]:
    """Keys that the formats want and that a reader fills in."""
    if not isinstance(data, Mapping):
        return
    for key in ("v", "origin"):
        if key not in data:
            yield Problem("missing", f"spec.{key}", f"spec has no {key!r}", "warning")
    for index, block in enumerate(data.get("blocks") or ()):
        for key in ("params", "inputs"):
            if isinstance(block, Mapping) and key not in block:
                where = f"spec.blocks[{index}]"
                yield Problem("missing", f"{where}.{key}", f"{where} has no {key!r}", "warning")


def _not_json(data: object) -> Iterator[Problem]:
    """The first value that cannot be written."""
    try:
        dumps(data)
    except JsonError as error:
        yield Problem("not-json", "spec", str(error), "error")


def _misfits(spec: ModelSpec) -> Iterator[Problem]:
    """What does not fit together."""
    places: dict[str, int] = {}
    for index, block in enumerate(spec.blocks):
        places.setdefault(block.id, index)
    for rule in _RULES:
        yield from rule(spec, places)


# A rule sees the spec and the index of the first block with each id.
_Rule = Callable[[ModelSpec, Mapping[str, int]], Iterator[Problem]]


def _ids(spec: ModelSpec, places: Mapping[str, int]) -> Iterator[Problem]:
    """Each block has an id of its own."""
    for index, block in enumerate(spec.blocks):
        where = f"spec.blocks[{index}].id"
        if not block.id:
            yield Problem("empty-id", where, f"{where} is empty", "error")
        elif places[block.id] != index:
            message = f"{where} is {shown(block.id)}, which block {places[block.id]} has already"
            yield Problem("duplicate-id", where, message, "error")


def _kinds(spec: ModelSpec, _: Mapping[str, int]) -> Iterator[Problem]:
    """Kinds and variants are in the vocabulary."""
    for index, block in enumerate(spec.blocks):
        where = f"spec.blocks[{index}]"
        variant = block.params.variant
        if block.kind not in KIND_LETTERS:
            message = f"{where}.kind is {shown(block.kind)}, which is no kind of version 1"
            yield Problem("unknown-kind", f"{where}.kind", message, "warning")
        elif variant is not None and variant not in VARIANTS.get(block.kind, ()):
            message = f"{where}.params.variant is {shown(variant)}, which no {block.kind} of version 1 has"
            yield Problem("unknown-variant", f"{where}.params.variant", message, "warning")


def _inputs(spec: ModelSpec, places: Mapping[str, int]) -> Iterator[Problem]:
    """Each input names a block, and an earlier one."""
    for index, block in enumerate(spec.blocks):
        for number, source in enumerate(block.inputs):
            where = f"spec.blocks[{index}].inputs[{number}]"
            if source not in places:
                message = f"{where} of block {shown(block.id)} is {shown(source)}, and no block has that id"
                yield Problem("dangling-input", where, message, "error")
            elif places[source] > index:
                message = f"{where} is {shown(source)}, which does not come before block {shown(block.id)}"
                yield Problem("input-order", where, message, "warning")


def _cycles(spec: ModelSpec, places: Mapping[str, int]) -> Iterator[Problem]:
    """Inputs lead back to blocks without inputs, never in a circle."""
    blocks = [spec.blocks[index] for index in places.values()]
    waiting = {block.id: [source for source in block.inputs if source in places] for block in blocks}
    for circle in _circles(_unresolved(waiting)):
        message = f"the inputs of {_named(circle)} go in a circle"
        yield Problem("cycle", f"spec.blocks[{places[circle[0]]}].inputs", message, "error")


def _unresolved(waiting: Mapping[str, list[str]]) -> dict[str, str]:
    """For each id whose inputs never end, one input that never ends either (Kahn's algorithm)."""
    readers: dict[str, list[str]] = {}
    missing = {block_id: len(sources) for block_id, sources in waiting.items()}
    for block_id, sources in waiting.items():
        for source in sources:
            readers.setdefault(source, []).append(block_id)
    ready = [block_id for block_id, count in missing.items() if count == 0]
    while ready:
        for reader in readers.get(ready.pop(), ()):
            missing[reader] -= 1
            if missing[reader] == 0:
                ready.append(reader)
    return {
        block_id: next(source for source in waiting[block_id] if missing[source])
        for block_id, count in missing.items()
        if count
    }


def _circles(following: Mapping[str, str]) -> Iterator[list[str]]:
    """Each circle among ids that point to at most one other id."""
    walked: dict[str, str] = {}
    for start in following:
        here: str | None = start
        while here is not None and here not in walked:
            walked[here] = start
            here = following.get(here)
        if here is not None and walked[here] == start:
            yield _circle_from(here, following)


def _circle_from(start: str, following: Mapping[str, str]) -> list[str]:
    """The ids of the circle that ``start`` stands on."""
    circle = [start]
    while following[circle[-1]] != start:
        circle.append(following[circle[-1]])
    return circle


def _named(ids: list[str]) -> str:
    """The first ids of a list, in words."""
    named = ", ".join(map(shown, ids[:_MOST_NAMED]))
    return named if len(ids) <= _MOST_NAMED else f"{named} and {len(ids) - _MOST_NAMED} more"


def _output(spec: ModelSpec, places: Mapping[str, int]) -> Iterator[Problem]:
    """The output names a block."""
    if spec.output not in places:
        message = f"spec.output is {shown(spec.output)}, and no block has that id"
        yield Problem("missing-output", "spec.output", message, "error")


def _groups(spec: ModelSpec, places: Mapping[str, int]) -> Iterator[Problem]:
    """Each group names a block of kind group, and no group stands in itself."""
    inside: dict[str, str] = {}
    for index, block in enumerate(spec.blocks):
        if block.group is None:
            continue
        where = f"spec.blocks[{index}].group"
        found = f"{where} of block {shown(block.id)} is {shown(block.group)}"
        if block.group not in places:
            yield Problem("dangling-group", where, f"{found}, and no block has that id", "error")
            continue
        inside.setdefault(block.id, block.group)
        kind = spec.blocks[places[block.group]].kind
        if kind != "group":
            yield Problem("not-a-group", where, f"{found}, which is a block of kind {shown(kind)}", "error")
    for circle in _circles(inside):
        message = f"the groups {_named(circle)} stand inside each other"
        yield Problem("group-circle", f"spec.blocks[{places[circle[0]]}].group", message, "error")


def _ties(spec: ModelSpec, places: Mapping[str, int]) -> Iterator[Problem]:
    """A tied output layer names a block."""
    for index, block in enumerate(spec.blocks):
        tied = block.params.tiedTo
        if tied is not None and tied not in places:
            where = f"spec.blocks[{index}].params.tiedTo"
            yield Problem(
                "dangling-tie", where, f"{where} is {shown(tied)}, and no block has that id", "warning"
            )


_RULES: tuple[_Rule, ...] = (_ids, _kinds, _inputs, _cycles, _output, _groups, _ties)
