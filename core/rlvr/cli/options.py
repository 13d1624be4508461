"""Flags that several commands share, and the part of `--help` that depends on the plugin."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from rlvr.config.coerce import names_in
from rlvr.errors import RlvrError
from rlvr.specs import PartSpec

LIST_HELP = "a,b (or a JSON list, for names with commas)"


def from_on(least: int) -> Callable[[str], int]:
    """The type of a flag that takes a whole number from `least` on."""

    def whole(text: str) -> int:
        with suppress(ValueError):
            if (value := int(text)) >= least:
                return value
        raise argparse.ArgumentTypeError(f"{text} is no whole number from {least} on")

    return whole


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """Add `--json`, unless it is there."""
    if "--json" in parser.format_usage():
        return
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--config`, `--preset`, `--json` and the `key=value` words (`args.overrides`)."""
    add_json_flag(parser)
    parser.add_argument("--config", metavar="FILE", help="TOML or YAML file with options")
    parser.add_argument("--preset", metavar="NAME", help="vetted option values of the task")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="an option, like train.lr=1e-4"
    )


class _Joined(argparse.Action):
    """A list of names with commas, which may also be given one by one."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, f"{before},{values}" if before else values)


def add_run_flags(parser: argparse.ArgumentParser, *, model: bool = True) -> None:
    """
    Add the `run.*` options that say what a command works on, and `--json`; absent ones are None.

    `model` adds `--model` and `--backend`, for commands that sample.
    """
    parser.add_argument("--plugin", metavar="NAME", help="domain plugin: its default task")
    parser.add_argument("--task", metavar="NAME", help="task, where a plugin has several")
    parser.add_argument("--reward", metavar="NAME", help="reward (default: the task's)")
    parser.add_argument("--dataset", metavar="PATH", help="data set (default: the embedded one)")
    if model:
        parser.add_argument(
            "--model",
            metavar="SPEC",
            help="gpt2:new (untrained, needs no file), gpt2:PATH, hf:PATH_OR_ID, another backend's "
            "SCHEME:... or a run's directory (default: the task's starter)",
        )
        parser.add_argument(
            "--backend", metavar="NAME", help="backend (default: the model's, else torch)"
        )
    parser.add_argument("--seed", type=int, metavar="N", help="seed of everything random")
    add_json_flag(parser)


def add_training_flags(parser: argparse.ArgumentParser) -> None:
    """Add the `run.*` options that only training has; absent ones are None."""
    parser.add_argument("--algo", metavar="NAME", help="algorithm (default: grpo)")
    parser.add_argument("--sampler", metavar="NAME", help="sampler (default: the algorithm's)")
    parser.add_argument(
        "--curriculum",
        metavar="NAME",
        help="which problems a step takes: epochs, difficulty, pass-rate, strength (default: as "
        "the task says)",
    )
    parser.add_argument(
        "--callback",
        dest="callbacks",
        action=_Joined,
        metavar="NAME[,NAME]",
        help="observers of the run (default: curve), or none",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="batches of problems to train on")
    parser.add_argument(
        "--max-staleness",
        type=int,
        metavar="N",
        help="steps that sampling may lag behind training (default: 0, strictly on-policy)",
    )


def narrowed_help(words: Sequence[str], own: Collection[str] = ()) -> str:
    """
    The options of the parts that `--plugin` (or `--task`, `--reward`) names, with their flags.

    `--algo`, `run.advantage=` and `run.loss=` add the options of advantage and loss, `--curriculum`
    those of the curriculum, `--callback` those of callbacks. An option has no flag here if the
    command (`own`) or a part shown before has that flag.

    Empty if nothing is named. For a plugin that cannot be used it says why: help never fails.
    """
    reader = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("plugin", "task", "reward", "curriculum", "callback", "algo", "advantage", "loss"):
        reader.add_argument(f"--{name}")
    asked = [w for w in words if w not in ("-h", "--help")]
    for name in ("advantage", "loss"):  # `--loss` is an option of some parts
        asked = [w for w in asked if w.partition("=")[0] != f"--{name}"]
        asked = [re.sub(f"^run.{name}=", f"--{name}=", w) for w in asked]
    try:
        chosen, _ = reader.parse_known_args(asked)
    except argparse.ArgumentError:
        return ""
    if not (chosen.plugin or chosen.task):
        return ""
    try:
        return _options_of(chosen, own)
    except RlvrError as error:
        return textwrap.indent(str(error), "  ")


def _options_of(chosen: argparse.Namespace, own: Collection[str]) -> str:
    from rlvr.config.describe import describe
    from rlvr.config.part_flags import flags_of
    from rlvr.plugins.host import PluginHost
    from rlvr.plugins.registry import Registry
    from rlvr.plugins.resolve import load_object

    registry = Registry(PluginHost.load())
    task = registry.task(chosen.task or chosen.plugin)
    parts = [task]
    owner = "" if chosen.reward else task.provider
    parts.append(registry.find("reward", chosen.reward or task.reward or task.name, owner))
    specs = {p.option_namespace: load_object(p.config, p.provider) for p in parts if p.config}
    flags = flags_of([row.key for row in describe(specs)], own)
    sections = [_section(task, specs, flags)]
    others: list[PartSpec] = []
    algorithm = registry.find("algorithm", chosen.algo) if chosen.algo else None
    for kind in ("advantage", "loss"):
        if name := getattr(chosen, kind):
            others.append(registry.find(kind, name))
        elif algorithm:
            others.append(registry.find(kind, getattr(algorithm, kind), algorithm.provider))
    if chosen.curriculum:
        others.append(registry.find("curriculum", chosen.curriculum))
    for name in names_in(chosen.callback or ""):
        if name.lower() != "none":
            others.append(registry.find("callback", name))
    its = {p: {p.option_namespace: load_object(p.config, p.provider)} for p in others if p.config}
    keys = [row.key for spec in its.values() for row in describe(spec)]
    flags = flags_of(keys, [*own, *flags.values()])
    sections += [_section(part, its.get(part, {}), flags) for part in others]
    return "\n\n".join(sections)


def _section(part: PartSpec, specs: Mapping[str, type], flags: Mapping[str, str]) -> str:
    from rlvr.config.describe import as_text, describe

    title = f"options of {part.full_name} ({part.summary})"
    rows = describe(specs)
    if not rows:
        return f"{title}: none"
    names = {row.key: ", ".join(filter(None, (row.key, flags.get(row.key)))) for row in rows}
    width = max(map(len, names.values()))
    lines = []
    for row in rows:
        is_told = all(as_text(choice) in row.help for choice in row.choices)
        of = row.unit if is_told else row.values
        text = f"{row.help}{f' ({of})' if of else ''} [{as_text(row.default) or 'empty'}]"
        lines.append(f"  {names[row.key].ljust(width)}  {text}")
    return "\n".join([f"{title}:", *lines])
