"""`ptoa inspect SOURCE`: a table of blocks as they nest, or the spec as JSON."""

from __future__ import annotations

import argparse
import fnmatch
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from papertoanything.cli.link import print_link
from papertoanything.cli.source import Subject, add_source, read_source
from papertoanything.cli.table import Column, clip, render
from papertoanything.show import link_for
from ptoa_core.errors import SettingError
from ptoa_core.jsontext import dumps
from ptoa_core.runs import RunFile
from ptoa_core.terminal import shown
from ptoa_core.validate import validate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from papertoanything.cli.console import Console
    from ptoa_core.frames import TraceFrame
    from ptoa_core.spec import Block, ModelSpec

__all__ = ["DESCRIPTION", "EXAMPLES", "HELP", "Row", "add_arguments", "folded", "magnitude", "nested", "run"]

HELP = "print a table of the model's blocks"
DESCRIPTION = (
    "Print a model's blocks as they nest: kind, shape of the output, parameters and their share of all, "
    "operations of the pass, settings and inputs. Equal layers in a row are one row, marked x 12: its "
    "numbers are those of one of them, its share is that of all. The table fits the terminal; --json has "
    "everything."
)
EXAMPLES = """\
  ptoa inspect model.py:GPT --input-shape 1,64
  ptoa inspect model.py:GPT --depth 1
  ptoa inspect model.py:GPT --filter attention
  ptoa inspect pta-runs/GPT-20250101-120000.pta
  ptoa inspect model.py:GPT --json > spec.json"""

_CELL_CHARS = 200  # of a stranger's text; more is never shown in a table
_INDENT_MAX = 12
_PROBLEMS_SHOWN = 5

_COLUMNS = (
    Column("block", 4, 0, "bold"),
    Column("kind", 4, 1, "cyan"),
    Column("label", 24, 2),
    Column("shape", 5, 4),
    Column("params", 5, 3, right=True),
    Column("share", 5, 5, right=True),
    Column("flops", 5, 6, right=True),
    Column("settings", 16, 7, "dim"),
    Column("inputs", 4, 8, "dim"),
)
# Shown in a column of their own, or only in the JSON: a dtype on every row hides what differs.
_NOT_IN_SETTINGS = {"shape", "paramCount", "dtype", "flops", "repeats", "repeatOf"}
_USUAL = {"known": ("run", "traced")}


