"""What the commands have in common: files, a format, and how refusals are told."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rlvr import ConfigError
from rlvr_sad.formats.catalog import format_named
from rlvr_sad.sessions.record import Rejected
from rlvr_sad.sessions.stream import files_of

_TOLD = 20


def parser_of(name: str, description: str, *examples: str) -> argparse.ArgumentParser:
    """The parser of `rlvr sad NAME`; its help ends with the examples."""
    return argparse.ArgumentParser(
        prog=f"rlvr sad {name}",
        description=description,
        epilog="\n  ".join(["examples:", *examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_files(parser: argparse.ArgumentParser) -> None:
    """FILE... and --format."""
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files or folders")
    parser.add_argument("--format", default="", metavar="NAME", help="read as this format only")


def checked_files(options: argparse.Namespace) -> list[Path]:
    """
    The files that were given; the format is checked too.

    Raises:
        UnknownNameError: No such file, or no such format.
    """
    if options.format:
        format_named(options.format)
    return files_of(options.files)


def check_some(trajectories: int, refused: int, *, is_strict: bool = False) -> None:
    """
    Refuse input of which nothing could be read; where that is asked for, any that was refused.

    Raises:
        ConfigError: Says how many of each.
    """
    if refused and (is_strict or not trajectories):
        raise ConfigError(
            "trajectories were to be read.",
            f"found: {trajectories} trajectories, {refused} records refused (see above)",
            "mend the records, or leave --strict out" if trajectories else "see: rlvr sad formats",
        )


class Refusals:
    """Tells refused records on standard error: each with file, line and reason."""

    def __init__(self) -> None:
        self.count = 0

    def tell(self, refused: Rejected) -> None:
        """One more; after some, only the count goes on."""
        self.count += 1
        if self.count <= _TOLD:
            print(f"refused: {refused}", file=sys.stderr)

    def close(self, trajectories: int, *, is_strict: bool) -> None:
        """
        The last word.

        Raises:
            ConfigError: Nothing was read at all, or something was refused and that is forbidden.
        """
        if self.count > _TOLD:
            print(f"refused: and {self.count - _TOLD} more records", file=sys.stderr)
        check_some(trajectories, self.count, is_strict=is_strict)
