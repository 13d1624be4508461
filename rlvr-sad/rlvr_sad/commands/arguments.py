"""Shared by the commands: files, a format, and the error for refused records."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlvr import ConfigError, counted
from rlvr_sad.formats.catalog import format_named
from rlvr_sad.sessions.prepare import files_of


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
    Refuse input without a readable record; if `is_strict`, also any refused record.

    Raises:
        ConfigError: Says how many of each.
    """
    if refused and (is_strict or not trajectories):
        raise ConfigError(
            "trajectories were to be read.",
            f"found: {counted(trajectories, 'trajectory')}, "
            f"{counted(refused, 'record')} refused (see above)",
            "mend the records, or leave --strict out" if trajectories else "see: rlvr sad formats",
        )
