"""For samplers of plugins that have the tokens drawn elsewhere: the group sampler's own loop."""

from __future__ import annotations

from rlvr.builtin.group_sampler import GroupSampler

__all__ = ["GroupSampler"]
