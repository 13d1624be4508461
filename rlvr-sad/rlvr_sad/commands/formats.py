"""The subcommand `rlvr sad formats`: what can be read, and who reads it."""

from __future__ import annotations

import argparse
import json

from rlvr_sad.formats.catalog import formats


def formats_command(argv: list[str]) -> int:
    """List the formats in the order in which they are asked."""
    parser = argparse.ArgumentParser(
        prog="rlvr sad formats",
        description="List the formats of trajectories, in the order in which they are asked.",
        epilog="examples:\n  rlvr sad formats\n  rlvr sad formats --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(argv)
    rows = [{"name": f.name, "provider": f.provider, "summary": f.summary} for f in formats()]
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print(f"{row['name']:12}  {row['provider']:10}  {row['summary']}")
    return 0
