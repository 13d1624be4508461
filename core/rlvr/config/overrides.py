"""The layer of `key=value` words on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr.config.layer import Layer
from rlvr.errors import ConfigError

COMMAND_LINE = "command line"


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
