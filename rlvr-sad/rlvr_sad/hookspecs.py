"""The hook that rlvr-sad specifies for plugins of its own: formats of trajectories."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlvr import hookspec

if TYPE_CHECKING:
    from rlvr_sad.formats.spec import FormatSpec


@hookspec
def sad_formats() -> Iterable[FormatSpec]:
    """Offer formats of trajectories: each names an adapter, imported when files are read."""
    raise NotImplementedError