@dataclass(frozen=True)
class Row:
    """A block at its place.

    Attributes:
        depth: How deep it is nested.
        inside: How many blocks lie in it.
        params: Parameters of the block and of all that lies in it.
        flops: Operations of the pass, likewise.
        times: How many equal rows it stands for, those around it counted too.
        row: How many equal containers in a row it stands for.
    """

    depth: int
    block: Block
    inside: int
    params: int = 0
    flops: float = 0
    times: int = 1
    row: int = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the subcommand takes."""
    add_source(parser)
    parser.add_argument("--json", action="store_true", help="print the spec as JSON instead of a table")
    parser.add_argument(
        "--link", action="store_true", help="also print the link (after JSON, on standard error)"
    )
    parser.add_argument("--depth", metavar="N", type=_depth, help="show blocks nested at most N deep")
    parser.add_argument("--all", action="store_true", help="show each of equal layers in a row")
    parser.add_argument(
        "--filter",
        metavar="TEXT",
        help="show blocks whose id, kind or label holds TEXT (where TEXT has * or ?, matches it), "
        "and what is in them",
    )


def _depth(text: str) -> int:
    """A nesting depth, from 0 on."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a whole number from 0 on")
    return int(text)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the table, or the JSON."""
    subject = read_source(args, console, record=False)
    _report_problems(subject.spec, console)
    if args.json:
        console.json(subject.spec.to_json(indent=2))
        if args.link:
            console.note(link_for(subject.spec))
        return 0
    _print_table(subject, args, console)
    for line in _summary(subject):
        console.line(line)
    if args.link:
        print_link(subject.spec, console)
    return 0


def _report_problems(spec: ModelSpec, console: Console) -> None:
    """Say what is odd about the spec; it is shown all the same."""
    problems = validate(spec)
    for problem in problems[:_PROBLEMS_SHOWN]:
        console.note(problem.message, "warning")
    if len(problems) > _PROBLEMS_SHOWN:
        console.note(f"and {len(problems) - _PROBLEMS_SHOWN:,} more like these", "warning")


def _print_table(subject: Subject, args: argparse.Namespace, console: Console) -> None:
    """The rows that were asked for."""
    rows = nested(subject.spec.blocks)
    total = sum(row.params for row in rows if row.depth == 0)
    if args.filter is None and not args.all:
        rows = folded(rows)
    if args.filter is not None:
        rows = _filtered(rows, args.filter)
        if not rows:
            raise SettingError(f"no block of {shown(subject.spec.name)} matches {shown(args.filter)}")
    if args.depth is not None:
        rows = [row for row in rows if row.depth <= args.depth]
    shapes = _shapes(subject.trace)
    mark = "…" if console.plain("…") == "…" else "..."
    times = "×" if console.plain("×") == "×" else "x"
    cells = [[console.plain(cell) for cell in _cells(row, shapes, args.depth, total, times)] for row in rows]
    for line in render(_COLUMNS, cells, console.width, console.style, mark):
        console.write(line + "\n")
    console.line()


def nested(blocks: Sequence[Block]) -> list[Row]:
    """The blocks in the order of the forward pass, each container before what lies in it.

    Blocks whose group is missing, is no container, or lies in itself stand at the top level.

    Example:
        >>> from papertoanything.spec import Block
        >>> [row.depth for row in nested([Block("g0", "group"), Block("l0", "linear", group="g0")])]
        [0, 1]
    """
    children, roots = _children(blocks)
    rows: list[Row] = []
    seen: set[int] = set()
    for start in (roots, blocks):  # the second pass finds those in a circle of groups
        stack = [(0, block) for block in reversed(start) if id(block) not in seen]
        while stack:
            depth, block = stack.pop()
            if id(block) in seen:
                continue
            seen.add(id(block))
            inside = children.get(block.id, []) if block.kind == "group" else []
            params, flops = _own(block, "paramCount"), _own(block, "flops")
            rows.append(Row(depth, block, len(inside), int(params), flops))
            stack.extend((depth + 1, child) for child in reversed(inside))
    return _added_up(rows)


def _own(block: Block, name: str) -> float:
    """A number that a block says of itself; 0 where it says none."""
    value = block.params.extra.get(name, 0)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else 0


def _added_up(rows: list[Row]) -> list[Row]:
    """The rows with what lies in each added to its own numbers."""
    done: list[Row] = []
    open_sums: list[list[float]] = []  # of the depths below the row at hand
    for row in reversed(rows):
        while len(open_sums) <= row.depth + 1:
            open_sums.append([0, 0])
        params, flops = (
            own + below for own, below in zip((row.params, row.flops), open_sums[row.depth + 1], strict=True)
        )
        open_sums[row.depth + 1 :] = []
        open_sums[row.depth][0] += params
        open_sums[row.depth][1] += flops
        done.append(replace(row, params=int(params), flops=flops))
    return done[::-1]


def folded(rows: Sequence[Row]) -> list[Row]:
    """The rows with equal containers in a row shown once, where the spec marks them (`repeats`).

    Example:
        >>> from papertoanything.spec import Block, BlockParams
        >>> first = Block("g0", "group", BlockParams(extra={"repeats": 2}))
        >>> second = Block("g1", "group", BlockParams(extra={"repeatOf": "g0"}))
        >>> [(row.block.id, row.row) for row in folded(nested([first, second]))]
        [('g0', 2)]
    """
    kept: list[Row] = []
    times = [1]  # of the containers around the row at hand
    hidden: int | None = None  # the depth of a container that is left out
    shown: set[str] = set()
    for row in rows:
        if hidden is not None and row.depth > hidden:
            continue
        extra = row.block.params.extra
        hidden = row.depth if extra.get("repeatOf") in shown else None
        if hidden is not None:
            continue
        del times[row.depth + 1 :]
        count = _count(extra.get("repeats"))
        if count > 1:
            shown.add(row.block.id)
        times.append(times[-1] * count)
        kept.append(replace(row, times=times[-1], row=count))
    return kept


def _count(repeats: object) -> int:
    """How often a container repeats; a stranger may write anything there."""
    return repeats if isinstance(repeats, int) and not isinstance(repeats, bool) and repeats > 1 else 1


def _children(blocks: Sequence[Block]) -> tuple[dict[str, list[Block]], list[Block]]:
    """Blocks by container, and those in none, both in the order of the forward pass."""
    containers = {block.id: block for block in blocks if block.kind == "group"}
    first = _first_run(blocks, containers)
    children: dict[str, list[Block]] = defaultdict(list)
    roots: list[Block] = []
    for block in sorted(blocks, key=lambda b: first.get(b.id, len(blocks))):
        if block.group in containers and block.group != block.id:
            children[str(block.group)].append(block)
        else:
            roots.append(block)
    return children, roots


def _first_run(blocks: Sequence[Block], containers: Mapping[str, Block]) -> dict[str, int]:
    """For each block the place of the first one that runs in it; containers stand first in a spec."""
    named = {block.group for block in blocks}
    first: dict[str, int] = {}
    for place, block in enumerate(blocks):
        if block.id in containers and block.id in named:
            continue
        at: Block | None = block
        while at is not None and at.id not in first:  # also ends a circle of groups
            first[at.id] = place
            at = containers.get(at.group or "")
    return first


def _filtered(rows: Sequence[Row], wanted: str) -> list[Row]:
    """The rows that match, what lies in them, and the containers that they lie in."""
    wanted = wanted.lower()
    kept: list[Row] = []
    around: list[Row] = []  # the containers of the row at hand, outermost first
    shown = 0  # how many of them are among the kept
    within: int | None = None  # the depth of a container that matched
    for row in rows:
        del around[row.depth :]
        shown = min(shown, row.depth)
        within = within if within is not None and row.depth > within else None
        if within is not None or _matches(row.block, wanted):
            kept += [*around[shown:], row]
            shown = row.depth + 1
            within = row.depth if within is None else within
        around.append(row)
    return kept


def _matches(block: Block, wanted: str) -> bool:
    """Whether the block's id, kind or label does."""
    texts = [text.lower() for text in (block.id, block.kind, block.label or "")]
    if any(char in wanted for char in "*?"):
        return any(fnmatch.fnmatchcase(text, wanted) for text in texts)
    return any(wanted in text for text in texts)


