"""`file.py:Name` and `package.module:Name`: from what a user types to a model.

The user's code runs here, so three things are kept apart from ours:

- Names. The file is loaded as a member of its package when it lies in one (relative imports work),
  and its folder can be imported from, as when Python runs it. But a file called `random.py` or
  `torch.py` never stands in for the real one, and `sys.path` is put back.
- Output. What the code prints goes to standard error, even past Python's own streams.
- Failures. An exception is told with the user's own lines of the traceback, none of ours; `sys.exit`
  is a failure too, since nothing was loaded.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import itertools
import os
import re
import sys
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptoa_core.errors import PtoaError, SettingError, missing_extra
from ptoa_core.terminal import escape, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType, ModuleType, TracebackType
    from typing import TextIO

__all__ = ["ModelFileError", "ModelRef", "importable", "load_model", "parse_ref", "user_code"]

_FRAMES_SHOWN = 4
_MESSAGE_LINES = 3
_LINE_CHARS = 200
_ALIAS = "_ptoa_"
_INIT = "__init__.py"


class ModelFileError(SettingError):
    """A model could not be had from the user's code; the message may have several lines."""


@dataclass(frozen=True)
class ModelRef:
    """Where a model is: a file or an importable module, and a name in it.

    Attributes:
        path: The file, or None when `module` is to be imported.
        module: The dotted module name, or None.
        name: The name in it; dots reach into classes and namespaces.
    """

    path: str | None
    module: str | None
    name: str

    @property
    def origin(self) -> str:
        """The spec's `origin.source`: without the folders, which would go into every link.

        A file name may hold bytes that are no UTF-8, which JSON cannot: they are written out.
        """
        place = Path(self.path).name if self.path else str(self.module)
        return f"{place.encode('utf-8', 'backslashreplace').decode()}:{self.name}"


def parse_ref(source: str) -> ModelRef:
    r"""Split `file.py:Name` or `package.module:Name` at its last colon.

    Paths may hold colons and spaces; a Windows drive is not taken for a module.

    Raises:
        SettingError: If nothing is named, or the file is not there.

    Example:
        >>> parse_ref("models.gpt:GPT")
        ModelRef(path=None, module='models.gpt', name='GPT')
    """
    place, colon, name = source.rpartition(":")
    drive = len(place) == 1 and place.isalpha() and name[:1] in ("\\", "/")
    if not colon or not place or drive:
        raise SettingError(
            f"no such file: {shown(source)}; a model is written file.py:Name or package.module:Name"
        )
    if not all(part.isidentifier() for part in name.split(".")):
        raise SettingError(
            f"{shown(source)} names no model: {shown(name)} after the colon is not a Python name"
        )
    # Path.is_file raises where os.path says no: for a name that is too long.
    if os.path.isfile(place):  # noqa: PTH113
        return ModelRef(place, None, name)
    if os.path.isdir(place):  # noqa: PTH112
        raise SettingError(f"{shown(place)} is a folder; name the file in it: FOLDER/model.py:{name}")
    if all(part.isidentifier() for part in place.split(".")) and not place.endswith(".py"):
        return ModelRef(None, place, name)
    raise SettingError(f"no such file: {shown(place)}")


def load_model(ref: ModelRef) -> Any:
    """The model that `ref` names, built if it names a class or a function.

    Call it inside `importable`, and keep that open while the model runs: its forward may import.

    Raises:
        MissingExtraError: If PyTorch is not installed.
        ModelFileError: If the code fails, or the name is not a model's.
    """
    module = _load_file(ref.path) if ref.path else _load_module(str(ref.module))
    with user_code(f"{escape(ref.origin)} failed"):
        found = _named(module, ref)
    return _build(found, ref)


@contextlib.contextmanager
def importable(ref: ModelRef) -> Iterator[None]:
    """Make what lies beside the model importable, and nothing installed replaceable by it.

    Afterwards `sys.path` and the current folder are as they were: a script that goes to its own folder
    would take what the command writes along.

    Raises:
        MissingExtraError: If PyTorch is not installed.
    """
    here = Path.cwd()
    folder = _package_root(Path(ref.path).resolve()) if ref.path else here
    before = list(sys.path)
    installed = [entry for entry in before if Path(entry).resolve() != folder]
    guard = _InstalledFirst(_guarded_names(ref), installed)
    sys.path[:] = installed
    sys.meta_path.insert(0, guard)
    try:
        _import_torch()
        sys.path.insert(0, str(folder))
        yield
    finally:
        if guard in sys.meta_path:
            sys.meta_path.remove(guard)
        sys.path[:] = before
        os.chdir(here)


class _InstalledFirst:
    """A finder that looks for some top-level names only where installed packages are."""

    def __init__(self, names: frozenset[str], installed: Sequence[str]) -> None:
        self._names = names
        self._installed = list(installed)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The installed module of that name, or None to let the next finder look."""
        del target
        if path is not None or name not in self._names:
            return None
        return importlib.machinery.PathFinder.find_spec(name, self._installed)


def _guarded_names(ref: ModelRef) -> frozenset[str]:
    """The standard library, PyTorch, and the file's own name: `random.py` may `import random`."""
    own = [_module_name(Path(ref.path).stem)] if ref.path else []
    return frozenset((*sys.stdlib_module_names, "torch", "numpy", *own))


