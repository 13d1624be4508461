"""The promises of a backend, as tests to inherit."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from attrs import evolve

from rlvr.errors import BackendError, ConfigError
from rlvr.parts import Backend, Policy
from rlvr.testing.backend_abilities import AbilityPromises
from rlvr.testing.backend_distributions import DistributionPromises
from rlvr.testing.backend_losses import LikelihoodLoss, OutputLoss
from rlvr.testing.contract import Contract, close, not_given, on_open, opened, same
from rlvr.types import Datum, GenerateRequest, SamplingParams


class BackendContract(AbilityPromises, DistributionPromises, Contract):
    """
    Tests of a backend's promises. Define `make_backend`; tests with losses need torch.

    Attributes:
        parity_nats: Largest allowed difference of a sampler's and the trainer's logprob.
        exact_nats: Largest allowed difference of logprobs after save and load. Not 0 only where a
            service batches requests as they arrive, which moves the last bits of equal weights.
        steps: Updates taken on the same data before the loss must have fallen.
        temperatures: Temperatures that it trains at; a service may know 1.0 alone. It must refuse
            to train on data of 0.7 where that is not among them.
        tells_gradient: False for a service that does not tell the norm of its gradients.
    """

    parity_nats: ClassVar[float] = 1e-4
    exact_nats: ClassVar[float] = 0.0
    steps: ClassVar[int] = 5
    temperatures: ClassVar[tuple[float, ...]] = (1.0, 0.7)
    tells_gradient: ClassVar[bool] = True

    def make_backend(self) -> Backend:
        """A new backend; two of them start from equal weights."""
        raise not_given(self, "make_backend")

    def prompts(self, policy: Policy) -> list[list[int]]:
        """Three prompts of different lengths in the policy's tokens."""
        ids = [n % policy.tokenizer.vocab_size for n in range(1, 12)]
        return [ids[:1], ids[:4], ids[:9]]

    # --- promises -------------------------------------------------------------------------------

    @on_open("make_backend", needs_torch=True)
    async def test_sampler_and_trainer_agree(self, backend: Backend) -> None:
        """The trainer computes the logprobs that the policy sampled with, after updates too."""
        for _ in range(2):
            for temperature in self.temperatures:
                data = await self._rollouts(backend, temperature=temperature)
                trained = await backend.logprobs(data, "policy")
                for datum, found in zip(data, trained, strict=True):
                    same("shape of a datum's logprobs", found.shape, datum.tokens.shape)
                    gap = np.abs(found - datum.logprobs)[datum.mask].max()
                    says = f"logprobs of sampler and trainer differ by {gap:.2g} nats"
                    assert gap <= self.parity_nats, f"{says} at temperature {temperature:g}"
            await backend.update(data, LikelihoodLoss())

    @on_open("make_backend")
    async def test_mixed_lengths_do_not_matter(self, backend: Backend) -> None:
        """A datum has the same logprobs alone and among longer and shorter ones."""
        data = await self._rollouts(backend)
        together = await backend.logprobs(data, "policy")
        for datum, wanted in zip(data, together, strict=True):
            (alone,) = await backend.logprobs([datum], "policy")
            gap = np.abs(alone - wanted)[datum.mask].max()
            assert gap <= self.parity_nats, f"alone it differs by {gap:.2g} nats"

    @on_open("make_backend")
    async def test_two_start_from_equal_weights(self, backend: Backend) -> None:
        """What is drawn for new weights is drawn by the run's seed, so a run can be repeated."""
        data = await self._rollouts(backend)
        async with opened(self.make_backend()) as other:
            found = await other.logprobs(data, "policy")
        for datum, one, wanted in zip(
            data, found, await backend.logprobs(data, "policy"), strict=True
        ):
            gap = np.abs(one - wanted)[datum.mask].max()
            assert gap <= self.parity_nats, f"a new backend's logprobs differ by {gap:.2g} nats"

    @on_open("make_backend")
    async def test_equal_requests_give_equal_completions(self, backend: Backend) -> None:
        """A completion depends on seed, prompt, weights and params, not on the other requests."""
        policy = await backend.policy()
        requests = self._requests(policy, 1.0)
        first = await policy.generate_many(requests)
        turned = await policy.generate_many(requests[::-1])
        for one, other in zip(first, turned[::-1], strict=True):
            assert one.tokens.tolist() == other.tokens.tolist(), "in another order: other tokens"

    @on_open("make_backend")
    async def test_completions_keep_their_limits(self, backend: Backend) -> None:
        """At least one token, at most `max_tokens`; logprobs are at most 0, and `finish` is set."""
        policy = await backend.policy()
        for request, completion in zip(
            self._requests(policy, 1.0),
            await policy.generate_many(self._requests(policy, 1.0)),
            strict=True,
        ):
            count, most = len(completion.tokens), request.params.max_tokens
            assert 1 <= count <= most, f"{count} tokens, where at most {most} were asked for"
            same("number of logprobs", completion.logprobs.shape, completion.tokens.shape)
            assert (completion.logprobs <= 1e-6).all(), "a logprob is above 0"
            finish = completion.finish
            assert finish == "stop" or count == most, f"finish={finish!r} after {count} tokens"

    @on_open("make_backend", needs_torch=True)
    async def test_steps_on_the_same_data_lower_the_loss(self, backend: Backend) -> None:
        """Updates lower the loss that they minimise."""
        data = await self._rollouts(backend)
        losses = [(await backend.update(data, LikelihoodLoss()))["loss"] for _ in range(self.steps)]
        says = f"losses by update: {', '.join(f'{loss:.4g}' for loss in losses)}"
        assert all(np.isfinite(losses)), says
        assert losses[-1] < losses[0], says

    @on_open("make_backend", needs_torch=True)
    async def test_step_reports_the_losss_own_metrics(self, backend: Backend) -> None:
        """Metrics are summed over micro-batches, however the backend splits the data."""
        metrics = await backend.update(await self._rollouts(backend), LikelihoodLoss())
        close("weight/sum over all data", metrics["weight/sum"], 1.0, 1e-5)
        most, norm = metrics["weight/max"], metrics.get("grad/norm", np.nan)
        assert most <= 1.0, f"weight/max is {most:g}: maxima of micro-batches were added"
        has_norm = np.isfinite(norm) or not self.tells_gradient
        assert has_norm, f"grad/norm is {norm}: tell it, or set tells_gradient=false"

    @on_open("make_backend", needs_torch=True)
    async def test_a_temperature_it_does_not_train_at_is_refused(self, backend: Backend) -> None:
        """Data sampled at one temperature are never trained on as if it were another."""
        if 0.7 in self.temperatures:
            return
        data = [evolve(datum, temperature=0.7) for datum in await self._rollouts(backend)]
        before = (await backend.policy()).version
        with pytest.raises((BackendError, ConfigError)):
            await backend.update(data, LikelihoodLoss())
        same("version after a refused update", (await backend.policy()).version, before)

    @on_open("make_backend", needs_torch=True)
    async def test_version_grows_by_one_and_digest_changes(self, backend: Backend) -> None:
        """Each step makes a new version of the weights; without one, both stay."""
        before, again = await backend.policy(), await backend.policy()
        told = [(policy.version, policy.digest) for policy in (again, before)]
        same("version and digest, asked twice", *told)
        await backend.update(await self._rollouts(backend), LikelihoodLoss())
        after = await backend.policy()
        same("version after an update", after.version, before.version + 1)
        assert after.digest != before.digest, "an update left the digest as it was"

    @on_open("make_backend", needs_torch=True)
    async def test_an_old_policy_is_a_snapshot_or_refuses(self, backend: Backend) -> None:
        """After a step an old handle samples its old weights; one that is strict raises."""
        old = await backend.policy()
        requests = self._requests(old, 1.0)
        before = await old.generate_many(requests)
        data = await self._rollouts(backend)
        for _ in range(self.steps):
            await backend.update(data, LikelihoodLoss())
        if old.is_strict:
            with pytest.raises(BackendError):
                await old.generate_many(requests)
            return
        after = await old.generate_many(requests)
        for one, other in zip(before, after, strict=True):
            assert one.tokens.tolist() == other.tokens.tolist(), "after updates: other tokens"
            says = "logprobs of an old policy after updates"
            close(says, one.logprobs, other.logprobs, self.parity_nats)

    @on_open("make_backend", needs_torch=True)
    async def test_reference_stands_still(self, backend: Backend) -> None:
        """The reference begins as the policy and does not move when the policy does."""
        data = await self._rollouts(backend)
        start = await backend.logprobs(data, "policy")
        before = await backend.logprobs(data, "reference")
        await backend.update(data, LikelihoodLoss())
        after = await backend.logprobs(data, "reference")
        moved = await backend.logprobs(data, "policy")
        for datum, a, b, c, d in zip(data, start, before, after, moved, strict=True):
            assert np.abs(a - b)[datum.mask].max() <= self.parity_nats, "it began as another model"
            assert np.array_equal(b[datum.mask], c[datum.mask]), "an update moved the reference"
            assert not np.array_equal(c[datum.mask], d[datum.mask]), "no update moved the policy"

    @on_open("make_backend")
    async def test_unknown_model_is_refused(self, backend: Backend) -> None:
        """Logprobs by a model the backend does not have are an error, not the policy's."""
        data = await self._rollouts(backend)
        with pytest.raises(BackendError):
            await backend.logprobs(data, "nobody")

    @on_open("make_backend", needs_torch=True)
    async def test_outputs_are_given_or_refused(self, backend: Backend) -> None:
        """A loss gets what it asks for, one tensor (T,) a datum with gradients, or a refusal."""
        data = await self._rollouts(backend)
        for name in ("entropy", "value", "nothing any backend knows"):
            loss = OutputLoss(name)
            before = (await backend.policy()).version
            try:
                await backend.update(data, loss)
            except BackendError:
                same("version after a refusal", (await backend.policy()).version, before)
                continue
            assert loss.seen, f"{name} was asked for, the loss was called without it"
            assert name in ("entropy", "value"), f"{name} was made up"

    @on_open("make_backend", needs_torch=True)
    async def test_load_restores_what_save_wrote(self, backend: Backend, tmp_path: Path) -> None:
        """A new backend that loads goes on as the first one would: weights, momentum, version."""
        data = await self._rollouts(backend)
        await backend.update(data, LikelihoodLoss())
        await backend.save(tmp_path)
        async with opened(self.make_backend()) as other:
            await other.load(tmp_path)
            for _ in range(2):
                mine, its = await backend.policy(), await other.policy()
                assert its.version == mine.version, f"version {mine.version}, loaded {its.version}"
                assert its.digest == mine.digest, "loaded weights have another digest"
                for which in ("policy", "reference"):
                    for datum, a, b in zip(
                        data,
                        await backend.logprobs(data, which),
                        await other.logprobs(data, which),
                        strict=True,
                    ):
                        gap = np.abs(a - b)[datum.mask].max()
                        assert gap <= self.exact_nats, f"{which}: logprobs differ by {gap:.2g} nats"
                await backend.update(data, LikelihoodLoss())
                await other.update(data, LikelihoodLoss())

    # --- helpers --------------------------------------------------------------------------------

    def _requests(self, policy: Policy, temperature: float) -> list[GenerateRequest]:
        params = SamplingParams(max_tokens=6, temperature=temperature)
        prompts = self.prompts(policy)
        return [
            GenerateRequest(prompt=prompt, params=params, seed=100 * place + draw)
            for place, prompt in enumerate(prompts)
            for draw in range(2)
        ]

    async def _rollouts(self, backend: Backend, *, temperature: float = 1.0) -> list[Datum]:
        policy = await backend.policy()
        requests = self._requests(policy, temperature)
        completions = await policy.generate_many(requests)
        total = sum(len(completion.tokens) for completion in completions)
        data = []
        for place, (request, completion) in enumerate(zip(requests, completions, strict=True)):
            lead = np.zeros(len(request.prompt))
            mask = np.concatenate([lead, np.ones(len(completion.tokens))]).astype(bool)
            data.append(
                Datum(
                    tokens=np.concatenate([request.prompt, completion.tokens]),
                    mask=mask,
                    logprobs=np.concatenate([lead, completion.logprobs]),
                    advantages=mask.astype(float),
                    weights=mask / total,
                    temperature=temperature,
                    problem_id=f"prompt-{place}",
                )
            )
        return data
