"""See a PyTorch model, and watch it train, in the Paper To Anything Lab.

Nothing is uploaded: a link carries the architecture in its fragment, the live bridge answers on
127.0.0.1 only, and a `.pta` file stays where you wrote it::

    import papertoanything as ptoa

    ptoa.show(model, example_input)                  # prints and opens a link
    with ptoa.watch(model, optimizer, every=10) as w:
        ...                                          # the training loop, unchanged

Importing this package imports neither torch nor the bridge's server; a call that needs one of
them imports it then, and says which extra to install when it is missing.
"""

from __future__ import annotations

# `show` names a module and a function. Importing the module here first makes Python set the
# package attribute once, before the function takes the name, whatever a script imports later.
import papertoanything.show as _show_module
from papertoanything.api import (
    as_spec,
    capture,
    from_module,
    load,
    register_matcher,
    report,
    save,
    serve,
    watch,
)
from papertoanything.link import from_url, to_url
from papertoanything.spec import BlockHealth, BridgeHello, HealthFrame, ModelSpec, TensorStats, TraceFrame

show = _show_module.show

__version__ = "0.2.0.dev0"

__all__ = [
    "BlockHealth",
    "BridgeHello",
    "HealthFrame",
    "ModelSpec",
    "TensorStats",
    "TraceFrame",
    "__version__",
    "as_spec",
    "capture",
    "from_module",
    "from_url",
    "load",
    "register_matcher",
    "report",
    "save",
    "serve",
    "show",
    "to_url",
    "watch",
]
