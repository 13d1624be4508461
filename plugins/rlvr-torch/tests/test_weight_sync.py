"""A weight sync that is lost is found out, at learning rates of LoRA and in bfloat16."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from rlvr import BackendError, BuildContext, Group, Problem, Sampler, Segment, Trajectory
from rlvr.testing.backend import LikelihoodLoss
from rlvr.training.weight_sync import SyncWatch, _watched
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.training.optimizer import OptimSettings

if find_spec("peft") is None:
    pytest.skip("peft is not installed", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")


class Copy(Sampler):
    """A sampler with a copy of the weights in bfloat16, to which a sync may not, or half, come."""

    def __init__(self, directory, fault):
        self.backend, self.fault, self.sent = build(directory), fault, []

    def sync(self, trainer):
        """The weights of now are sent; the fault says which of them arrive."""
        own = trainable(self.backend)
        self.sent.append([value.detach().clone() for value in trainable(trainer)])
        number = len(self.sent) - 1
        came = {
            "none": self.sent[0],
            "late": self.sent[max(number - 1, 0)],
            "once": self.sent[number - (number == 6)],
            "half": [*self.sent[0][: len(own) // 2], *self.sent[-1][len(own) // 2 :]],
            "wrong": [torch.roll(value, 1, 0) for value in self.sent[-1]],
        }.get(self.fault, self.sent[-1])
        with torch.no_grad():
            for value, new in zip(own, came, strict=True):
                value.copy_(new)
        self.backend._storage.refresh()

    async def sample(self, policy, task, problem, params):
        raise NotImplementedError
        yield

    async def drawn_by(self, policy):
        return await self.backend.policy()


def build(directory, lr=1e-4):
    config = TorchConfig(device="cpu", dtype="bfloat16", lora_rank=8, threads=1)
    train = OptimSettings(lr=lr)
    return TorchBackend(config, BuildContext(model=f"hf:{directory}", train=train, seed=3))


def trainable(backend):
    return [value for value in backend.model.parameters() if value.requires_grad]


def groups():
    """24 trajectories of 40 random tokens after prompts of 8."""
    random = np.random.default_rng(4)
    drawn = [
        Trajectory(
            problem_id="p",
            segments=[
                Segment(author="prompt", tokens=random.integers(0, 300, 8)),
                Segment(
                    author="policy", tokens=random.integers(0, 300, 40), logprobs=np.full(40, -1.0)
                ),
            ],
        )
        for _ in range(24)
    ]
    return [Group(problem=Problem(id="p", prompt=()), trajectories=[one]) for one in drawn]


def syncs_until_found(directory, make_datum, fault, lr, most):
    """Syncs after the first until the run ends, and why, or a warning comes; None: neither."""
    trainer, sampler, watch = build(directory, lr), Copy(directory, fault), SyncWatch()

    async def main():
        for number in range(most + 1):
            if number:
                data = [make_datum(8, 30, 7 * number + i) for i in range(4)]
                await trainer.update(data, LikelihoodLoss())
            sampler.sync(trainer)
            policy = await trainer.policy()
            try:
                await watch.check(trainer, sampler, policy, groups())
            except BackendError as error:
                return number, str(error)
            if watch._has_warned:
                return number, ""
        return None

    return asyncio.run(main())


@pytest.mark.parametrize("lr", [1e-5, 1e-4])
@pytest.mark.parametrize(("fault", "at"), [("none", 1), ("late", 1), ("once", 6)])
def test_an_update_that_does_not_arrive_is_found_at_once(make_hf, make_datum, fault, at, lr):
    """No sync, each one late, the sixth lost: the sampler's logprobs have not moved a bit."""
    number, message = syncs_until_found(make_hf("llama"), make_datum, fault, lr, 8)
    assert number == at
    assert "to the bit" in message
    assert "weight sync" in message


@pytest.mark.parametrize("fault", ["half", "wrong"])
def test_half_a_sync_and_another_adapter_are_warned_of(make_hf, make_datum, fault, capsys):
    """The trainer moves away from what the sampler says, far below a nat; said once."""
    number, message = syncs_until_found(make_hf("llama"), make_datum, fault, 1e-4, 40)
    assert number <= 40
    assert message == ""
    assert capsys.readouterr().err.count("sampler_nearer_to_older_weights") == 1


def test_a_healthy_run_is_left_alone(make_hf, make_datum):
    """Rounding alone, for many updates, is no fault."""
    assert syncs_until_found(make_hf("llama"), make_datum, "", 1e-5, 40) is None


def test_a_long_trajectory_is_cut_to_the_tokens_that_are_watched():
    """One of 3,000 tokens gives its first 1,024; a second one is not taken."""
    tokens = np.arange(3000) % 300
    segments = [
        Segment(author="prompt", tokens=tokens[:8]),
        Segment(author="policy", tokens=tokens, logprobs=np.full(3000, -1.0)),
    ]
    long = [
        Group(problem=Problem(id="p", prompt=()), trajectories=[t])
        for t in [Trajectory(problem_id="p", segments=segments)] * 2
    ]

    (datum,) = _watched(long, 4096)

    assert (len(datum.tokens), int(datum.mask.sum())) == (1032, 1024)
