"""`python -m papertoanything`: the `ptoa` command."""

from __future__ import annotations

import sys

from papertoanything.cli import main

if __name__ == "__main__":
    sys.exit(main())
