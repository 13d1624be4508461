"""`rlvr runs`: list, show, compare and trace runs. Each verb is a module of its own."""

from __future__ import annotations

import argparse
from types import ModuleType

from rlvr.cli import runs_compare, runs_list, runs_show, runs_trace
from rlvr.cli.parser import examples

VERBS: dict[str, ModuleType] = {
    "list": runs_list,
    "show": runs_show,
    "compare": runs_compare,
    "trace": runs_trace,
}
"""Verb to its module: `SUMMARY`, `EXAMPLE`, `configure(parser)` and `main(args)`."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verbs."""
    parser.epilog = examples(*[module.EXAMPLE for module in VERBS.values()][-3:])
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="|".join(VERBS))
    for name, module in VERBS.items():
        module.configure(verbs.add_parser(name, help=module.SUMMARY))


def main(args: argparse.Namespace) -> int:
    """
    Run the verb.

    Raises:
        UnknownNameError: There is no such folder or run.
        ConfigError: The run's `run.json` cannot be read.
    """
    code: int = VERBS[args.verb].main(args)
    return code
