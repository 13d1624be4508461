"""`rlvr completion SHELL`."""

from __future__ import annotations

import argparse
import importlib
import os
import re
from argparse import ArgumentParser
from typing import Any

from rlvr.cli.main import COMMANDS, top_parser
from rlvr.cli.parser import CommandParser, examples
from rlvr.cli.plugin_parser import parser_of
from rlvr.cli.watchdog import Watchdog, with_plugins
from rlvr.cli.watched_child import Step
from rlvr.errors import ExitCode, PrerequisiteError
from rlvr.heartbeat import say
from rlvr.install import pip_install
from rlvr.plugins.author_error import passes, said
from rlvr.plugins.host import PluginHost
from rlvr.plugins.loading import HUNG
from rlvr.plugins.registry import Registry
from rlvr.specs import CommandSpec

_IMPORT_S = 2.0
"""Time that the import of a plugin may take."""
_HELP_S = 5.0
"""Time that a plugin's command may take to say its flags; one imports torch before that."""
SHELLS = ("bash", "zsh", "fish")
_KINDS = {
    **{name: name for name in ("task", "reward", "backend", "sampler", "curriculum")},
    **{"algo": "algorithm", "callbacks": "callback"},
}
"""`args` name of a flag that takes a part's name to the kind of that part."""


def configure(parser: CommandParser) -> None:
    """Declare the argument."""
    parser.epilog = examples(
        "rlvr completion bash > ~/.rlvr.bash      # in ~/.bashrc: source ~/.rlvr.bash",
        "rlvr completion zsh > ~/.rlvr.zsh        # in ~/.zshrc, after compinit: "
        'eval "$(<~/.rlvr.zsh)"',
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

    hung: dict[CommandSpec, str] = {}

    def work(host: PluginHost, watchdog: Watchdog) -> int:
        flagless = dict(hung)
        parsers = _parsers(host, watchdog, args.shell, flagless)
        script = shtab.complete(_every_command(host, parsers), shell=args.shell)
        for name, why in HUNG.items():
            say(f"rlvr: the plugin {name} is left out: {why}")
        for command, why in flagless.items():
            say(f"rlvr: the flags of {command.provider} {command.name} are left out: {why}")
        print(script, flush=True)
        if watchdog.pipe is not None:
            os.dup2(2, 1)  # what a plugin prints as the process ends is no part of it
        return ExitCode.DONE

    return with_plugins(work, limit_s=_IMPORT_S, forks=args.forks, given_up=hung.__setitem__)


def _parsers(
    host: PluginHost, watchdog: Watchdog, shell: str, flagless: dict[CommandSpec, str]
) -> dict[CommandSpec, ArgumentParser]:
    """Parsers of plugins' commands, empty for those in `flagless`; others that fail are added."""
    import shtab

    found = {command: ArgumentParser() for command in host.commands()}
    for command in [command for command in found if command not in flagless]:
        step = Step(words=f"the help of {command.full_name}", given=command, limit_s=_HELP_S)
        watchdog.begin(step)
        try:
            with watchdog.silenced():
                parser = parser_of(command)
                _name_parts(parser, host)
                shtab.complete(parser, shell=shell)  # some it cannot write
            found[command] = parser
        except BaseException as error:  # the plugin border
            if passes(error):
                raise
            flagless[command] = said(error)
        watchdog.end()
    return found


def _every_command(host: PluginHost, parsers: dict[CommandSpec, ArgumentParser]) -> ArgumentParser:
    """One parser of all commands, those of plugins included."""
    top = top_parser()
    top.usage = None
    below = top.add_subparsers()
    for name, (module, summary) in COMMANDS.items():
        own = below.add_parser(name, help=summary)
        importlib.import_module(module).configure(own)
        _name_parts(own, host)
    for plugin in {command.provider: None for command in parsers}:
        if plugin not in below.choices:
            parser = ArgumentParser()  # it takes none of rlvr's flags
            _add(below, plugin, f"commands of {plugin}", parser)
            verbs = parser.add_subparsers()
            for command in [c for c in parsers if c.provider == plugin]:
                _add(verbs, command.name, command.summary, parsers[command])
    for command, parser in parsers.items():
        if command.is_top and command.name not in below.choices:
            _add(below, command.name, command.summary, parser)
    return top


def _add(
    to: argparse._SubParsersAction[Any], name: str, summary: str, parser: ArgumentParser
) -> None:
    """Like `to.add_parser`, which makes the parser itself."""
    to.add_parser(name, help=summary)
    to.choices[name] = parser


def _name_parts(parser: ArgumentParser, host: PluginHost) -> None:
    """Say which words flags take, those of sub-commands too: names of parts, files, or folders."""
    import shtab

    registry, tasks = Registry(host), host.tasks()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            listed = [each.dest for each in action._get_subactions()]
            for name, below in action.choices.items():
                if name not in listed:  # it has no summary: shtab would leave out its flags
                    unnamed = action._ChoicesPseudoAction(name, (), "")
                    action._choices_actions.insert(0, unnamed)
                _name_parts(below, host)
        elif action.choices:  # shtab quotes none of them
            action.choices = [c for c in action.choices if re.fullmatch(r"[\w.+:/@%-]+", str(c))]
        elif action.dest == "plugin" and any(other.dest == "task" for other in parser._actions):
            action.choices = list(dict.fromkeys(n for t in tasks for n in (t.name, t.provider)))
        elif action.dest == "plugin":
            action.choices = [status.name for status in host.plugins if status.is_active]
        elif action.metavar == "PLUGIN":  # broken ones too: one asks what is wrong with them
            action.choices = [status.name for status in host.plugins]
        elif action.dest == "preset":
            action.choices = list(dict.fromkeys(name for task in tasks for name in task.presets))
        elif kind := _KINDS.get(action.dest):
            action.choices = registry.names(kind)
        elif action.metavar in ("FILE", "PATH", "SPEC", "OTHER"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar in ("DIR", "RUN", "auto|DIR"):
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        # shtab does not quote it for zsh, which takes HOST:PORT for a call
        action.metavar = re.sub(r"\W+", "-", str(action.metavar or action.dest))
