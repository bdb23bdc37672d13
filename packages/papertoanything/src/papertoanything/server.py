"""The live bridge, with the two methods that need PyTorch.

`LocalServer` is `ptoa_bridge`'s bridge. The bridge knows no torch, so watching a model on a bridge
that already runs is added here, where both are at hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ptoa_bridge import Bridge

if TYPE_CHECKING:
    from ptoa_torch import TraceWatch, Watch

__all__ = ["FileServer", "LocalServer"]


class LocalServer(Bridge):
    """A bridge on 127.0.0.1 that a browser tab on this machine reads.

    Args:
        spec: The architecture to show first, if there is one yet.
        lab_url: The Lab to open, else the environment's `PTA_LAB_URL`, else the hosted one.
        host: A loopback address; any other is refused.
        port: A fixed port; 0 takes a free one.
        token: The session's secret; a fresh random one when it is left out.
        name: What the bridge calls itself.

    Raises:
        ValueError: If `host` is not loopback, or `lab_url` is no address that can be used.

    Source:
        FORMATS.md, section 7.

    Example:
        >>> with LocalServer() as server:
        ...     server.origin.startswith("http://127.0.0.1:")
        True
    """

    def watch(self, model: Any, optimizer: Any = None, every: int = 10, **options: Any) -> Watch:
        """Watch a training run on this bridge; see `papertoanything.watch`.

        Raises:
            MissingExtraError: If PyTorch is not installed.
        """
        from papertoanything.api import watch

        return watch(model, optimizer, every, server=self, **options)

    def watch_trace(self, model: Any, example_input: Any, every: int = 10) -> TraceWatch:
        """Record a forward pass with `example_input` every `every` steps, and show it on this bridge.

        The bridge's spec is used when it has one; otherwise the model is read first, and its spec shown.

        Raises:
            MissingExtraError: If PyTorch is not installed.
        """
        from ptoa_torch import from_module, watch_trace

        if self.spec is None:
            self.set_spec(from_module(model, example_input))
        return watch_trace(model, example_input, self.push, every=every, spec=self.spec)


class FileServer(LocalServer):
    """A bridge that shows a file, from which nothing more will come.

    Args:
        spec: The architecture in the file.
        lab_url: The Lab to open, as for `LocalServer`.
        file: The file's name, for the page to show; never its path.
        options: What else `LocalServer` takes.

    Example:
        >>> FileServer(file="my run.pta", token="t").local_url
        'http://127.0.0.1:0/#token=t&file=my%20run.pta'
    """

    def __init__(self, spec: Any = None, lab_url: str | None = None, *, file: str, **options: Any) -> None:
        super().__init__(spec, lab_url, **options)
        self._file = file

    @property
    def local_url(self) -> str:
        """The local page's address; token and name are in the fragment, which no browser sends."""
        return f"{super().local_url}&file={quote(self._file, safe='')}"
