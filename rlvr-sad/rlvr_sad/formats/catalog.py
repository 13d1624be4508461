"""The formats of all active plugins, and the choice of one for a record."""

from __future__ import annotations

from functools import cache
from typing import Any

from attrs import frozen

from rlvr import PluginError, UnknownNameError, offered, target_of
from rlvr_sad.formats.spec import Adapter, FormatSpec


@frozen
class Format:
    """A format with its adapter."""

    name: str
    provider: str
    summary: str
    adapter: Adapter


@cache
def formats() -> tuple[Format, ...]:
    """
    All formats that active plugins offer, in the order in which they are asked.

    Raises:
        PluginError: An adapter cannot be imported, lacks a method, or two have one name.
    """
    found: dict[str, Format] = {}
    for offer in sorted(
        offered("sad_formats", FormatSpec), key=lambda o: (o.record.order, o.record.name)
    ):
        spec, provider = offer.record, offer.provider
        if spec.name in found:
            raise PluginError(
                f"two plugins offer the format {spec.name!r}.",
                f"found: {found[spec.name].provider} and {provider}",
                f"leave one out: RLVR_DISABLE_PLUGINS={provider}",
            )
        adapter = target_of(spec.target, provider)()
        if not all(callable(getattr(adapter, name, None)) for name in ("claims", "read")):
            raise PluginError(
                f"the format {spec.name!r} of plugin {provider!r} was asked for.",
                f"{spec.target} has no claims() and read()",
                "see: docs/sad/formats.md",
            )
        found[spec.name] = Format(spec.name, provider, spec.summary, adapter)
    return tuple(found.values())


def format_named(name: str) -> Format:
    """
    The format of that name.

    Raises:
        UnknownNameError: There is none.
    """
    for one in formats():
        if one.name == name:
            return one
    raise UnknownNameError(
        f"no format named {name!r}.",
        f"there are: {', '.join(one.name for one in formats())}",
        "see: rlvr sad formats",
    )


def claimant(record: Any) -> Format | None:
    """
    The first format that claims the record.

    Raises:
        PluginError: An adapter failed at that; the plugin is named.
    """
    for one in formats():
        try:
            is_claimed = one.adapter.claims(record)
        except Exception as error:  # the plugin border
            raise PluginError(
                f"the format {one.name!r} of plugin {one.provider!r} was asked for a record.",
                f"claims() raised {type(error).__name__}: {error}",
                f"mend it, or leave it out: RLVR_DISABLE_PLUGINS={one.provider}",
            ) from error
        if is_claimed:
            return one
    return None
