"""SOURCE and the options that go with it: from the command line to a spec, a trace, and a run.

A SOURCE that is a file of ours is read; anything else is `file.py:Name` or `package.module:Name`,
and the model is loaded, given an example input if a shape was asked for, and read.
"""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from papertoanything.model_file import ModelRef, importable, load_model, parse_ref, user_code
from ptoa_core import files
from ptoa_core.errors import SettingError
from ptoa_core.spec import ModelSpec, Origin
from ptoa_core.terminal import shown

if TYPE_CHECKING:
    from papertoanything.cli.console import Console
    from ptoa_core.frames import TraceFrame

__all__ = ["Subject", "add_source", "dimensions", "read_file", "read_source"]

_PYTHON = (".py", ".pyw", ".ipynb")
_MEMORY_WHEN_UNKNOWN = 8 << 30


@dataclass(frozen=True)
class Subject:
    """What SOURCE stands for.

    Attributes:
        spec: The architecture.
        trace: A recorded forward pass, when the file has one or one was asked for.
        run: The path of the run file that SOURCE is, else None.
    """

    spec: ModelSpec
    trace: TraceFrame | None = None
    run: str | None = None


def add_source(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add SOURCE and its options to a subcommand."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        nargs="?" if optional else None,
        help="a spec (JSON), a .pta, a run file, file.py:Name or package.module:Name",
    )
    group = parser.add_argument_group("for a model")
    group.add_argument(
        "--input-shape",
        metavar="1,64",
        type=dimensions,
        action="append",
        help="make an example input of this shape; give it again for a second input",
    )
    group.add_argument(
        "--dtype",
        choices=("long", "float"),
        action="append",
        help="token ids or real numbers; once for all inputs, or once for each "
        "(default: long when the model has an embedding)",
    )
    group.add_argument(
        "--vocab",
        metavar="N",
        type=_count,
        help="token ids are below N (default: the size of the model's first embedding)",
    )


def dimensions(text: str) -> tuple[int, ...]:
    """The shape in text such as `1,64`.

    Raises:
        ArgumentTypeError: If it is anything but whole numbers from 1 on.

    Example:
        >>> dimensions("1,64")
        (1, 64)
    """
    parts = text.split(",")
    if len(parts) > 16 or not all(p.isascii() and p.isdigit() and len(p) < 20 for p in parts):
        raise argparse.ArgumentTypeError(f"{shown(text)} is no shape; write whole numbers, as in 1,64")
    shape = tuple(map(int, parts))
    if 0 in shape:
        raise argparse.ArgumentTypeError(f"{shown(text)} holds nothing: a dimension is 0")
    return shape


def _count(text: str) -> int:
    """A whole number from 1 on that a tensor of token ids can hold."""
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 19 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a whole number from 1 on")
    return int(text)


def read_source(args: argparse.Namespace, console: Console, *, record: bool) -> Subject:
    """The subject that the options name.

    Args:
        args: With `source`, `input_shape`, `dtype` and `vocab`.
        console: Where progress and warnings go.
        record: Whether a model with an example input is also run once for its trace.

    Raises:
        PtoaError: If it cannot be had; the message is for the person who typed.
        OSError: If a file cannot be read.
    """
    source = args.source
    # Path.exists raises where os.path says no: for a name that is too long.
    if os.path.isdir(source):  # noqa: PTH112
        raise SettingError(f"{shown(source)} is a folder, not a file")
    if os.path.exists(source):  # noqa: PTH110
        if source.endswith(_PYTHON):
            raise SettingError(f"say which model in it: {source}:Name")
        if args.input_shape or args.dtype or args.vocab:
            console.note("--input-shape, --dtype and --vocab are for models; this is a file", "warning")
        return read_file(source)
    with console.progress(f"reading {source}"):
        return _read_model(parse_ref(source), args, record=record)


def read_file(path: str) -> Subject:
    """The subject in a `.pta`, a run file or a bare spec."""
    loaded = files.read(path)
    return Subject(loaded.spec, loaded.trace, path if loaded.kind == "run" else None)


def _read_model(ref: ModelRef, args: argparse.Namespace, *, record: bool) -> Subject:
    """Load a model and read its structure, and its forward pass if that is wanted."""
    with importable(ref):
        from ptoa_torch import capture, from_module

        model = load_model(ref)
        example = _example_input(model, args)
        with user_code(f"reading {ref.origin} failed"):
            spec = from_module(model, example)
            spec.origin = Origin("torch", ref.origin)
            trace = capture(model, example, spec=spec) if record and example is not None else None
    return Subject(spec, trace)


def _example_input(model: Any, args: argparse.Namespace) -> Any:
    """A tensor, a tuple of them, or None when no shape was asked for."""
    shapes = args.input_shape or []
    if not shapes:
        return None
    _refuse_over_memory(shapes)
    with user_code("making the example input failed"):  # what lists a model's modules may be its own
        dtypes = _dtype_each(args.dtype or [_usual_dtype(model)], len(shapes))
        inputs = tuple(_tensor(model, s, d, args.vocab) for s, d in zip(shapes, dtypes, strict=True))
    return inputs[0] if len(inputs) == 1 else inputs


def _dtype_each(given: list[str], count: int) -> list[str]:
    """One dtype for each shape."""
    if len(given) == 1:
        return given * count
    if len(given) != count:
        raise SettingError(
            f"--dtype was given {len(given)} times for {count} shapes; give it once or for each"
        )
    return given


def _usual_dtype(model: Any) -> str:
    """Token ids for a model that looks them up, real numbers for any other."""
    return "float" if _first_embedding(model) is None else "long"


def _first_embedding(model: Any) -> Any:
    """The first `nn.Embedding` of the model, or None."""
    import torch

    return next((m for m in model.modules() if isinstance(m, torch.nn.Embedding)), None)


def _tensor(model: Any, shape: tuple[int, ...], dtype: str, vocab: int | None) -> Any:
    """Random numbers of the shape, where the model's weights are and as wide as they are."""
    import torch

    weight = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
    # A generator of our own: the user's code may have seeded the global one.
    generator = torch.Generator().manual_seed(0)
    if dtype == "float":
        return torch.randn(shape, generator=generator).to(weight.device, weight.dtype)
    return torch.randint(_vocab(model, vocab), shape, generator=generator).to(weight.device)


def _vocab(model: Any, given: int | None) -> int:
    """How many token ids there are."""
    if given is not None:
        return given
    embedding = _first_embedding(model)
    if embedding is None:
        raise SettingError("--dtype long needs --vocab N: the model has no nn.Embedding to take it from")
    return int(embedding.num_embeddings)


def _refuse_over_memory(shapes: list[tuple[int, ...]]) -> None:
    """Refuse shapes that no memory holds, before the system takes other programs down for them."""
    wanted = sum(8 * math.prod(shape) for shape in shapes)
    free = _free_memory()
    if wanted > free:
        raise SettingError(f"--input-shape asks for {_size(wanted)}; {_size(free)} of memory are free")


def _free_memory() -> int:
    """Bytes of memory that can still be had, as far as the system says."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return _MEMORY_WHEN_UNKNOWN


def _size(count: int) -> str:
    """Bytes in a unit that fits."""
    return f"{count / 2**30:,.1f} GiB" if count < 2**50 else f"{count / 2**40:,.0f} TiB"
