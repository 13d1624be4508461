"""The subcommand `rlvr sad formats`: what can be read, and who reads it."""

from __future__ import annotations

import json

from rlvr_sad.commands.arguments import parser_of
from rlvr_sad.formats.catalog import formats


def formats_command(argv: list[str]) -> int:
    """List the formats in the order in which they are asked."""
    parser = parser_of(
        "formats",
        "List the formats of trajectories, in the order in which they are asked.",
        "rlvr sad formats",
        "rlvr sad formats --json",
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