def _shapes(trace: TraceFrame | None) -> dict[str, list[int]]:
    """Output shapes of a recorded forward pass, by block id."""
    tensors = trace.tensors if trace is not None else []
    return {key[: -len(":out")]: t.shape for t in tensors if (key := t.key).endswith(":out")}


def _cells(row: Row, shapes: Mapping[str, list[int]], depth: int | None, total: int, times: str) -> list[str]:
    """The cells of one block, in the order of `_COLUMNS`; text as it stands in the spec."""
    block = row.block
    params = block.params.to_dict()
    hidden = row.inside if depth is not None and row.depth == depth else 0
    return [
        "  " * min(row.depth, _INDENT_MAX) + block.id[:_CELL_CHARS],
        block.kind[:_CELL_CHARS],
        (block.label or "")[:_CELL_CHARS]
        + (f" {times} {row.row:,}" if row.row > 1 else "")
        + (f" +{hidden:,} inside" if hidden else ""),
        _numbers(shapes.get(block.id, params.get("shape"))),
        f"{row.params:,}" if row.params else "",
        _share(row.params * row.times, total),
        magnitude(row.flops) if row.flops else "",
        " ".join(_settings(params))[:_CELL_CHARS],
        " ".join(block.inputs[:20])[:_CELL_CHARS],
    ]


def _settings(params: Mapping[str, object]) -> Iterator[str]:
    """`key=value` for each param without a column of its own."""
    for key, value in list(params.items())[:40]:
        if key not in _NOT_IN_SETTINGS and value not in _USUAL.get(key, ()):
            text = value[:_CELL_CHARS] if isinstance(value, str) else dumps(value)[:_CELL_CHARS]
            yield f"{key[:_CELL_CHARS]}={text}"


def _numbers(shape: object) -> str:
    """A shape as `1,64`, the way --input-shape is written."""
    return ",".join(str(n) for n in shape[:16]) if isinstance(shape, (list, tuple)) else ""


def _share(part: int, total: int) -> str:
    """A part of the model's parameters in per cent; nothing for none."""
    if not part or not total:
        return ""
    return f"{100 * part / total:.1f}%" if part >= total / 1000 else "<0.1%"


_UNITS = ("", " k", " M", " G", " T", " P", " E")


def magnitude(number: float) -> str:
    """A large number in three digits and a unit of thousands.

    Example:
        >>> [magnitude(n) for n in (7, 1234, 56_789_000, 999_999)]
        ['7', '1.23 k', '56.8 M', '1.00 M']
    """
    place = 0
    while number >= 999.5 and place < len(_UNITS) - 1:
        number, place = number / 1000, place + 1
    digits = 0 if not place else 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:.{digits}f}{_UNITS[place]}"


def _summary(subject: Subject) -> Iterator[str]:
    """What the table does not say: size, output, origin, and what else the file holds."""
    spec = subject.spec
    texts = (spec.name, spec.output, f"{spec.origin.kind} {spec.origin.source or ''}".strip())
    name, output, origin = (clip(text, _CELL_CHARS, "...") for text in texts)
    count = len(spec.blocks)
    yield f"{name}: {count:,} block{'s' if count != 1 else ''}, output {output}, origin {origin}"
    params, flops = (sum(_own(block, key) for block in spec.blocks) for key in ("paramCount", "flops"))
    if params:
        work = f", {magnitude(flops)} flops in the pass that was read" if flops else ""
        yield f"{int(params):,} parameters{work}"
    if subject.trace is not None:
        yield f"trace: step {subject.trace.step}, {len(subject.trace.tensors):,} tensors"
    if subject.run is not None:
        yield _run_summary(subject.run)


def _run_summary(path: str) -> str:
    """How much of a run there is: frames, steps, the last loss that is known."""
    _, frames = RunFile.read(path)
    if not frames:
        return "run: no frames"
    count = len(frames)
    text = f"run: {count:,} frame{'s' if count != 1 else ''}, steps {frames[0].step} to {frames[-1].step}"
    losses = (frame.loss for frame in reversed(frames))
    loss = next((loss for loss in losses if loss is not None), None)
    return text if loss is None else f"{text}, last loss {loss:.6g}"
