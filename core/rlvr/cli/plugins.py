"""`rlvr plugins`: list them, show one, write a new one, check one."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import attrs
from attrs import filters

import rlvr.hookspecs as hookspecs
from rlvr.assembly.prerequisites import check_working_directory
from rlvr.cli import plugins_check, plugins_new
from rlvr.cli.options import add_json_flag
from rlvr.cli.output import print_json, table
from rlvr.cli.parser import examples
from rlvr.cli.plugins_report import print_report
from rlvr.cli.watchdog import IMPORT_S, Watchdog, add_limit_flag, with_plugins
from rlvr.cli.watched_child import Step
from rlvr.config.describe import as_text, describe
from rlvr.errors import ExitCode, PluginError, UnknownNameError
from rlvr.heartbeat import say
from rlvr.plugins.host import PluginHost
from rlvr.plugins.offers import OFFERS, label
from rlvr.plugins.registry import Registry
from rlvr.plugins.resolve import load_object
from rlvr.plugins.status import PluginStatus
from rlvr.suggest import did_you_mean

HEADER = ("NAME", "DISTRIBUTION", "STATUS", "OFFERS")
MINIMAL_WIDTHS = (6, 18, 12)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verbs."""
    parser.epilog = examples(
        "rlvr plugins list --hook rlvr_tasks --json",
        "rlvr plugins new sums --kind task",
        "rlvr plugins check sums",
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|show|new|check")
    listing = verbs.add_parser("list", help="all installed plugins with their status")
    listing.add_argument("--hook", metavar="NAME", help="only plugins that implement this hook")
    add_limit_flag(listing, IMPORT_S, "a plugin whose import does not return is broken")
    add_json_flag(listing)
    show = verbs.add_parser("show", help="what one plugin offers, with its options")
    show.add_argument("name", metavar="PLUGIN", help="the plugin's name, as listed")
    add_limit_flag(show, IMPORT_S, "a plugin whose import does not return is broken")
    add_json_flag(show)
    plugins_new.configure(verbs.add_parser("new", help="write the package of a new plugin"))
    plugins_check.configure(verbs.add_parser("check", help="hold a plugin to its promises"))


def main(args: argparse.Namespace) -> int:
    """Run the verb. Listing is done (exit 0) also where a plugin is broken."""
    verbs = {"list": _list, "show": _show, "new": plugins_new.main}
    is_check = args.verb == "check"

    def ended(given: Any, why: str) -> int:
        if is_check:
            return plugins_check.given_up(args, given, why)
        raise PluginError(f"the options of plugin {args.name!r} were to be shown.", f"found: {why}")

    def stopped(given: Any) -> None:
        if is_check:
            part, asked, _, report = given
            report.stopped_at = f"{part}: {asked}"
            print_report(args, report)

    def work(host: PluginHost, watchdog: Watchdog) -> int:
        for note in host.notes:
            say(f"rlvr: {note}")
        if is_check:
            check_working_directory()
            return plugins_check.main(args, host, watchdog, folder)
        if args.verb == "show":  # it imports the modules of options
            watchdog.begin(Step(words="its options", given=None, limit_s=limit_s))
        return verbs[args.verb](args, host)

    limit_s = getattr(args, "limit", IMPORT_S)
    with tempfile.TemporaryDirectory() if is_check else nullcontext("") as folder:
        return with_plugins(
            work, limit_s=limit_s, forks=args.forks, given_up=ended, stopped=stopped
        )


def _list(args: argparse.Namespace, host: PluginHost) -> int:
    plugins = host.plugins
    if args.hook is not None:
        if args.hook not in hookspecs.__all__:
            hint = did_you_mean(args.hook, hookspecs.__all__)
            hooks = f"hooks: {', '.join(hookspecs.__all__)}"
            raise UnknownNameError(f"no hook named {args.hook!r}.", hint, hooks)
        plugins = tuple(plugin for plugin in plugins if args.hook in plugin.hooks)
    if args.json:
        print_json([_facts(plugin) for plugin in plugins])
    else:
        rows = [
            (p.name, p.origin, p.status, _told(p) if p.is_active else p.reason) for p in plugins
        ]
        print(table(HEADER, rows, MINIMAL_WIDTHS))
    return ExitCode.DONE


def _show(args: argparse.Namespace, host: PluginHost) -> int:
    statuses = [status for status in host.plugins if status.name == args.name]
    if not statuses:
        Registry(host).active(args.name)  # raises what is known about the name
    described = [_description(status, host) for status in statuses]
    if args.json:
        print_json(described[0] if len(described) == 1 else described)
    else:
        print("\n\n".join(_text(one) for one in described))
    return ExitCode.DONE


def _facts(plugin: PluginStatus) -> dict[str, Any]:
    return attrs.asdict(plugin, filter=filters.exclude("error"))


def _told(plugin: PluginStatus) -> str:
    """The parts that an active plugin offers, and the events that it observes."""
    parts = [f"{label}: {', '.join(names)}" for label, names in plugin.offers.items()]
    if heard := _heard(plugin.hooks):
        parts.append(f"listens: {', '.join(hook.removeprefix('rlvr_') for hook in heard)}")
    return " · ".join(parts) or "nothing"


def _heard(hooks: Iterable[str]) -> list[str]:
    return [hook for hook in hooks if hook not in OFFERS]


def _description(status: PluginStatus, host: PluginHost) -> dict[str, Any]:
    offers = {
        label(hook): [_offer(r) for r in getattr(host, label(hook))() if r.provider == status.name]
        for hook in OFFERS
        if hook in status.hooks and status.is_active
    }
    return {**_facts(status), "offers": offers}


def _offer(record: Any) -> dict[str, Any]:
    offer: dict[str, Any] = {"name": record.name, "summary": record.summary}
    if target := getattr(record, "config", None):
        try:
            rows = describe({record.option_namespace: load_object(target, record.provider)})
        except PluginError as error:
            offer["problem"] = str(error)
        else:
            plain = filters.exclude("value", "origin")
            offer["options"] = [attrs.asdict(row, filter=plain) for row in rows]
    return offer


def _text(described: dict[str, Any]) -> str:
    lines = [
        f"{described['name']}: {described['distribution']} {described['version']}, "
        f"{described['status']}"
    ]
    if described["reason"]:
        lines.append(f"  {described['reason']}")
    for kind, offers in described["offers"].items():
        lines.append(f"\n{kind}")
        for offer in offers:
            lines.append(f"  {offer['name']}  {offer['summary']}".rstrip())
            if "problem" in offer:
                lines.append(f"    options unknown: {offer['problem']}")
            for row in offer.get("options", []):
                lines.append(f"    {row['key']} = {as_text(row['default'])}  {row['help']}")
    if heard := _heard(described["hooks"]):
        lines.append(f"\nlistens to\n  {', '.join(heard)}")
    return "\n".join(lines)
