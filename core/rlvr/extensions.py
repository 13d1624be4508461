"""Records that plugins offer through a hook that another plugin specified.

A plugin that has extension points of its own names a module of hook specifications,
`RLVR_HOOKSPECS = "my_plugin.hookspecs"`; its functions are marked with `rlvr.hookspec` and begin
with the plugin's name. Other plugins implement them with `rlvr.hookimpl`, and mark the
implementation `optionalhook=True` where they are also used without that plugin.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from attrs import frozen

from rlvr.errors import PluginError
from rlvr.plugins.host import PluginHost
from rlvr.plugins.resolve import load_object as target_of

__all__ = ["Offer", "offered", "target_of"]


@frozen
class Offer:
    """One record that a plugin yielded, and the plugin's name."""

    provider: str
    record: Any


@cache
def _host() -> PluginHost:
    return PluginHost.load()


def offered(hook: str, record: type[Any], host: PluginHost | None = None) -> list[Offer]:
    """
    The records that all active plugins yield from a hook of a plugin's own, in order.

    Args:
        hook: The hook's name.
        record: What each yielded record has to be.
        host: The plugins; None: those that are installed, loaded once.

    Raises:
        PluginError: No active plugin specifies the hook, or a plugin's answer cannot be used (the
            plugin is named).
    """
    offers: list[Offer] = []
    for provider, answer in (host or _host()).extension(hook):
        is_many = isinstance(answer, Iterable) and not isinstance(answer, str | bytes)
        for one in answer if is_many else [answer]:
            if isinstance(one, record):
                offers.append(Offer(provider, one))
                continue
            found = f"yielded {type(one).__name__}, expected {record.__name__}"
            raise PluginError(
                f"plugin {provider!r} was asked for what it offers through {hook!r}.",
                f"it {f'raised {one!r}' if isinstance(one, Exception) else found}",
                f"mend it, or leave it out: RLVR_DISABLE_PLUGINS={provider}",
            ) from (one if isinstance(one, Exception) else None)
    return offers
