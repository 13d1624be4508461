"""`rlvr config show`: each option's value, and where it came from."""

from __future__ import annotations

import argparse

from rlvr.cli.options import add_config_flags, add_run_flags, add_training_flags
from rlvr.cli.output import print_json, table
from rlvr.cli.parser import examples
from rlvr.config.describe import as_text, describe
from rlvr.errors import ExitCode
from rlvr.heartbeat import say
from rlvr.plugins.host import PluginHost


def configure(parser: argparse.ArgumentParser) -> None:
    """Add `show`."""
    parser.epilog = examples(
        "rlvr config show --plugin cvdp --algo grpo",
        "rlvr config show --plugin cvdp train.lr=1e-4 --json",
        "rlvr config show --algo dapo",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="show")
    show = verbs.add_parser("show", help="options as `rlvr run` would take them")
    add_run_flags(show)
    add_training_flags(show)
    show.add_argument(
        "--for",
        dest="needs",
        choices=("run", "eval", "score"),
        default="run",
        help="the command whose parts must be installed",
    )
    add_config_flags(show)


def main(args: argparse.Namespace) -> int:
    """Resolve as `rlvr run` would, and print; parts that nobody named may be missing."""
    from rlvr.assembly.configure import configure as resolve_options

    configured = resolve_options(
        args, PluginHost.load(), needs=args.needs, reads_data=False, is_partial=True
    )
    for why in configured.missing:
        say(f"rlvr: not shown: {why}")
    rows = describe(configured.specs, configured.options)
    if args.json:
        print_json(rows)
    else:
        cells = [(row.key, as_text(row.value), row.origin) for row in rows]
        print(table(("OPTION", "VALUE", "FROM"), cells))
    return ExitCode.DONE
