"""Layers of option values, later ones winning, and where each value came from.

field default < task's and algorithm's vetted values < what backend and task propose for the model
and the data set < preset < file < environment < command line
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from rlvr.config.coerce import RangeError, coerce, fault_of_text
from rlvr.config.files import file_layer
from rlvr.config.layer import Layer, environment_layer, overrides_layer
from rlvr.config.schema import OptionSchema, made, options_of
from rlvr.errors import ConfigError, PartError, PluginError, UnknownNameError, text_of
from rlvr.suggest import did_you_mean

__all__ = [
    "Layer",
    "Options",
    "environment_layer",
    "file_layer",
    "overrides_layer",
    "resolve",
    "without_gone",
]

DEFAULT = "default"
GONE = {
    "run.plugin": "run.task, or --plugin",
    "run.out": "--out",
    "verify.alarm": "nothing: it is fixed at 0.1",
    "parity.probe": "parity.threshold=none, which switches it off",
}
"""Options of earlier versions, and what is written instead."""


@frozen(kw_only=True)
class Options:
    """
    Resolved options.

    `values` and `origin` share their keys (dotted) and their order: that of the declaration.
    """

    values: Mapping[str, Any]
    origin: Mapping[str, str]
    records: Mapping[str, Any] = field(repr=False)

    def record(self, namespace: str) -> Any:
        """
        The options of a namespace as an instance of its class.

        Raises:
            UnknownNameError: Nothing declared that namespace.
        """
        if namespace not in self.records:
            raise UnknownNameError(
                f"no options {namespace!r}.",
                f"there are: {', '.join(self.records)}",
                did_you_mean(namespace, self.records),
            )
        return self.records[namespace]


def resolve(specs: Mapping[str, type], layers: Sequence[Layer]) -> Options:
    """
    Every option's value, from the last layer that gives one, else its default.

    `~/` at the start of a text is the home directory: no shell replaces it in a file.

    Args:
        specs: Namespace to the attrs class that declares its options.
        layers: Lowest first. Each is checked whole, also where a later one wins.

    Raises:
        UnknownNameError: A key that no class declares (suggests the nearest).
        ConfigError: A value of the wrong type, or one that its option refuses.
        PluginError: An option's type is none that options may have, or the code of its author
            raised something else than a refusal.
    """
    known = options_of(specs)
    values = {key: schema.default for key, schema in known.items()}
    origin = dict.fromkeys(known, DEFAULT)
    for layer in layers:
        for key, value in layer.values.items():
            if key not in known:
                raise _unknown(key, layer, known)
            values[key] = _typed(known[key], value, layer)
            origin[key] = layer.place(key)
    records = {name: _record(name, cls, known, values, origin) for name, cls in specs.items()}
    return Options(values=values, origin=origin, records=records)


def without_gone(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a run of any version, by the names of this one."""
    kept = {key: value for key, value in values.items() if key not in GONE}
    if "run.plugin" in values and not kept.get("run.task"):
        kept["run.task"] = values["run.plugin"]
    return kept


def _typed(schema: OptionSchema, value: Any, layer: Layer) -> Any:
    try:
        found = coerce(value, schema.wanted, is_typed=layer.is_typed)
    except (ValueError, RecursionError) as error:
        why = f"found: {error}" if isinstance(error, RangeError) else ""
        raise _refused(schema, value, layer.place(schema.key), why) from error
    except TypeError as error:
        raise PluginError(
            f"{schema.key} was given (from {layer.place(schema.key)})",
            f"found: {error}",
            schema.line,
        ) from error
    if isinstance(found, str) and (fault := fault_of_text(found)):
        raise _refused(schema, value, layer.place(schema.key), f"found: {fault}")
    return os.path.expanduser(found) if isinstance(found, str) and found[:2] == "~/" else found


def _record(
    namespace: str,
    cls: type,
    known: Mapping[str, OptionSchema],
    values: Mapping[str, Any],
    origin: Mapping[str, str],
) -> Any:
    own = [schema for schema in known.values() if schema.namespace == namespace]
    given = {schema.field: values[schema.key] for schema in own}
    try:
        return made(namespace, cls, given)
    except (ValueError, TypeError, PartError) as error:
        for schema in own:  # one at a time: which of them is it?
            value, place = values[schema.key], origin[schema.key]
            of_one = f"{schema.key}={text_of(value, repr)} (from {place}): "
            try:
                made(namespace, cls, {schema.field: value}, of_one)
            except (ValueError, TypeError) as single:
                raise _refused(schema, value, place, _sentence(single)) from single
        if isinstance(error, PartError):
            raise
        places = [f"{s.key} ({origin[s.key]})" for s in own if origin[s.key] != DEFAULT]
        raise ConfigError(
            f"the options of {namespace!r} do not go together",
            _sentence(error),
            f"given: {', '.join(places)}",
        ) from error


def _refused(schema: OptionSchema, value: Any, place: str, why: str) -> ConfigError:
    return ConfigError(
        f"{schema.key} cannot be {text_of(value, repr)} (from {place})",
        f"expected: {schema.expected}" + (f"; {why}" if why else ""),
        schema.line,
    )


def _sentence(error: Exception) -> str:
    # attrs' validators put the attribute, the options and the value behind the message
    return text_of(error.args[0] if error.args else error, most=3000)


def _unknown(key: str, layer: Layer, known: Mapping[str, OptionSchema]) -> UnknownNameError:
    if key in GONE:
        asked = f"no option {key!r} any more (from {layer.place(key)})"
        return UnknownNameError(
            asked, "found: an option of an earlier version", f"write {GONE[key]}"
        )
    namespace = key.partition(".")[0]
    siblings = [schema.key for schema in known.values() if schema.namespace == namespace]
    if siblings:
        found = f"{namespace} has: {', '.join(siblings)}"
    else:
        spaces = dict.fromkeys(schema.namespace for schema in known.values())
        found = f"namespaces: {', '.join(spaces)}"
    return UnknownNameError(
        f"no option {key!r} (from {layer.place(key)})", did_you_mean(key, known), found
    )
