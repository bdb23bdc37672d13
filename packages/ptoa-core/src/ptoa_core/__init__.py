"""ptoa-core: the formats of papertoanything, with nothing but the standard library.

A *spec* is an architecture, a *trace* one forward pass, a *frame* one training step. This
package reads, checks and writes them: as links, as .pta and run files, as frames for a
bridge. ``FORMATS.md`` beside the package says what each byte means.

Here stand the names that reading, checking and writing a model need. What follows a
training run is imported from its own module: ``encoded``, ``history``, ``pump``, ``runs``,
``sinks``, ``tensors``; so a script that only opens a link does not load it.
"""

from __future__ import annotations

__version__ = "0.2.0.dev0"

from .builder import SpecBuilder
from .errors import (
    FileError,
    FormatError,
    FrameError,
    JsonError,
    LinkError,
    MissingExtraError,
    PtoaError,
    PtoaWarning,
    SettingError,
    SpecError,
    TensorError,
    missing_extra,
)
from .files import Loaded, load, read, safe_file_name, save, unused_path
from .frames import (
    SEVERITIES,
    BlockHealth,
    BridgeHello,
    Diagnosis,
    FrameTensor,
    HeadPattern,
    HealthFrame,
    TensorStats,
    TraceFrame,
)
from .jsontext import dumps, loads
from .kinds import BLOCK_KINDS, BlockIds
from .labs import Lab, resolve_lab
from .link import from_url, lab_url, to_url
from .protocol import producer
from .spec import (
    SPEC_VERSION,
    Block,
    BlockParams,
    DatasetRef,
    ModelSpec,
    Origin,
    TrainConfig,
)
from .terminal import escape
from .validate import Problem, check, validate

__all__ = [
    "BLOCK_KINDS",
    "SEVERITIES",
    "SPEC_VERSION",
    "Block",
    "BlockHealth",
    "BlockIds",
    "BlockParams",
    "BridgeHello",
    "DatasetRef",
    "Diagnosis",
    "FileError",
    "FormatError",
    "FrameError",
    "FrameTensor",
    "HeadPattern",
    "HealthFrame",
    "JsonError",
    "Lab",
    "LinkError",
    "Loaded",
    "MissingExtraError",
    "ModelSpec",
    "Origin",
    "Problem",
    "PtoaError",
    "PtoaWarning",
    "SettingError",
    "SpecBuilder",
    "SpecError",
    "TensorError",
    "TensorStats",
    "TraceFrame",
    "TrainConfig",
    "__version__",
    "check",
    "dumps",
    "escape",
    "from_url",
    "lab_url",
    "load",
    "loads",
    "missing_extra",
    "producer",
    "read",
    "resolve_lab",
    "safe_file_name",
    "save",
    "to_url",
    "unused_path",
    "validate",
]
