"""Options as rows for people: `config show`, narrowed help, and the reference page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from rlvr.config.coerce import type_name
from rlvr.config.layers import DEFAULT, Options
from rlvr.config.schema import options_of

TABLE = "| option | default | type | meaning |\n| --- | --- | --- | --- |"


@frozen(kw_only=True)
class OptionRow:
    """One option, its value and where that came from."""

    key: str
    value: Any
    origin: str
    default: Any
    type: str
    unit: str
    choices: tuple[Any, ...]
    help: str

    @property
    def values(self) -> str:
        """The type of its values and their unit; or the values that it may have."""
        if self.choices:
            return "one of " + ", ".join(map(as_text, self.choices))
        return self.type + (f", {self.unit}" if self.unit else "")


def describe(specs: Mapping[str, type], options: Options | None = None) -> list[OptionRow]:
    """Every option of `specs`, in order of declaration; without `options` at its default."""
    return [
        OptionRow(
            key=key,
            value=options.values[key] if options is not None else schema.default,
            origin=options.origin[key] if options is not None else DEFAULT,
            default=schema.default,
            type=type_name(schema.wanted),
            unit=schema.unit,
            choices=schema.choices,
            help=schema.help,
        )
        for key, schema in options_of(specs).items()
    ]


def as_text(value: Any) -> str:
    """A value as it is written on the command line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        items = [as_text(item) for item in value]
        is_plain = all(
            item and item == item.strip() and not set(item) & set(',["') for item in items
        )
        return ",".join(items) if is_plain else json.dumps(list(value))
    return str(value)


def reference_markdown(specs: Mapping[str, type]) -> str:
    """A section for each namespace with a table of its options."""
    lines: list[str] = []
    for namespace, cls in specs.items():
        lines += [f"### `{namespace}`", "", _first_sentence(cls), ""]
        lines += [TABLE, *map(_markdown_row, describe({namespace: cls})), ""]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_row(row: OptionRow) -> str:
    default = f"`{as_text(row.default)}`" if as_text(row.default) else "(empty)"
    values, meaning = (re.sub(r"([|*])", r"\\\1", text) for text in (row.values, row.help))
    return f"| `{row.key}` | {default} | {values} | {meaning} |"


def _first_sentence(cls: type) -> str:
    doc = (cls.__doc__ or "").strip()
    return doc.partition("\n\n")[0].replace("\n    ", " ") if doc else cls.__name__
