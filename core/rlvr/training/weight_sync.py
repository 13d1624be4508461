"""Check that a weight sync arrived: the sampler's logprobs must move as the trainer's do.

Sampler and trainer round differently, by more than an update of a small learning rate changes a
logprob: their difference alone does not show a sync that was lost. So both score the same tokens
after each sync, always those of the run's first trajectories, and what they say is compared with
what they said before. The update itself is the known change that must be seen.

Shapes: N tokens, k the weight syncs since the first one that was looked at.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from rlvr.border.promises import drawer_of, logprobs_of, score_of
from rlvr.errors import BackendError
from rlvr.log import get
from rlvr.parts import Backend, Policy, Sampler
from rlvr.training.stages import datum_of
from rlvr.types import Datum, Group

log = get(__name__)

TOKENS = 1024
"""Tokens of the policy that are scored after each sync; fewer where the first step drew fewer."""

SEQUENCES = 16
"""Trajectories they are taken from, at most."""

FEWEST = 32
"""With fewer tokens nothing is claimed: no difference is sure."""

SIGMAS = 5.0
"""How sure it must be that the sampler is nearer to older weights than to those of now."""

SPANS = tuple(2**n for n in range(9))
"""How many syncs ago the weights are that those of now are compared with."""

STILL = 1e-5
"""An update that moves the trainer's logprobs by less (rms, nats) may be lost in rounding."""

Numbers: TypeAlias = NDArray[np.float64]


@define
class SyncWatch:
    """
    Compares what sampler and trainer say of the same tokens, sync after sync.

    *Nothing changed* ends the run: an update changed the trainer's logprobs, and not one bit of the
    sampler's. So a sync that is lost, or comes one update late, shows at once. *Nearer to older
    weights* is a warning: a sampler that gets half of the tensors, or another adapter, is surely
    nearer to the trainer's logprobs of earlier syncs, after some updates. So is one whose weights
    are stored in bfloat16 while updates of all weights are too small to change them.
    """

    _data: Sequence[Datum] = field(factory=tuple, init=False)
    _syncs: int = field(default=0, init=False)
    _has_warned: bool = field(default=False, init=False)
    _before: tuple[Numbers, Numbers] | None = field(default=None, init=False)  # trainer, sampler
    # (N,) each, the trainer's after earlier syncs. The first is left out: a new adapter is zero
    # there, and rounds differently from all that follow.
    _trained: deque[Numbers] = field(factory=lambda: deque(maxlen=SPANS[-1]), init=False)

    async def check(
        self, backend: Backend, sampler: Sampler, policy: Policy, groups: Sequence[Group]
    ) -> None:
        """
        Score the watched tokens on both sides; the first `groups` say which tokens those are.

        Nothing happens where the sampler cannot score tokens that it is given.

        Raises:
            BackendError: The sampler does not hold the weights of now.
        """
        data = self._data or _watched(groups, policy.context_length)
        if sum(int(d.mask.sum()) for d in data) < FEWEST:
            return
        told = await score_of(await drawer_of(sampler, policy), data)
        if told is not None:
            self._data = data
            trained = await logprobs_of(backend, data, "policy")
            self.compare(_flat(data, trained), _flat(data, told))

    def compare(self, trained: Numbers, told: Numbers) -> None:
        """
        Take in what trainer and sampler say after a sync, (N,) nats each.

        Raises:
            BackendError: As `check`.
        """
        self._syncs += 1
        before, self._before = self._before, (trained, told)
        if before is None:
            return
        moved = _rms(trained - before[0])
        if moved > STILL and np.array_equal(told, before[1]):
            raise self._lost(
                f"the update moved the trainer's logprobs of {len(told)} tokens by {moved:.2g} "
                "nats (rms), and the sampler's are what they were, to the bit"
            )
        now = (told - trained) ** 2
        for span in SPANS[: len(self._trained).bit_length()]:
            sigmas = _sureness(now - (told - self._trained[-span]) ** 2)
            if sigmas > SIGMAS and not self._has_warned:
                self._has_warned = True
                log.warning(
                    "sampler_nearer_to_older_weights",
                    updates_ago=span,
                    standard_errors=round(sigmas, 1),
                    rms_nats=float(f"{_rms(told - trained):.2g}"),
                    do="look for a sync that arrives in part, or another adapter; or the sampler's "
                    "weights are too coarse for so small updates",
                )
        self._trained.append(trained)

    def _lost(self, found: str) -> BackendError:
        return BackendError(
            f"the sampler was to hold the weights of now, after {self._syncs - 1} weight syncs.",
            f"found: {found}",
            "look for a weight sync that did not arrive, arrived late or in part, or for another "
            "adapter (the sampler's log); parity.threshold=none switches this check off",
        )


def _sureness(values: Numbers) -> float:
    """The sum of independent values in standard errors from zero."""
    spread = math.sqrt(float((values**2).sum()))
    return float(values.sum()) / spread if spread else 0.0


def _watched(groups: Sequence[Group], context_length: int) -> list[Datum]:
    """
    Trajectories with `TOKENS` of the policy's tokens, or `SEQUENCES` of them, at temperature 1.

    One a group is taken first. Those that fill the context are left out: a server needs room for
    one more token.
    """
    longest = max((len(group.trajectories) for group in groups), default=0)
    chosen: list[Datum] = []
    count = 0
    for place in range(longest):
        for group in groups:
            if count >= TOKENS or len(chosen) >= SEQUENCES:
                return chosen
            for one in group.trajectories[place : place + 1]:
                fits = len(one.tokens) < context_length and not one.pictures
                if one.finish != "error" and one.mask.any() and fits:
                    chosen.append(_first(datum_of(one), TOKENS - count))
                    count += int(chosen[-1].mask.sum())
    return chosen


def _first(datum: Datum, most: int) -> Datum:
    """The datum until its `most`-th supervised token, at temperature 1."""
    places = np.flatnonzero(datum.mask)
    end = places[most] if len(places) > most else len(datum.mask)
    return attrs.evolve(
        datum,
        tokens=datum.tokens[:end],
        mask=datum.mask[:end],
        logprobs=datum.logprobs[:end],
        advantages=datum.advantages[:end],
        weights=datum.weights[:end],
        temperature=1.0,
    )


def _flat(data: Sequence[Datum], numbers: Sequence[Any]) -> Numbers:
    """Numbers (T,) of each datum, at its supervised tokens: (N,)."""
    pairs = zip(data, numbers, strict=True)
    return np.concatenate([np.asarray(found, np.float64)[d.mask] for d, found in pairs])


def _rms(values: Numbers) -> float:
    return math.sqrt(float((values**2).mean()))
