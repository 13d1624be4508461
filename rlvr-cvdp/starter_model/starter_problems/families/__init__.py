"""Every problem family, by name."""

from __future__ import annotations

import random
from collections.abc import Callable

from ..draft import Draft
from . import (
    arbiters,
    arith,
    codes,
    counters,
    edges,
    fsm,
    logic,
    memory,
    queues,
    select,
    shift,
    timing,
)

Family = Callable[[random.Random], Draft]

_MODULES = (
    logic,
    arith,
    select,
    counters,
    shift,
    edges,
    codes,
    timing,
    memory,
    fsm,
    queues,
    arbiters,
)
FAMILIES: dict[str, Family] = {
    family.__name__: family for module in _MODULES for family in module.FAMILIES
}
