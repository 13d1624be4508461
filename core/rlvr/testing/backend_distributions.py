"""Promises of a backend about losses over whole distributions, and about `eval_loss`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

from rlvr.errors import BackendError, UnsupportedError
from rlvr.parts import Backend, Loss
from rlvr.testing.backend_losses import LikelihoodLoss, PullLoss, head_logits, log_softmax
from rlvr.testing.contract import close, on_open, same
from rlvr.types import Datum

LARGEST = 2000
"""Ids of a vocabulary that a distribution is summed over."""


class DistributionPromises:
    """A part of `BackendContract`: skipped where a backend gives no states."""

    steps: ClassVar[int]
    parity_nats: ClassVar[float]
    temperatures: ClassVar[tuple[float, ...]]

    _rollouts: Callable[..., Awaitable[list[Datum]]]

    @on_open("make_backend", needs_torch=True)
    async def test_eval_loss_tells_what_an_update_would_and_changes_nothing(
        self, backend: Backend
    ) -> None:
        """Loss and metrics are the next update's; weights, version and digest stay."""
        data = await self._rollouts(backend)
        if not backend.capabilities.eval_loss:
            with pytest.raises(UnsupportedError):
                await backend.eval_loss(data, LikelihoodLoss())
            return
        losses: list[Loss] = [LikelihoodLoss()]
        if await _gives_states(backend, data):
            losses += [PullLoss(), PullLoss(with_logprobs=True)]
        for loss in losses:
            before = await backend.policy()
            first = await backend.eval_loss(data, loss)
            again = await backend.eval_loss(data, loss)
            after = await backend.policy()
            told = [(policy.version, policy.digest) for policy in (after, before)]
            same("version and digest after eval_loss and before it", *told)
            same("eval_loss called again", again, first)
            stepped = await backend.update(data, loss)
            for name, value in first.items():
                most = 1e-6 + 1e-5 * abs(value)
                close(f"{name} of update and eval_loss", stepped[name], value, most)

    @on_open("make_backend", needs_torch=True)
    async def test_states_and_head_make_the_distribution(self, backend: Backend) -> None:
        """Log-softmax of the head on a state equals the logprobs of all next tokens."""
        datum = (await self._rollouts(backend))[0]
        size = (await backend.policy()).tokenizer.vocab_size
        place = int(np.flatnonzero(datum.mask)[0])
        mask = np.arange(place + 1) == place
        one = Datum(
            tokens=datum.tokens[: place + 1],
            mask=mask,
            logprobs=-1.0 * mask,
            advantages=mask,
            weights=mask,
            temperature=self.temperatures[-1],
        )
        if size > LARGEST or not await _gives_states(backend, [one]):
            pytest.skip("no states, or a vocabulary too large to sum over")
        every = [
            attrs.evolve(one, tokens=np.append(one.tokens[:-1], token)) for token in range(size)
        ]
        logprobs = [float(x[-1]) for x in await backend.logprobs(every, "policy")]
        target = np.array([1.0 + (i % 5) for i in range(size)])
        look = _Look()
        await backend.update([one], look)
        assert look.logprobs is not None, "the update never called the loss"
        found = look.logprobs[0, :size]
        close("head on states, and logprobs of all tokens", found, logprobs, self.parity_nats)
        assert np.isfinite(target @ found), "the head on a state gives logprobs that are not finite"

    @on_open("make_backend", needs_torch=True)
    async def test_a_loss_over_distributions_is_learnt_from(self, backend: Backend) -> None:
        """Steps on the same data lower it, with logprobs and without."""
        data = await self._rollouts(backend)
        if not await _gives_states(backend, data):
            pytest.skip("it gives no states")
        for is_both in (False, True):
            loss = PullLoss(with_logprobs=is_both)
            found = [await backend.update(data, loss) for _ in range(self.steps)]
            values = [step["loss"] for step in found]
            says = f"losses by update: {', '.join(f'{value:.4g}' for value in values)}"
            assert all(np.isfinite(values)), f"{says}: not finite"
            assert values[-1] < values[0], f"{says}: not lower"
            rows = sum(int(datum.mask.sum()) for datum in data)
            says = "pull/rows, the supervised tokens of all micro-batches"
            same(says, {step["pull/rows"] for step in found}, {float(rows)})


class _Look(PullLoss):
    """The same loss, which keeps the logprobs of the last distributions that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.logprobs: Any = None

    def __call__(self, data: Any, logprobs: Any, outputs: Any) -> Any:
        (head,), (hidden,) = outputs["head"], outputs["hidden"]
        rows = log_softmax(head_logits(head, hidden) / data[0].temperature)
        self.logprobs = rows.detach().cpu().numpy()
        return super().__call__(data, logprobs, outputs)


async def _gives_states(backend: Backend, data: Sequence[Datum]) -> bool:
    """Whether a loss gets states and head; else a refusal must come before anything has changed."""
    before = (await backend.policy()).version
    loss: Loss = PullLoss()
    try:
        if backend.capabilities.eval_loss:
            await backend.eval_loss(data, loss)
        else:
            await backend.update(data, loss)
    except BackendError:
        same("version after a refusal", (await backend.policy()).version, before)
        return False
    return True
