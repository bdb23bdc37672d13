"""The `ptoa` command: a module a subcommand, and `app` that ties them together."""

from __future__ import annotations

from papertoanything.cli.app import build_parser, main

__all__ = ["build_parser", "main"]
