"""The options that a set of configuration classes declares."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

import attrs
from attrs import frozen

from rlvr.config.coerce import type_name
from rlvr.config.fields import CHOICES, HELP, UNIT
from rlvr.errors import PluginError


@frozen(kw_only=True)
class OptionSchema:
    """One declared option. `wanted` is its resolved annotation."""

    key: str
    namespace: str
    field: str
    wanted: Any
    default: Any
    help: str
    unit: str
    choices: tuple[Any, ...]

    @property
    def expected(self) -> str:
        """The allowed values of an option in words: type, unit, choices."""
        if self.choices:
            return f"one of {', '.join(str(choice) for choice in self.choices)}"
        return type_name(self.wanted) + (f" ({self.unit})" if self.unit else "")

    @property
    def line(self) -> str:
        """Key, help line and default, as messages end."""
        return f"{self.key}: {self.help} [default: {self.default}]"


def options_of(specs: Mapping[str, type]) -> dict[str, OptionSchema]:
    """
    Every option, by dotted key, in the order of the namespaces and their fields.

    Raises:
        PluginError: A configuration class is no attrs class, or a field of it has no default.
    """
    found: dict[str, OptionSchema] = {}
    for namespace, cls in specs.items():
        defaults = defaults_of(namespace, cls)
        hints = _types_of(cls)
        for attribute in attrs.fields(cls):
            key = f"{namespace}.{attribute.name}"
            found[key] = OptionSchema(
                key=key,
                namespace=namespace,
                field=attribute.name,
                wanted=hints[attribute.name],
                default=getattr(defaults, attribute.name),
                help=attribute.metadata.get(HELP, ""),
                unit=attribute.metadata.get(UNIT, ""),
                choices=tuple(attribute.metadata.get(CHOICES, ())),
            )
    return found


@cache
def _types_of(cls: type) -> Mapping[str, Any]:
    """The annotations of a class: a command asks a dozen times for those of all classes."""
    return typing.get_type_hints(cls)


def defaults_of(namespace: str, cls: type) -> Any:
    """
    The record with every option at its default.

    Raises:
        PluginError: The class is no attrs class, or its defaults do not make a record, or
            an annotation names what its module does not have.
    """
    problem = "it is no attrs class"
    if attrs.has(cls):
        try:
            _types_of(cls)  # of an import under TYPE_CHECKING nothing is known
            return cls()
        except (NameError, TypeError, ValueError) as error:
            problem = str(error)
    raise PluginError(
        f"the options of {namespace!r} ({cls.__module__}:{cls.__qualname__}) cannot be used",
        problem,
        "every option is a field made with rlvr.option(default, help)",
    )
