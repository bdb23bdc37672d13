"""The calls of `papertoanything` that take anything a model can be: a module, a spec, a file.

Each is a plain function. Those that need torch or the bridge's server import it when they are
called, so that importing the package stays cheap and works without either.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ptoa_core import files
from ptoa_core.errors import SettingError
from ptoa_core.spec import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from papertoanything.server import LocalServer
    from ptoa_core.frames import TraceFrame
    from ptoa_torch import Watch
    from ptoa_torch.roles import Matcher

__all__ = [
    "as_spec",
    "capture",
    "from_module",
    "is_module",
    "load",
    "register_matcher",
    "report",
    "save",
    "serve",
    "watch",
]


def as_spec(obj: Any, example_input: Any = None) -> ModelSpec:
    """The spec of anything that stands for a model.

    Args:
        obj: A `ModelSpec` (given back as it is), a dict, JSON text, the path of a `.pta`, a run
            file or a bare spec, or a PyTorch module.
        example_input: Used only for a module; see `from_module`.

    Returns:
        The spec.

    Raises:
        SettingError: If `obj` is none of these.
        SpecError: If a dict is not a spec.
        JsonError: If text that begins like an object is not JSON.
        OSError: If a path cannot be read.

    Example:
        >>> as_spec('{"v":1,"name":"tiny","blocks":[],"output":"l0","origin":{"kind":"lab"}}').name
        'tiny'
    """
    if isinstance(obj, ModelSpec):
        return obj
    if isinstance(obj, Mapping):
        return ModelSpec.from_dict(obj)
    if isinstance(obj, (str, os.PathLike)):
        return _spec_of_text(os.fspath(obj))
    if is_module(obj):
        return from_module(obj, example_input)
    raise SettingError(
        f"cannot make a spec from {type(obj).__name__}: give a PyTorch module, a ModelSpec, a dict, "
        "JSON text, or the path of a .pta, a run file or a spec"
    )


def _spec_of_text(text: str) -> ModelSpec:
    """The spec that is written in `text`, or lies at the path `text`; no path begins with a brace."""
    if text.lstrip("\ufeff \t\r\n").startswith("{"):  # the JSON reader says what is wrong with a mark
        return ModelSpec.from_json(text)
    return files.load(text)[0]


def is_module(obj: Any) -> bool:
    """Whether `obj` is a PyTorch module; asks without importing torch.

    Example:
        >>> is_module("model.pt")
        False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(obj, torch.nn.Module)


def load(path: str | os.PathLike[str]) -> tuple[ModelSpec, TraceFrame | None]:
    """The spec in a file, and its recorded forward pass if there is one.

    Args:
        path: A `.pta`, a run file or a bare spec. The content decides, not the name.

    Returns:
        The spec, and the trace of a `.pta` that has one. A run file's frames are read by
        `papertoanything.health.RunFile.read`.

    Raises:
        OSError: If the file cannot be read.
        FormatError: If it is none of the three, or damaged; the message names the place.

    Example:
        >>> import tempfile
        >>> from ptoa_core import SpecBuilder
        >>> builder = SpecBuilder("tiny")
        >>> spec = builder.build(output=builder.tokens(vocab=4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     load(save(spec, folder + "/tiny.pta"))[0].name
        'tiny'
    """
    return files.load(path)


def save(
    model_or_spec: Any,
    path: str | os.PathLike[str],
    example_input: Any = None,
    trace: TraceFrame | None = None,
) -> str:
    """Write a `.pta` file, to drop on the Lab or the local page; replaces a file that is there.

    The file appears whole or not at all.

    Args:
        model_or_spec: Anything that `as_spec` takes.
        path: Where to write.
        example_input: For a module: one forward pass with it is recorded into the file.
        trace: A recorded forward pass to write instead.

    Returns:
        The path, as given.

    Raises:
        OSError: If the file cannot be written; an existing file is then unchanged.
        SettingError: If `model_or_spec` stands for no model.

    Source:
        FORMATS.md, section 6.
    """
    spec = as_spec(model_or_spec, example_input)
    if trace is None and example_input is not None and is_module(model_or_spec):
        trace = capture(model_or_spec, example_input, spec=spec)
    return files.save(spec, path, trace)


def from_module(
    model: Any, example_input: Any = None, *, strategy: str = "auto", name: str | None = None
) -> ModelSpec:
    """The architecture of a PyTorch module, as `ptoa_torch.from_module` reads it.

    Args:
        model: The module. It runs in eval mode without gradients, and is put back as it was.
        example_input: A tensor, a tuple of positional arguments, or a dict of keyword arguments.
        strategy: `auto`, `fx`, `hooks` or `tree`.
        name: The spec's name; the class name when it is left out.

    Raises:
        MissingExtraError: If PyTorch is not installed.

    Source:
        README.md, "How a model becomes blocks".
    """
    from ptoa_torch import from_module as read

    return read(model, example_input, strategy=strategy, name=name)


