"""A base for samplers of plugins whose tokens are drawn elsewhere.

`GroupSampler` is the loop over turns; `cut` says where a completion ends, whatever a server made of
the stop conditions; `with_stop_texts` adds those of an episode. `sample_groups` has a sampler do
several problems.
"""

from __future__ import annotations

from rlvr.rollouts.group import GroupSampler, sample_groups
from rlvr.rollouts.rollout import with_stop_texts
from rlvr.tokenization.stop import CompletionEnd, cut, cut_completion

__all__ = [
    "CompletionEnd",
    "GroupSampler",
    "cut",
    "cut_completion",
    "sample_groups",
    "with_stop_texts",
]
