"""A service that fails: what is survived, what is said, and that nothing is trained twice."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr import (
    BackendError,
    CheckpointError,
    ConfigError,
    Datum,
    GenerateRequest,
    NamedForm,
    PrerequisiteError,
    SamplingParams,
)
from rlvr.testing import opened
from rlvr.testing.backend_losses import LikelihoodLoss
from rlvr_tinker.backend import TinkerBackend
from rlvr_tinker.training.datum import for_logprobs

from .conftest import Faults, Running

pytestmark = pytest.mark.timeout(600)

Makes = Callable[..., TinkerBackend]
Rule = dict[str, Any]


async def trained(backend: TinkerBackend, data: Sequence[Datum], steps: int) -> list[np.ndarray]:
    """Logprobs after some updates."""
    for _ in range(steps):
        await backend.update(data, LikelihoodLoss())
    return list(await backend.logprobs(data, "policy"))


def after(make: Makes, data: Sequence[Datum], steps: int = 3, **more: Any) -> list[np.ndarray]:
    async def run() -> list[np.ndarray]:
        async with opened(make(seed=7, **more)) as backend:
            return await trained(backend, data, steps)

    return asyncio.run(run())


def equal(some: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.fixture(scope="module")
def made() -> list[list[np.ndarray]]:
    """What `wanted` has made."""
    return []


@pytest.fixture
def wanted(
    make_backend: Makes, data: Sequence[Datum], made: list[list[np.ndarray]]
) -> list[np.ndarray]:
    """The logprobs after updates that nothing disturbed; one such run for all tests."""
    if not made:
        made.append(after(make_backend, data))
    return made[0]


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    "rule",
    [
        {"on": "retrieve_future", "do": "status", "status": 503, "after": 12, "times": 5},
        {"on": "retrieve_future", "do": "fail", "category": "server", "after": 12},
        {"on": "forward_backward", "do": "status", "status": 500, "after": 3},
        {"on": "forward_backward", "do": "drop", "after": 2},
        {"on": "optim_step", "do": "status", "status": 429, "after": 1},
        {"on": "save_weights", "do": "status", "status": 503, "after": 1},
    ],
    ids=lambda rule: f"{rule['on']} {rule['do']} {rule.get('status', '')}",
)
def test_a_failure_that_passes_changes_nothing(
    make_backend: Makes,
    faults: Faults,
    data: Sequence[Datum],
    wanted: list[np.ndarray],
    rule: Rule,
) -> None:
    """Repeated by the SDK, or made again from the last state: the same weights, bit for bit."""
    faults.set(rule)

    found = after(make_backend, data)

    assert equal(wanted, found)


def test_a_poisoned_client_is_replaced(
    make_backend: Makes, faults: Faults, data: Sequence[Datum], wanted: list[np.ndarray]
) -> None:
    """The backward pass of a loss computed here fails: the SDK's client takes nothing more."""
    faults.set(
        {"on": "retrieve_future", "do": "fail", "category": "server", "after": 6, "times": 2}
    )

    found = after(make_backend, data)

    assert equal(wanted, found)


def test_updates_are_not_made_again_from_an_older_state(
    make_backend: Makes, faults: Faults, data: Sequence[Datum]
) -> None:
    """Without a state of each update the run ends, and says where to go on from."""

    async def run() -> None:
        async with opened(make_backend(save_every=0)) as backend:
            await backend.update(data, LikelihoodLoss())
            faults.set({"on": "retrieve_future", "do": "fail", "category": "server"})
            with pytest.raises(BackendError, match=r"0 of 1 updates .*\n.*--resume") as error:
                await backend.update(data, LikelihoodLoss())
            assert int(error.value.exit_code) == 6

    asyncio.run(run())


def error_of(
    make: Makes, data: Sequence[Datum], faults: Faults, rule: Rule, timeout_s: float
) -> str:
    """How a request ends that meets the fault each time, where the backend tries it once."""

    async def run() -> str:
        async with opened(make(timeout_s=timeout_s, retries=0)) as backend:
            await backend.policy()
            faults.set({**rule, "times": None})
            with pytest.raises(BackendError) as error:
                await backend.logprobs(data, "policy")
            assert int(error.value.exit_code) == 6
            return str(error.value)

    return asyncio.run(run())


