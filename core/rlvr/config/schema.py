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
from rlvr.errors import PartError, PluginError, RlvrError, text_of


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


def made(namespace: str, cls: type, values: Mapping[str, Any], given: str = "") -> Any:
    """
    The record of options with these values, the others at their default.

    Args:
        namespace: Of the options.
        cls: Their class.
        values: By the names of its fields.
        given: The value in words, where it is one.

    Raises:
        ValueError, TypeError: It refuses a value.
        PartError: A validator, converter or factory of its author raised something else.
    """
    try:
        return cls(**values)
    except (ValueError, TypeError, RlvrError):
        raise
    except BaseException as error:  # the plugin border
        from rlvr.plugins.author_error import passes, said  # here: help imports no plugins

        if passes(error):
            raise
        do = "correct the plugin (--debug shows the traceback), or choose another part"
        raise PartError(
            f"{_whose(namespace, cls)} cannot be used", f"found: {given}it raised {said(error)}", do
        ) from error


def defaults_of(namespace: str, cls: type) -> Any:
    """
    The record with every option at its default.

    Raises:
        PluginError: The class is no attrs class, or its defaults do not make a record, or an
            annotation is missing or names what its module does not have.
    """
    problem = "it is no attrs class"
    if isinstance(cls, type) and attrs.has(cls):
        try:
            types = _types_of(cls)  # of an import under TYPE_CHECKING nothing is known
            if without := [f.name for f in attrs.fields(cls) if f.name not in types]:
                raise TypeError(f"{', '.join(without)} has no annotation, such as: float")
            return made(namespace, cls, {})
        except RlvrError:
            raise
        except Exception as error:  # the plugin border: annotations are evaluated
            problem = text_of(error)
    raise PluginError(
        f"{_whose(namespace, cls)} cannot be used",
        problem,
        "every option is a field made with rlvr.option(default, help)",
    )


def _whose(namespace: str, cls: Any) -> str:
    """Options in words: their plugin, namespace and class."""
    if not isinstance(cls, type):
        return f"the options of {namespace!r} ({text_of(cls, repr)})"
    from rlvr.plugins.discovery import owner_of  # here: help imports no plugins

    owner = owner_of(cls.__module__)
    plugin = f"plugin {owner.name!r}: " if owner else ""
    return f"{plugin}the options of {namespace!r} ({cls.__module__}:{cls.__qualname__})"
