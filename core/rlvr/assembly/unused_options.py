"""Options of installed parts that a command does not use: left out, or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from rlvr.config.layers import Layer
from rlvr.config.schema import options_of
from rlvr.errors import UnknownNameError
from rlvr.plugins.registry import Registry
from rlvr.specs import PartSpec


def without_foreign(layer: Layer, specs: Mapping[str, type], registry: Registry) -> Layer:
    """
    The layer without options of installed parts that this command does not use.

    So one run file serves `rlvr run`, `rlvr eval` and `rlvr score`. Misspelt names stay, and are
    refused later.
    """
    foreign = set(registry.namespaces()) - set(specs)
    kept = {k: v for k, v in layer.values.items() if k.partition(".")[0] not in foreign}
    return attrs.evolve(layer, values=kept)


def refuse_foreign(layers: Sequence[Layer], specs: Mapping[str, type], registry: Registry) -> None:
    """
    Refuse options of parts that a run does not use: they would change nothing.

    Raises:
        UnknownNameError: Names the option, the parts that have it, and how to choose one.
    """
    known = options_of(specs)
    for layer in layers:
        for key in layer.values:
            owners = [] if key in known else registry.owners(key)
            if not owners:
                continue
            raise UnknownNameError(
                f"no part of this run has the option {key!r} (from {layer.place(key)}).",
                f"found: it belongs to {', '.join(f'{o.kind} {o.name}' for o in owners)}",
                f"leave it out, or choose {_choice(owners[0])}",
            )


def _choice(owner: PartSpec) -> str:
    """The flag, or the algorithm, that chooses a part."""
    if owner.kind in ("loss", "advantage"):
        return f"run.{owner.kind}={owner.name}, or an algorithm that has it"
    return f"--{owner.kind} {owner.name}"
