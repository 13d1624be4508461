"""Requests to a sampling policy, and its completions."""

from __future__ import annotations

from attrs import field, frozen

from rlvr.types.frozen import EQUAL, FloatArray, IntArray, as_tuple, floats, ints
from rlvr.types.trajectory import Finish


@frozen(kw_only=True)
class SamplingParams:
    """
    Sampling settings. `temperature` 0 is greedy. `stop` are texts that end a completion.

    `top_p` 1.0 and `top_k` 0 mean the whole distribution (no truncation). `group_size` is the
    number of trajectories a problem (G); `seed` the root of the seeds of all of them.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = field(default=(), converter=as_tuple)
    group_size: int = 1
    seed: int = 0

    @property
    def is_truncated(self) -> bool:
        """True when top-p or top-k cuts the distribution (which biases importance ratios)."""
        return self.top_p < 1.0 or self.top_k > 0


@frozen(kw_only=True)
class GenerateRequest:
    """One completion to sample. Equal `seed`, prompt, weights and params give equal tokens."""

    prompt: IntArray = field(converter=ints, eq=EQUAL)
    params: SamplingParams
    seed: int


@frozen(kw_only=True)
class Completion:
    """
    Sampled tokens (T,) with their logprobs (T,), nats, at the temperature they were drawn with.

    Includes the end-of-text token when it was drawn. `text` leaves it, and stop texts, out.
    `versions` are the policy versions that drew it, in order, where a live policy did; else ().
    `error` says why there is none, where `finish` is "error": that rollout fails, and no other.
    """

    tokens: IntArray = field(converter=ints, eq=EQUAL)
    logprobs: FloatArray = field(converter=floats, eq=EQUAL)
    text: str
    finish: Finish
    versions: tuple[int, ...] = field(default=(), converter=as_tuple)
    error: str = ""
