"""For samplers of plugins that have the tokens drawn elsewhere.

`GroupSampler` is the loop over turns; `cut` says where a completion ends, whatever a server made of
the stop conditions.
"""

from __future__ import annotations

from rlvr.builtin.group_sampler import GroupSampler
from rlvr.tokenization.cut import Cut, cut

__all__ = ["Cut", "GroupSampler", "cut"]
