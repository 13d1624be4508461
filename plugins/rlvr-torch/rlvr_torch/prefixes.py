"""The old name of `rlvr_torch.packed`."""

from __future__ import annotations

from rlvr_torch.packed import Extent, supervised_hidden

__all__ = ["Extent", "supervised_hidden"]