def test_a_slow_future_ends_at_the_deadline(
    make_backend: Makes, faults: Faults, data: Sequence[Datum]
) -> None:
    """The SDK would wait for ever; the error names the option that gives it longer."""
    slow = {"on": "forward_backward", "do": "slow", "delay_s": 60.0}
    begun = time.monotonic()
    assert "tinker.timeout_s" in error_of(make_backend, data, faults, slow, 2.0)
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("status", "word"), [(402, "billing"), (429, "limits requests"), (409, "same session")]
)
def test_what_the_service_waits_for_is_told(
    make_backend: Makes, faults: Faults, data: Sequence[Datum], status: int, word: str
) -> None:
    """The SDK pauses silently, up to an hour; here it ends at the deadline and says why."""
    rule = {"on": "forward_backward", "do": "status", "status": status}
    assert word in error_of(make_backend, data, faults, rule, 2.0)


def test_endless_failures_are_not_repeated_for_ever(
    make_backend: Makes, faults: Faults, data: Sequence[Datum]
) -> None:
    """The SDK asks again at once after a 5xx: tens of thousands of requests in minutes."""
    rule = {"on": "retrieve_future", "do": "status", "status": 500}
    assert "again and again" in error_of(make_backend, data, faults, rule, 60.0)
    assert faults.requests("retrieve_future") < 1000


def test_nothing_unfit_is_sent(make_backend: Makes, faults: Faults, data: Sequence[Datum]) -> None:
    """NaN, a foreign id, too long a sequence: refused here, and no request is made."""
    long = Datum(
        **{
            name: np.ones(70, kind)
            for name, kind in [
                ("tokens", int), ("logprobs", float), ("advantages", float), ("weights", float)
            ]
        },
        mask=np.arange(70) > 0,
    )  # fmt: skip
    soiled = attrs.evolve(data[0], advantages=np.full(len(data[0].tokens), np.nan))
    foreign = attrs.evolve(data[0], tokens=np.full(len(data[0].tokens), 9999))

    async def run() -> None:
        async with opened(make_backend()) as backend:
            await backend.policy()
            faults.set()
            for bad in (long, soiled, foreign):
                with pytest.raises(BackendError, match="was not used"):
                    await backend.update([*data, bad], LikelihoodLoss())
            assert backend.version == 0

    asyncio.run(run())
    assert faults.requests("forward_backward") == 0


class NanLoss(LikelihoodLoss):
    """A loss that is not finite."""

    def __call__(self, data: Any, logprobs: Any, outputs: Any) -> Any:
        loss, metrics = super().__call__(data, logprobs, outputs)
        return loss * float("nan"), metrics


class BoundlessLoss(LikelihoodLoss):
    """One that the service computes, whose ratios nothing bounds."""

    def builtin_form(self) -> NamedForm:
        return NamedForm(name="importance_sampling")


@pytest.mark.parametrize(
    ("bad", "good", "is_wild"),
    [(NanLoss, LikelihoodLoss, False), (BoundlessLoss, BoundlessLoss, True)],
    ids=["computed here", "a ratio that overflows on the service"],
)
def test_a_loss_that_is_not_finite_changes_nothing(
    make_backend: Makes, data: Sequence[Datum], bad: type, good: type, is_wild: bool
) -> None:
    """The update is skipped and counted, one too many ends the run; the client stays usable."""
    wild = [attrs.evolve(d, logprobs=np.where(d.mask, -500.0, 0)) for d in data]
    given = wild if is_wild else data

    async def run() -> None:
        async with opened(make_backend(max_skipped=1)) as backend:
            before = await backend.logprobs(data, "policy")
            assert await backend.update(given, bad()) == {"update/skipped": 1.0}
            assert equal(before, await backend.logprobs(data, "policy"))
            with pytest.raises(BackendError, match="max_skipped=1"):
                await backend.update(given, bad())
            assert (await backend.update(data, good()))["update/skipped"] == 0.0
            assert backend.version == 1

    asyncio.run(run())


