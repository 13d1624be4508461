"""`rlvr completion SHELL`."""

from __future__ import annotations

import argparse
import importlib

from rlvr.cli.main import COMMANDS, top_parser
from rlvr.cli.parser import CommandParser, examples
from rlvr.cli.watchdog import Watchdog, with_plugins
from rlvr.errors import ExitCode, PrerequisiteError
from rlvr.heartbeat import say
from rlvr.install import pip_install
from rlvr.plugins.host import PluginHost
from rlvr.plugins.loading import HUNG
from rlvr.plugins.registry import Registry

_IMPORT_S = 2.0
"""Time that the import of a plugin may take: a shell that starts waits for it."""
SHELLS = ("bash", "zsh", "fish")
_KINDS = {
    **{name: name for name in ("task", "reward", "backend", "sampler", "curriculum")},
    **{"algo": "algorithm", "callbacks": "callback"},
}
"""`args` name of a flag that takes a part's name to the kind of that part."""


def configure(parser: CommandParser) -> None:
    """Declare the argument."""
    parser.epilog = examples(
        'eval "$(rlvr completion bash)"           # in ~/.bashrc',
        'eval "$(rlvr completion zsh)"            # in ~/.zshrc, after compinit',
        "rlvr completion fish > ~/.config/fish/completions/rlvr.fish",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell that is to complete words")


def main(args: argparse.Namespace) -> int:
    """
    Print the shell's script: commands, flags, and the names of what is installed now.

    Raises:
        PrerequisiteError: shtab, which writes the script, is not installed.
    """
    try:
        import shtab
    except ImportError as error:
        raise PrerequisiteError(
            f"the completion for {args.shell} was asked for.",
            "found: no shtab, which writes it",
            f"try: {pip_install('rlvr[completion]')}",
        ) from error

    def work(host: PluginHost, _: Watchdog) -> int:
        for name, why in HUNG.items():
            say(f"rlvr: the plugin {name} is left out: {why}")
        print(shtab.complete(_every_command(host), shell=args.shell))
        return ExitCode.DONE

    return with_plugins(work, limit_s=_IMPORT_S, forks=args.forks)


def _every_command(host: PluginHost) -> argparse.ArgumentParser:
    """One parser of all commands, those of plugins included."""
    top = top_parser()
    top.usage = None
    below = top.add_subparsers()
    for name, (module, summary) in COMMANDS.items():
        parser = below.add_parser(name, help=summary)
        importlib.import_module(module).configure(parser)
        for each in [parser, *parser.subparsers()]:
            _name_parts(each, host)
    offered = host.commands()
    for plugin in {command.provider: None for command in offered}:
        if plugin not in below.choices:
            verbs = below.add_parser(plugin, help=f"commands of {plugin}").add_subparsers()
            for command in [c for c in offered if c.provider == plugin]:
                verbs.add_parser(command.name, help=command.summary)
    for command in offered:
        if command.is_top and command.name not in below.choices:
            below.add_parser(command.name, help=command.summary)
    return top


def _name_parts(parser: CommandParser, host: PluginHost) -> None:
    """Say which words a flag takes: names of parts, files, or folders."""
    import shtab

    registry = Registry(host)
    for action in parser._actions:
        if action.dest == "plugin" and parser.has("task"):
            tasks = host.tasks()
            action.choices = list(dict.fromkeys(n for t in tasks for n in (t.name, t.provider)))
        elif action.dest == "plugin":
            action.choices = [status.name for status in host.plugins if status.is_active]
        elif action.metavar == "PLUGIN":  # broken ones too: one asks what is wrong with them
            action.choices = [status.name for status in host.plugins]
        elif kind := _KINDS.get(action.dest):
            action.choices = registry.names(kind)
        elif action.metavar in ("FILE", "PATH", "SPEC", "OTHER"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in ("DIR", "RUN", "auto|DIR"):
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
