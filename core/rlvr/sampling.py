"""For samplers of plugins that have the tokens drawn elsewhere.

`GroupSampler` is the loop over turns; `cut` says where a completion ends, whatever a server made of
the stop conditions; `with_stop_texts` adds those of an episode.
"""

from __future__ import annotations

from rlvr.rollouts.group import GroupSampler, with_stop_texts
from rlvr.tokenization.stop import Cut, cut

__all__ = ["Cut", "GroupSampler", "cut", "with_stop_texts"]