def _import_torch() -> None:
    """PyTorch, imported while nothing of the user's can be taken for it."""
    try:
        import torch  # noqa: F401  so that the user's file finds it loaded
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise missing_extra("torch", "reading a model") from None


@contextlib.contextmanager
def user_code(doing: str) -> Iterator[None]:
    """Run the user's code: its output to standard error, its failures as one `ModelFileError`.

    Args:
        doing: What was being done, to begin the message with: `"model.py failed"`.

    Raises:
        ModelFileError: For any exception but Ctrl+C and our own errors.
    """
    try:
        with _output_to_stderr():
            yield
    except (KeyboardInterrupt, PtoaError):
        raise
    except SystemExit as stop:
        raise ModelFileError(
            f"{doing}: it called sys.exit({stop.code!r}); keep what runs as a script under "
            "`if __name__ == '__main__':`"
        ) from None
    except BaseException as error:
        raise ModelFileError(_told(doing, error)) from error


@contextlib.contextmanager
def _output_to_stderr() -> Iterator[None]:
    """Send standard output to standard error: Python's stream, and the descriptor beneath it."""
    stream = _messages()
    with (
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
        _descriptor_to_stderr(),
    ):
        yield


def _messages() -> TextIO | None:
    """Standard error as a stream of its own: the code may close it, or give it to a logger for good."""
    try:
        number, encoding = sys.stderr.fileno(), sys.stderr.encoding
    except (AttributeError, OSError, ValueError):  # there is none, or it is no file
        return sys.stderr
    return open(number, "w", 1, encoding, "backslashreplace", closefd=False)


@contextlib.contextmanager
def _descriptor_to_stderr() -> Iterator[None]:
    """Point standard output's descriptor at standard error, for C code and child processes."""
    stream, messages = sys.__stdout__, sys.__stderr__
    if stream is None or messages is None:  # a process that was started without them
        yield
        return
    out, err = stream.fileno(), messages.fileno()
    saved = os.dup(out)
    stream.flush()
    os.dup2(err, out)
    try:
        yield
    finally:
        stream.flush()
        os.dup2(saved, out)
        os.close(saved)


# ---- the file


def _load_module(name: str) -> ModuleType:
    """Import an importable module."""
    with _as_script(name), user_code(f"importing {name} failed"):
        return importlib.import_module(name)


def _load_file(path: str) -> ModuleType:
    """Run a file as a module, after the packages that it lies in."""
    with _as_script(path), user_code(f"{escape(path)} failed"):
        for name, file in _levels(path):
            if name not in sys.modules:
                _run(name, file)
        return sys.modules[name]


def _run(name: str, file: Path) -> None:
    """Execute one file as the module `name`; a package when it is an `__init__.py`."""
    folders = [str(file.parent)] if file.name == _INIT else None
    loader = importlib.machinery.SourceFileLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(
        name, file, loader=loader, submodule_search_locations=folders
    )
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]  # None only without a loader
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def _levels(path: str) -> list[tuple[str, Path]]:
    """Module names and files, from the outermost package down to the file itself."""
    file = Path(path).resolve()
    levels = [] if file.name == _INIT else [(_module_name(file.stem), file)]
    folder = file.parent
    while (init := folder / _INIT).is_file():
        levels.append((_module_name(folder.name), init))
        folder = folder.parent
    levels.reverse()
    names = [_free_name(*levels[0]), *(name for name, _ in levels[1:])]
    return [(".".join(names[: i + 1]), file) for i, (_, file) in enumerate(levels)]


def _free_name(name: str, file: Path) -> str:
    """`name`, or an alias when it already means another module, here or among the installed."""
    aliases = (f"{_ALIAS}{name}{number or ''}" for number in itertools.count())
    candidates = itertools.chain([] if name in sys.stdlib_module_names else [name], aliases)
    return next(candidate for candidate in candidates if _is_free(candidate, file))


def _is_free(name: str, file: Path) -> bool:
    """Whether the module name means nothing yet, or the file itself."""
    if name in sys.modules:
        known = getattr(sys.modules[name], "__file__", None)
        return known is not None and Path(known).resolve() == file
    found = importlib.machinery.PathFinder.find_spec(name, sys.path[1:])  # sys.path[0] is the user's folder
    return found is None or (found.origin is not None and Path(found.origin).resolve() == file)


def _package_root(file: Path) -> Path:
    """The folder that the file's outermost package, or the file itself, lies in."""
    folder = file.parent
    while (folder / _INIT).is_file():
        folder = folder.parent
    return folder


def _module_name(text: str) -> str:
    """`text` with what a module name cannot hold replaced."""
    return re.sub(r"\W", "_", text)


