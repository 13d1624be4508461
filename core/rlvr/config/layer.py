"""One source of option values (a layer), and the layers of words and of the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from attrs import field, frozen

from rlvr.errors import ConfigError, UnknownNameError, text_of

COMMAND_LINE = "command line"
PYTHON = "the Python call"
_PREFIX = "RLVR_"


@frozen
class Layer:
    """
    One source of option values: a file, the environment, the command line, an algorithm.

    Attributes:
        name: How a person knows it: `command line`, `run.toml`.
        values: Dotted key (`train.lr`) to value.
        where: Key to a more exact place than `name` (a variable, a line), where there is one.
        is_typed: True where the source knows numbers from texts (TOML), so that a text is not
            read as a number.
    """

    name: str
    values: Mapping[str, Any]
    where: Mapping[str, str] = field(factory=dict, kw_only=True)
    is_typed: bool = field(default=False, kw_only=True)

    def place(self, key: str) -> str:
        """The place of a key's value, for messages."""
        return self.where.get(key, self.name)


def typed_options(options: Any) -> dict[str, Any]:
    """
    Options as a caller in Python gives them.

    Raises:
        ConfigError: They are no mapping of texts.
    """
    values = {} if options is None else options
    if isinstance(values, Mapping) and all(isinstance(key, str) for key in values):
        return dict(values)
    found = f"found: {text_of(options, repr)} ({type(options).__name__})"
    raise ConfigError("options were given.", found, 'give a mapping: {"train.lr": 1e-4}')


def overrides_layer(words: Sequence[str]) -> Layer:
    """
    Options as `key=value` words; the last word of a key counts.

    Raises:
        ConfigError: A word is no `key=value`.
    """
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"{word!r} is not key=value",
                do="options are written like train.lr=1e-4, without spaces or dashes",
            )
        values[key.strip()] = value
    return Layer(COMMAND_LINE, values)


def environment_layer(environ: Mapping[str, str], specs: Mapping[str, type]) -> Layer:
    """
    Options from the environment: `RLVR_TRAIN__LR` is `train.lr`, `RLVR_RUN__SEED` is `run.seed`.

    Variables without a double underscore are controls (`RLVR_PLUGINS`, ...) or a plugin's own
    and are passed over, unless one is an option's name with an underscore too few. A variable
    with one that no option answers to becomes an unknown key, which `resolve` refuses.

    Raises:
        UnknownNameError: A variable lacks one underscore of an option's name.
    """
    known = {
        variable_for(namespace, attribute.name): f"{namespace}.{attribute.name}"
        for namespace, cls in specs.items()
        for attribute in attrs.fields(cls)
    }
    lacking = {variable.replace("__", "_"): variable for variable in known}
    values: dict[str, str] = {}
    where: dict[str, str] = {}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(_PREFIX):
            continue
        if "__" not in variable:
            if variable in lacking:
                raise UnknownNameError(
                    f"the environment variable {variable} is set, but means nothing",
                    f"did you mean {lacking[variable]!r} (two underscores)?",
                )
            continue
        namespace, _, name = variable.removeprefix(_PREFIX).partition("__")
        key = known.get(variable, f"{namespace}.{name}".lower())
        values[key] = value
        where[key] = f"environment {variable}"
    return Layer("environment", values, where=where)


def variable_for(namespace: str, name: str) -> str:
    """The environment variable of an option."""
    plain = re.sub(r"[^A-Za-z0-9]", "_", namespace)
    return f"{_PREFIX}{plain}__{name}".upper()