def test_a_pass_that_answers_nan_changes_nothing(
    make_backend: Makes, faults: Faults, data: Sequence[Datum]
) -> None:
    """A service that tells a loss of NaN and takes the step: the weights are taken back."""

    async def run() -> None:
        async with opened(make_backend()) as backend:
            await backend.update(data, BoundlessLoss())
            before = await backend.logprobs(data, "policy")
            faults.set({"on": "retrieve_future", "do": "nan", "contains": ":train:", "times": 1})
            assert await backend.update(data, BoundlessLoss()) == {"update/skipped": 1.0}
            faults.set()
            found = await backend.logprobs(data, "policy")
            assert equal(before, found)
            assert backend.version == 1

    asyncio.run(run())


def test_a_client_that_was_lost_for_good_is_not_used_again(
    make_backend: Makes, faults: Faults, data: Sequence[Datum]
) -> None:
    """After the last attempt failed too, the next request begins with a new client."""

    async def run() -> None:
        async with opened(make_backend(retries=0)) as backend:
            wanted = await backend.logprobs(data, "policy")
            faults.set({"on": "retrieve_future", "do": "fail", "category": "server"})
            with pytest.raises(BackendError):
                await backend.logprobs(data, "policy")
            found = await backend.logprobs(data, "policy")
            assert equal(wanted, found)

    asyncio.run(run())


def test_a_tokenizer_that_does_not_come_ends_at_the_deadline(
    make_backend: Makes, faults: Faults
) -> None:
    """Asking the service for it is a request like others."""
    faults.set({"on": "get_info", "do": "slow", "delay_s": 60.0, "times": None})
    begun = time.monotonic()

    with pytest.raises(BackendError, match="tokenizer of tiny was asked for"):
        asyncio.run(open_only(make_backend(timeout_s=2.0)))

    assert time.monotonic() - begun < 30


class BrokenLoss(LikelihoodLoss):
    """A loss with a bug."""

    def __call__(self, data: Any, logprobs: Any, outputs: Any) -> Any:
        raise ZeroDivisionError("a bug of the loss")


def test_a_bug_of_a_loss_stays_its_own(make_backend: Makes, data: Sequence[Datum]) -> None:
    """It is no failure of the service, is not repeated, and does not poison the client."""

    async def run() -> None:
        async with opened(make_backend()) as backend:
            with pytest.raises(ZeroDivisionError):
                await backend.update(data, BrokenLoss())
            await backend.update(data, LikelihoodLoss())
            assert backend.version == 1

    asyncio.run(run())


def test_sampling_goes_on_after_a_lost_session(make_backend: Makes, faults: Faults) -> None:
    """The same completions, from a new sampling client of the same weights."""
    requests = [
        GenerateRequest(prompt=[5, 6, 7], params=SamplingParams(max_tokens=6), seed=n)
        for n in range(4)
    ]

    async def run() -> None:
        async with opened(make_backend()) as backend:
            policy = await backend.policy()
            wanted = await policy.generate_many(requests)
            faults.set({"on": "asample", "do": "status", "status": 404, "times": 2})
            found = await policy.generate_many(requests)
            assert [c.tokens.tolist() for c in found] == [c.tokens.tolist() for c in wanted]

    asyncio.run(run())


def test_a_state_that_is_gone_is_a_bad_checkpoint(
    make_backend: Makes, data: Sequence[Datum], tmp_path: Path
) -> None:
    """The service forgets states after their time: exit 6, with another way to go on."""

    async def run() -> None:
        async with opened(make_backend()) as backend:
            await backend.update(data, LikelihoodLoss())
            await backend.save(tmp_path)
            file = tmp_path / "tinker.json"
            file.write_text(file.read_text().replace("checkpoint-", "nothing-"))
            with pytest.raises(CheckpointError, match="nothing-"):
                await backend.load(tmp_path)
            stored = json.loads(file.read_text())
            for change in ({"version": "two"}, {"version": -1}, {"path": None}, {"usage": []}):
                file.write_text(json.dumps({**stored, **change}))
                with pytest.raises(CheckpointError, match=r"tinker\.json"):
                    await backend.load(tmp_path)
            file.write_text("{}")
            with pytest.raises(CheckpointError, match=r"tinker\.json"):
                await backend.load(tmp_path)

    asyncio.run(run())