@contextlib.contextmanager
def _as_script(source: str) -> Iterator[None]:
    """While the body runs, `sys.argv` is the file's: a parser in it must not read our arguments."""
    before = sys.argv
    sys.argv = [source]
    try:
        yield
    finally:
        sys.argv = before


# ---- the name


def _named(module: ModuleType, ref: ModelRef) -> Any:
    """What the name stands for in the module."""
    found: Any = module
    for part in ref.name.split("."):
        if not hasattr(found, part):
            raise ModelFileError(f"{ref.origin}: there is no {part!r}{_candidates(module)}")
        found = getattr(found, part)
    return found


def _candidates(module: ModuleType) -> str:
    """The models that the module defines, for someone who mistyped one."""
    import torch

    def is_model(value: Any) -> bool:
        local = isinstance(value, type) and value.__module__ == module.__name__
        return isinstance(value, torch.nn.Module) or (local and issubclass(value, torch.nn.Module))

    names = [name for name, value in vars(module).items() if is_model(value)]
    return f"; its models are {', '.join(sorted(names)[:8])}" if names else ""


def _build(found: Any, ref: ModelRef) -> Any:
    """The model: `found` itself, or what it returns when it is called."""
    import torch

    if isinstance(found, torch.nn.Module):
        return found
    if not callable(found) or (isinstance(found, type) and not issubclass(found, torch.nn.Module)):
        raise ModelFileError(
            f"{ref.origin} is {_kind(found)}; "
            "name an nn.Module class, a function that returns a model, or a model"
        )
    needed = _needed_arguments(found)
    if needed:
        raise ModelFileError(_builder_hint(ref, needed))
    with user_code(f"building {escape(ref.origin)} failed"):
        model = found()
    if not isinstance(model, torch.nn.Module):
        raise ModelFileError(f"{ref.origin}() returned {_kind(model)}, not an nn.Module")
    return model


def _kind(value: Any) -> str:
    """What a value is, in words."""
    if isinstance(value, type):
        return f"the class {value.__name__!r}"
    return (
        f"the {type(value).__name__} {shown(value)}" if isinstance(value, (str, int, float)) else shown(value)
    )


def _needed_arguments(function: Any) -> list[str]:
    """The parameters without which a call fails; none when Python cannot say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    some = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in some]


def _builder_hint(ref: ModelRef, needed: list[str]) -> str:
    """How to get around a class that needs arguments."""
    call = f"{ref.name}({', '.join(f'{name}=...' for name in needed[:6])})"
    place = ref.origin.rpartition(":")[0]
    return (
        f"{ref.origin} needs arguments: {', '.join(needed[:6])}. Name a function that builds it instead:\n"
        f"  def build():\n"
        f"      return {call}\n"
        f"  then: {place}:build"
    )


# ---- the failure


def _told(doing: str, error: BaseException) -> str:
    """The message of a failure: what, why, and the user's own lines of the traceback."""
    first, *more = _text_of(error).splitlines()[:_MESSAGE_LINES] or [""]
    lines = [f"{doing}: {type(error).__name__}: {first}", *(f"  {line}" for line in more)]
    lines += _syntax_lines(error) if isinstance(error, SyntaxError) else _frame_lines(error.__traceback__)
    return "\n".join(line[:_LINE_CHARS] for line in lines)


def _text_of(error: BaseException) -> str:
    """The exception's own words; an exception of the user's can fail at that too."""
    try:
        return str(error.msg if isinstance(error, SyntaxError) else error)
    except Exception:  # noqa: BLE001  any error in a stranger's __str__ means the same
        return "(its message cannot be shown)"


def _syntax_lines(error: SyntaxError) -> list[str]:
    """Where the syntax error is: the traceback ends in our loader, not in the file."""
    return [
        f'  File "{_near(error.filename or "?")}", line {error.lineno}',
        f"    {(error.text or '').strip()}",
    ]


def _frame_lines(tb: TracebackType | None) -> list[str]:
    """The last frames that are the user's, as Python prints them."""
    walked = (pair for pair in traceback.walk_tb(tb) if not _is_ours(pair[0]))
    foreign = traceback.StackSummary.extract(walked)
    own = [frame for frame in foreign if not frame.filename.startswith(_LIBRARIES)] or foreign[-1:]
    lines = []
    for frame in own[-_FRAMES_SHOWN:]:
        lines.append(f'  File "{_near(frame.filename)}", line {frame.lineno}, in {frame.name}')
        lines.append(f"    {frame.line}")
    return lines


def _is_ours(frame: FrameType) -> bool:
    """Whether the frame is of this project or of the import system, which loaded the user's file."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS


def _near(path: str) -> str:
    """The path as seen from here, when that is shorter."""
    try:
        return min(path, os.path.relpath(path), key=len)
    except ValueError:  # another drive
        return path


_OURS = {
    "papertoanything",
    "ptoa_core",
    "ptoa_bridge",
    "ptoa_torch",
    "importlib",
    "_frozen_importlib",
    "_frozen_importlib_external",
}
_LIBRARIES = tuple(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib"))
