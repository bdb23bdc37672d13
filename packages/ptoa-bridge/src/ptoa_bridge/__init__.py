"""The loopback bridge: shows a model and its training to this machine's own browser.

::

    from ptoa_bridge import Bridge

    with Bridge(spec) as bridge:
        bridge.announce()
        bridge.push_health(frame)
"""

from __future__ import annotations

from .bridge import Bridge
from .browser import open_in_browser

__all__ = ["Bridge", "__version__", "open_in_browser"]

__version__ = "0.2.0.dev0"