def test_a_state_of_another_adapter_is_refused(
    make_backend: Makes, data: Sequence[Datum], tmp_path: Path
) -> None:
    """Rank and model are the run's own."""

    async def run() -> None:
        async with opened(make_backend()) as backend:
            await backend.update(data, LikelihoodLoss())
            await backend.save(tmp_path)
        async with opened(make_backend(rank=8)) as other:
            with pytest.raises(BackendError, match="rank"):
                await other.load(tmp_path)

    asyncio.run(run())


def test_two_clients_in_one_session_are_told_apart(
    make_backend: Makes, data: Sequence[Datum]
) -> None:
    """The second one's requests have numbers that were used: refused, and nothing is trained."""
    import tinker

    async def run() -> None:
        async with opened(make_backend()) as backend:
            before = await backend.logprobs(data, "policy")
            trainer = backend._trainer
            mine = trainer.client
            other = tinker.TrainingClient(
                mine.holder, model_seq_id=0, model_id=mine.model_id, info=mine.get_info()
            )
            request = other.forward(for_logprobs(data[:1]), "cross_entropy")
            with pytest.raises(BackendError, match="two clients") as error:
                await trainer.wait(request, "logprobs were asked for")
            assert int(error.value.exit_code) == 6
            after = await backend.logprobs(data, "policy")
            assert equal(before, after)

    asyncio.run(run())


def test_a_rank_that_the_service_refuses(make_backend: Makes, tmp_path: Path) -> None:
    """Told with the service's own bounds, before anything is sampled: exit 2."""
    with pytest.raises(ConfigError, match=r"rank 4096(.|\n)*1\.\.16"):
        asyncio.run(open_only(make_backend(rank=4096, run_dir=tmp_path)))


def test_a_key_that_the_service_refuses(make_backend: Makes, faults: Faults) -> None:
    """Exit 4, with the variable to set."""
    faults.set({"on": "client", "do": "status", "status": 401, "times": None})

    with pytest.raises(PrerequisiteError, match="TINKER_API_KEY"):
        asyncio.run(open_only(make_backend()))


def test_a_server_of_another_version(make_backend: Makes, faults: Faults) -> None:
    """It refuses this SDK at the first word: exit 4, with the versions."""
    faults.set({"on": "client", "do": "status", "status": 400, "times": None})

    with pytest.raises(PrerequisiteError, match=r"protocol(.|\n)*tinker 0\.38"):
        asyncio.run(open_only(make_backend()))


def test_start_weights_are_the_reference(
    make_backend: Makes, data: Sequence[Datum], tmp_path: Path, server: Running
) -> None:
    """A run from saved weights begins and stays near them; sampling weights cannot be trained."""

    async def first() -> str:
        async with opened(make_backend()) as backend:
            await trained(backend, data, 2)
            await backend.save(tmp_path)
            return str(json.loads((tmp_path / "tinker.json").read_text())["path"])

    path = asyncio.run(first())

    async def second() -> None:
        async with opened(make_backend(path)) as backend:
            start = await trained(backend, data, 0)
            await trained(backend, data, 2)
            reference = await backend.logprobs(data, "reference")
            for a, b in zip(start, reference, strict=True):
                assert np.abs(a - b).max() < 1e-4

    asyncio.run(second())
    sampling = path.replace("/weights/", "/sampler_weights/")
    with pytest.raises(ConfigError, match=r"only samples|refuses"):
        asyncio.run(open_only(make_backend(sampling, run_dir=tmp_path)))


async def open_only(backend: TinkerBackend) -> None:
    """What a run does before anything is sampled."""
    async with opened(backend):
        pass
