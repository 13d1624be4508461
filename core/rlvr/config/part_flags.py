"""Options of the chosen parts written as flags: `--sandbox docker`, `--teacher hf:PATH`.

Which flags there are is known only when the plugin is: the parser keeps what is not its own, and
`part_layer` reads it once the parts are chosen. The core knows no name of any plugin.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from attrs import frozen

from rlvr.config.coerce import coerce
from rlvr.config.layer import COMMAND_LINE, Layer
from rlvr.config.schema import OptionSchema, options_of
from rlvr.errors import ConfigError, UnknownNameError
from rlvr.suggest import nearest

_OVERRIDE = re.compile(r"[A-Za-z_]\w*(\.\w+)+=")
_NUMBER = re.compile(r"-\.?\d")


class _Flags(Protocol):
    """The methods of an `ArgumentParser` that are used here."""

    prog: str
    _option_string_actions: dict[str, argparse.Action]

    def flags(self) -> list[str]: ...


@frozen(kw_only=True)
class PartFlags:
    """
    The flags of a command line that the command itself does not have.

    Attributes:
        given: Flag and the value that follows it, in order; None where none does.
        command: `rlvr run`, for messages.
        own: The command's flags.
    """

    given: tuple[tuple[str, str | None], ...] = ()
    command: str = "rlvr"
    own: tuple[str, ...] = ()


def split_flags(words: Sequence[str], parser: _Flags) -> tuple[list[str], PartFlags]:
    """
    Split a command line: words for the parser, and flags that it does not have.

    A flag takes the word after it unless that is a flag or a `namespace.key=value`.

    Raises:
        UnknownNameError: A flag with a dot: options with their namespace are no flags.
    """
    kept: list[str] = []
    given: list[tuple[str, str | None]] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        flag, equals, value = word.partition("=")
        if word == "--":
            kept += [word, *waiting]
            break
        if not flag.startswith("--") or flag in parser._option_string_actions:
            kept.append(word)
            continue
        if "." in flag:
            raise unknown_flag(word, parser.prog, parser.flags())
        if equals:
            given.append((flag, value))
        elif waiting and _is_value(waiting[0]):
            given.append((flag, waiting.pop(0)))
        else:
            given.append((flag, None))
    return kept, PartFlags(given=tuple(given), command=parser.prog, own=tuple(parser.flags()))


def _is_value(word: str) -> bool:
    return not _OVERRIDE.match(word) and (not word.startswith("-") or bool(_NUMBER.match(word)))


def part_layer(
    flags: PartFlags, tiers: Sequence[Mapping[str, type]], overrides: Mapping[str, object]
) -> Layer:
    """
    The flags as options of the chosen parts.

    Args:
        flags: As the parser left them.
        tiers: Namespace to options class, of task and reward first, then of the other parts: a
            flag of the domain means the same whatever algorithm or backend is chosen with it.
        overrides: The `key=value` words of the same command line.

    Raises:
        UnknownNameError: A flag that is no option of these parts.
        ConfigError: A flag that means two options, lacks its value, has one that it cannot take,
            or says something else than a `key=value` of the same command line.
    """
    known = [options_of(specs) for specs in tiers]
    values: dict[str, object] = {}
    for flag, value in flags.given:
        schema = _meant(flag, known, flags)
        values[schema.key] = given = _value(flag, value, schema)
        if overrides.get(schema.key, given) != given:
            raise ConfigError(
                f"{flag} and {schema.key} are the same option.",
                f"found: {flag} {given} and {schema.key}={overrides[schema.key]}",
                "give one of them",
            )
    return Layer(COMMAND_LINE, values)


def flag_of(key: str) -> str:
    """The flag of a dotted key: `--time-limit` for `plugin.time_limit`."""
    return "--" + key.rpartition(".")[2].replace("_", "-")


def flags_of(keys: Sequence[str], own: Collection[str]) -> dict[str, str]:
    """The flag of each key of a tier: none of those in `own`, and no other key's."""
    flags = {key: flag_of(key) for key in keys}
    taken = list(flags.values())
    return {k: f for k, f in flags.items() if f not in own and taken.count(f) == 1}


def unknown_flag(flag: str, command: str, known: Collection[str]) -> UnknownNameError:
    """The error for a flag that does not exist, with the nearest one."""
    name, _equals, value = flag.partition("=")
    hint = ""
    if "." in name and name.startswith("--"):
        hint = f"options are written without dashes: {name.strip('-')}={value or 'VALUE'}"
    elif name.startswith("-"):
        close = nearest(name.lstrip("-"), [k.lstrip("-") for k in known])
        hint = f"did you mean '--{close}'?" if close else ""
    return UnknownNameError(
        f"unknown argument {flag!r} of {command!r}.", hint, f"try: {command} --help"
    )


def _meant(
    flag: str, known: Sequence[Mapping[str, OptionSchema]], flags: PartFlags
) -> OptionSchema:
    wanted = flag.replace("_", "-")
    tiers = [[schema for key, schema in tier.items() if flag_of(key) == wanted] for tier in known]
    matches = next(filter(None, tiers), [])
    if not matches:
        every = [flag_of(key) for tier in known for key in tier]
        raise unknown_flag(flag, flags.command, [*flags.own, *every])
    if len(matches) > 1:
        raise ConfigError(
            f"{flag} can mean {' or '.join(schema.key for schema in matches)}.",
            do=f"write the one you mean: {matches[0].key}=VALUE",
        )
    return matches[0]


def _value(flag: str, value: str | None, schema: OptionSchema) -> str:
    if value is None and schema.wanted is not bool:
        raise ConfigError(
            f"{flag} was given without a value.",
            f"expected: {schema.expected}",
            schema.line,
        )
    if value is None:
        return "true"
    if schema.wanted is bool:
        try:
            coerce(value, bool)
        except ValueError as error:
            raise ConfigError(
                f"{flag} {value} was given.",
                f"found: {flag} is true or false, and {value!r} is neither",
                f"write {flag}, or {flag}=false; options are key=value",
            ) from error
    return value
