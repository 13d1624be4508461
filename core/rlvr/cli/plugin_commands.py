"""`rlvr PLUGIN COMMAND ...` and `rlvr COMMAND ...`: the commands that plugins offer."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from rlvr.border.calls import Border, shown
from rlvr.cli.output import is_reader_gone, table
from rlvr.cli.parser import refusals_are_ours
from rlvr.errors import ExitCode, PluginError, RlvrError, UnknownNameError, refused
from rlvr.heartbeat import hush, tells
from rlvr.install import pip_install
from rlvr.log import setup
from rlvr.plugins.author_error import passes, said
from rlvr.plugins.host import PluginHost
from rlvr.plugins.known import COMMANDS, distribution_for
from rlvr.plugins.registry import Registry
from rlvr.plugins.resolve import load_object
from rlvr.records.owner import apart_from_runs
from rlvr.specs import CommandSpec
from rlvr.suggest import did_you_mean


def run_plugin_command(plugin: str, words: Sequence[str], own: Sequence[str]) -> int:
    """
    Run `words` as a command of a plugin; without one, list those it has.

    `plugin` is a plugin's name, or a command that a plugin offers as a word of its own
    (`CommandSpec.is_top`); `own` are rlvr's commands, for the suggestion.

    Raises:
        UnknownNameError: No plugin and no command of that name, or no such command of the plugin.
        PluginError: The plugin is installed but not active, or is ours and not installed; or two
            plugins offer the command.
    """
    host = PluginHost.load()
    names = [status.name for status in host.plugins]
    if plugin not in names and distribution_for("plugin", plugin) is None:
        givers = {command.provider for command in host.commands()}
        top = _top_command(plugin, [*own, *(name for name in names if name in givers)], host)
        return _call(top, words)
    Registry(host).active(plugin)
    offered = {c.name: c for c in host.commands() if c.provider == plugin}
    if not words or words[0] in ("-h", "--help"):
        print(_listing(plugin, [(c.name, c.summary) for c in offered.values()]))
        return ExitCode.DONE
    chosen = offered.get(words[0])
    if chosen is None:
        raise UnknownNameError(
            f"plugin {plugin!r} has no command {words[0]!r}.",
            f"there are: {', '.join(offered) or 'none'}    "
            f"{did_you_mean(words[0], offered)}".rstrip(),
            f"try: rlvr {plugin} --help",
        )
    return _call(chosen, words[1:])


def _top_command(name: str, others: Sequence[str], host: PluginHost) -> CommandSpec:
    """The command that a plugin offers as a word of its own; `others` are for the suggestion."""
    tops = [command for command in host.commands() if command.is_top]
    found = [command for command in tops if command.name == name]
    if len(found) > 1:
        raise PluginError(
            f"the command {name!r} was asked for.",
            f"several plugins offer it: {', '.join(c.provider for c in found)}",
            f"try: rlvr {found[0].provider} {name}",
        )
    if found:
        return found[0]
    if distribution := COMMANDS.get(name):
        raise PluginError(
            f"the command {name!r} was asked for.",
            f"it comes with {distribution}, which is not installed or not active",
            f"try: {pip_install(distribution)}; rlvr plugins list",
        )
    words = [*others, *(command.name for command in tops)]
    raise UnknownNameError(
        f"unknown command {name!r}.",
        f"there are: {', '.join(words)}    {did_you_mean(name, words)}".rstrip(),
        "try: rlvr --help",
    )


def _call(command: CommandSpec, words: Sequence[str]) -> int:
    setup()  # else structlog's own default logs on standard output, among the results
    target = load_object(command.target, command.provider)
    promised = "an exit code, or None for 0"
    at = Border(command, command.kind, command.target, promised=promised)
    hush() if command.is_interactive else tells(lambda: command.name)
    with refusals_are_ours(), ExitStack() as held:
        for path in _outs(words):
            held.enter_context(apart_from_runs(path))
        try:
            result: object = target(list(words))
        except BaseException as error:  # the plugin border, but for what `main` says
            is_said = isinstance(error, RlvrError | SystemExit) or passes(error) or refused(error)
            if is_said or (isinstance(error, BrokenPipeError) and is_reader_gone()):
                raise
            raise at.broken(f"it raised {said(error)}", error) from error
    if inspect.iscoroutine(result):
        result.close()
    at.check("" if result is None or isinstance(result, int) else shown(result))
    return int(result) if isinstance(result, int) else ExitCode.DONE


def _outs(words: Sequence[str]) -> list[Path]:
    """Files that the flag `--out PATH`, common to our commands, names: one or none."""
    pairs = [w.split("=", 1) if "=" in w else [w, after] for w, after in pairwise([*words, ""])]
    return [Path(value) for name, value in pairs if name == "--out" and value][-1:]  # argparse's


def _listing(plugin: str, commands: Sequence[tuple[str, str]]) -> str:
    if not commands:
        return f"plugin {plugin!r} offers no commands; see: rlvr plugins show {plugin}"
    return f"usage: rlvr {plugin} COMMAND ...\n\n" + table(("COMMAND", "SUMMARY"), commands)
