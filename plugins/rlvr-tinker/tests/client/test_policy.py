"""A sampling handle whose session ends while it waits: a moment that no server gives twice."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rlvr import Completion, GenerateRequest, SamplingParams
from rlvr.testing.fakes import CharTokenizer
from rlvr_tinker.config import TinkerConfig
from rlvr_tinker.policy import TinkerPolicy
from rlvr_tinker.service.errors import LostError, RefusedError
from rlvr_tinker.service.usage import Usage

END = 0


class Trainer:
    """Waits for a request once in vain: the session of `ends` is given up by somebody meanwhile."""

    def __init__(self, error: Exception, *, ends: bool) -> None:
        self.config, self.epoch = TinkerConfig(retries=1), 0
        self._error, self._ends = error, ends
        self.renewals: list[int] = []

    async def wait(self, client: int, _doing: str) -> Any:
        """An answer of the second client only."""
        if client == 0:
            self.epoch += self._ends
            raise self._error
        sequence = SimpleNamespace(tokens=[7, END], logprobs=[-0.5, -0.25], stop_reason="stop")
        return SimpleNamespace(sequences=[sequence])

    async def renewed(self, epoch: int, _version: int, _error: Exception) -> None:
        """Another session, unless there is one already."""
        self.renewals.append(epoch)
        self.epoch = epoch + 1


class Samplers:
    """The client of a session is the session's number."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    async def of(self, _version: int) -> Any:
        """Of the session of now."""
        client = SimpleNamespace(sample=lambda *_, epoch=self.trainer.epoch: epoch)
        return SimpleNamespace(client=client)


class Digits(CharTokenizer):
    """Letters."""

    stop_ids, has_bytes = frozenset({END}), True

    def decode(self, tokens: Any) -> str:
        return "".join(map(str, tokens))

    def bytes_of(self, token: int) -> bytes:
        return b"%d" % token


def drawn(trainer: Trainer) -> Completion:
    pytest.importorskip("tinker", reason="the SDK is not installed")
    sampler: Any = SimpleNamespace(version=1, digest="d")
    samplers: Any = Samplers(trainer)
    tokenizer: Any = Digits()
    policy = TinkerPolicy(sampler, samplers, tokenizer=tokenizer, context_length=99, usage=Usage())
    request = GenerateRequest(prompt=[1, 2], params=SamplingParams(max_tokens=4), seed=3)
    return asyncio.run(policy.generate(request))


@pytest.mark.parametrize("error", [LostError("lost"), RefusedError("the session has ended")])
def test_a_session_that_another_request_gave_up_is_no_mistake(error: Exception) -> None:
    """Whatever the service calls it: what was asked is asked again in the new session."""
    found = drawn(Trainer(error, ends=True))

    assert found.tokens.tolist() == [7, END]
    assert found.text == "7"
    assert found.finish == "stop"


def test_a_lost_request_gets_a_new_session() -> None:
    """The one it was sent in is given up for it."""
    trainer = Trainer(LostError("lost"), ends=False)

    assert drawn(trainer).tokens.tolist() == [7, END]
    assert trainer.renewals == [0]


def test_a_refusal_is_not_repeated() -> None:
    """The same session would refuse it again."""
    trainer = Trainer(RefusedError("too long"), ends=False)

    with pytest.raises(RefusedError, match="too long"):
        drawn(trainer)
    assert trainer.renewals == []
