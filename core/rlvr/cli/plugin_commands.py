"""`rlvr PLUGIN COMMAND ...`: the subcommands that plugins offer."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr.cli.output import table
from rlvr.errors import ExitCode, UnknownNameError, explain
from rlvr.log import setup
from rlvr.nearest import did_you_mean
from rlvr.plugins.host import PluginHost
from rlvr.plugins.known import distribution_for
from rlvr.plugins.registry import Registry
from rlvr.plugins.resolve import load_object


def run_plugin_command(plugin: str, words: Sequence[str], own: Sequence[str]) -> int:
    """
    Run `words` as a command of a plugin; without one, list those it has.

    Args:
        plugin: First word of the command line, no command of rlvr's own.
        words: What follows.
        own: rlvr's own commands, for the suggestion.

    Raises:
        UnknownNameError: No plugin of that name, or no such command of it.
        PluginError: The plugin is installed but not active, or is ours and not installed.
    """
    host = PluginHost.load()
    names = [status.name for status in host.plugins]
    if plugin not in names and distribution_for("plugin", plugin) is None:
        hint = did_you_mean(plugin, [*own, *names])
        raise UnknownNameError(
            explain(
                f"unknown command {plugin!r}.",
                f"there are: {', '.join(own)}    {hint}".rstrip(),
                "try: rlvr --help",
            )
        )
    Registry(host).active(plugin)
    offered = {c.name: c for c in host.commands() if c.provider == plugin}
    if not words or words[0] in ("-h", "--help"):
        print(_listing(plugin, [(c.name, c.summary) for c in offered.values()]))
        return ExitCode.DONE
    chosen = offered.get(words[0])
    if chosen is None:
        raise UnknownNameError(
            explain(
                f"plugin {plugin!r} has no command {words[0]!r}.",
                f"there are: {', '.join(offered) or 'none'}    "
                f"{did_you_mean(words[0], offered)}".rstrip(),
                f"try: rlvr {plugin} --help",
            )
        )
    setup()  # else structlog's own default logs on standard output, among the results
    result: int = load_object(chosen.target, plugin)(list(words[1:]))
    return result


def _listing(plugin: str, commands: Sequence[tuple[str, str]]) -> str:
    if not commands:
        return f"plugin {plugin!r} offers no commands; see: rlvr plugins show {plugin}"
    return f"usage: rlvr {plugin} COMMAND ...\n\n" + table(("COMMAND", "SUMMARY"), commands)