def register_matcher(
    match: Any, name: str = "", *, kind: str | None = None, params: Any = None, label: Any = None
) -> Matcher:
    """Say what a module of your own is drawn as, before the reader's own table is asked.

    Args:
        match: With `kind`: a module class, a tuple of them, or a function from a module to True or
            False. Without: a function from a module to a `ptoa_torch.roles.Role`, or None to pass.
        name: What the row is about, for error messages.
        kind: The block's kind, as `mlp` or `group`.
        params: The block's params as a mapping, or a function from the module to them.
        label: What the block is called, or a function from the module to it; its path by default.

    Returns:
        The row; `row.remove()` takes it out again. The latest row is asked first.

    Raises:
        SettingError: If the row can never be used.
        MissingExtraError: If PyTorch is not installed.

    Source:
        README.md, "How a model becomes blocks".
    """
    from ptoa_torch import register_matcher as register

    return register(match, name, kind=kind, params=params, label=label)


def capture(
    model: Any,
    example_input: Any,
    max_elems: int = 65536,
    *,
    spec: ModelSpec | None = None,
    step: int = 0,
    loss: float | None = None,
    max_frame_elems: int = 4_000_000,
) -> TraceFrame:
    """One forward pass as a trace frame: what each block gave out.

    Args:
        model: The module. It runs in eval mode without gradients, and is put back as it was.
        example_input: A tensor, a tuple of positional arguments, or a dict of keyword arguments.
        max_elems: The most values sent of one tensor; a larger one is cut to its leading corner.
        spec: The model's spec, when it was already read.
        step: The training step that the frame says it shows.
        loss: The loss that the frame carries.
        max_frame_elems: The most values sent in the whole frame.

    Raises:
        MissingExtraError: If PyTorch is not installed.

    Source:
        FORMATS.md, sections 4 and 5.
    """
    from ptoa_torch import capture as record

    return record(
        model, example_input, max_elems, spec=spec, step=step, loss=loss, max_frame_elems=max_frame_elems
    )


def watch(
    model: Any,
    optimizer: Any = None,
    every: int = 10,
    val_loss: float | Callable[[], float] | None = None,
    open: bool = True,
    **options: Any,
) -> Watch:
    """Stream the health of a training run to a browser tab on this machine, and to a run file.

    Args:
        model: The module being trained. Its weights and its results stay exactly the same.
        optimizer: Its optimizer, whose own hooks then count the steps.
        every: Steps between two frames.
        val_loss: A number, or a function that measures it.
        open: Whether to open a browser.
        **options: Those of `ptoa_torch.watch`: `example_input`, `server`, `run_file`, `hist`,
            `update_ratio`, `attention`, `val_every`, `warn_nonfinite`, `spec`, `sinks`, `lab_url`.

    Returns:
        The running watch: a context manager with `step(loss)`, `log(...)` and `close()`.

    Raises:
        MissingExtraError: If PyTorch is not installed.

    Source:
        README.md, "What watch measures".
    """
    from ptoa_torch import Watch

    return Watch(model, optimizer, every, val_loss, open, **options)


def report(
    spec_or_watch_or_path: Any, path: str | os.PathLike[str] | None = None, *, force: bool = False
) -> str:
    """Write the local page with a model or a run inside: one HTML file that needs no server and no network.

    Args:
        spec_or_watch_or_path: A `Watch` (its run file, or the frames that are kept where it has none),
            the path of a `.pta`, a run file or a spec, or anything else that `as_spec` takes.
        path: Where to write. Without it, a free name in the current folder, made from the file's or the
            model's.
        force: Whether a file that is there gives way.

    Returns:
        The path.

    Raises:
        FileExistsError: If `path` exists and `force` is not given.
        FileError: If the data take more than 256 MiB in a report, or the page is not built.
        FormatError: If a file is none of ours, or damaged.
        SettingError: If the first argument stands for no model, or `path` is the file it is made from.
        OSError: If a file cannot be read or written; nothing is left behind.

    Source:
        README.md, "Command line".
    """
    from papertoanything.reporting import write_report

    return write_report(spec_or_watch_or_path, path, force=force)


def serve(spec: Any = None, port: int = 0, lab_url: str | None = None) -> LocalServer:
    """Start the bridge on 127.0.0.1 and give it back running.

    Nothing is printed and no browser is opened: `.url` is the Lab's address, `.local_url` the local
    page's, and `.announce()` prints both.

    Args:
        spec: Anything that `as_spec` takes, or nothing yet.
        port: A fixed port; 0 takes a free one.
        lab_url: The Lab to open: an address, or `local` for the page that the bridge serves.

    Raises:
        OSError: If the port is taken.

    Example:
        >>> with serve() as server:
        ...     server.url.startswith("https://lab.papertoanything.com/?bridge=http://127.0.0.1:")
        True
    """
    from papertoanything.server import LocalServer

    return LocalServer(None if spec is None else as_spec(spec), lab_url, port=port).start()
