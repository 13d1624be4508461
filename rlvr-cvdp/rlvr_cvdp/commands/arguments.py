"""Parsers and shared options of the subcommands of `rlvr cvdp`."""

from __future__ import annotations

import argparse
from pathlib import Path


def parser_of(
    name: str, description: str, *examples: str, has_dataset: bool = True, has_json: bool = True
) -> argparse.ArgumentParser:
    """The parser of `rlvr cvdp NAME`; the examples are what stands behind `rlvr cvdp`."""
    parser = argparse.ArgumentParser(
        prog=f"rlvr cvdp {name}",
        description=description,
        epilog="\n  rlvr cvdp ".join(["examples:", *examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if has_dataset:
        dataset = "JSON Lines file; default: the starter set"
        parser.add_argument("--dataset", type=Path, help=dataset)
    if has_json:
        parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    return parser
