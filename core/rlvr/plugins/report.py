"""The installed plugins as `rlvr plugins list` shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rlvr.plugins.offers import OFFERS
from rlvr.plugins.status import PluginStatus

HEADER = ("NAME", "DISTRIBUTION", "STATUS", "OFFERS")
MINIMAL_WIDTHS = (6, 18, 12)


def rows(plugins: Iterable[PluginStatus]) -> list[tuple[str, str, str, str]]:
    """One row a plugin, under `HEADER`; the last cell is the reason where it is not active."""
    return [(p.name, p.origin, p.status, _offers(p) if p.is_active else p.reason) for p in plugins]


def as_json(plugins: Iterable[PluginStatus]) -> list[dict[str, Any]]:
    """The same as plain values."""
    return [
        {
            "name": plugin.name,
            "distribution": plugin.distribution,
            "version": plugin.version,
            "status": plugin.status,
            "reason": plugin.reason,
            "offers": {label: list(names) for label, names in plugin.offers.items()},
            "hooks": list(plugin.hooks),
        }
        for plugin in plugins
    ]


def _offers(plugin: PluginStatus) -> str:
    parts = [f"{label}: {', '.join(names)}" for label, names in plugin.offers.items()]
    heard = [hook.removeprefix("rlvr_") for hook in plugin.hooks if hook not in OFFERS]
    if heard:
        parts.append(f"listens: {', '.join(heard)}")
    return " · ".join(parts) or "nothing"
