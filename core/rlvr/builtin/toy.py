"""The toy task: repeat the letter that is asked for. Learns in seconds, needs no tool."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from attrs import frozen
from attrs.validators import ge, le

from rlvr.config.fields import option
from rlvr.errors import VerifierError
from rlvr.parts import BuildContext, RewardFn, SingleTurn, Task
from rlvr.types import Message, Problem, Reward, Trajectory


@frozen(kw_only=True)
class ToyConfig:
    """Options of the toy task."""

    letters: str = option("abcd", "Letters that problems ask for")
    length: int = option(4, "Length of the right answer", validator=[ge(1), le(1000)])
    fail_share: float = option(0.0, "Share of verifications that fail to run (to see what happens)")


class ToyTask(Task):
    """One problem a letter: `a=` wants `aaaa`. The same problems in every split."""

    def __init__(self, config: ToyConfig, context: BuildContext) -> None:
        self._config = config

    def problems(self, split: str) -> Iterable[Problem]:
        for letter in self._config.letters if split in ("train", "test", "all") else "":
            answer = letter * self._config.length
            yield Problem(
                id=f"toy_{letter}",
                prompt=[Message(role="user", content=f"{letter}=")],
                split="train" if split == "all" else split,
                labels={"family": letter},
                payload=(answer, self._config.fail_share),
                digest=hashlib.sha256(answer.encode()).hexdigest(),
            )

    def episode(self, problem: Problem) -> SingleTurn:
        return SingleTurn(problem.prompt)

    def reference(self, problem: Problem) -> Trajectory:
        return Trajectory.from_text(problem.id, problem.payload[0])


class ToyReward(RewardFn):
    """Share of places that hold the wanted letter; 1.0 only for the exact answer."""

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        """Judge one answer; fails to run for the configured share of seeds."""
        answer, fail_share = problem.payload
        if trajectory.seed % 1000 < fail_share * 1000:
            raise VerifierError(f"{problem.id}: the toy verifier was told to fail")
        text = trajectory.completion
        places = [a == b for a, b in zip(text, answer, strict=False)]
        share = sum(places) / max(len(answer), len(text))
        return Reward(
            value=share,
            score01=float(text == answer),
            components={"letters": share},
            tests_passed=sum(places),
            tests_total=len(answer),
        )


def starter() -> str:
    """A tiny untrained model over the toy's six tokens."""
    tokenizer = Path(__file__).with_name("toy_tokenizer.json")
    return f"gpt2:new?layers=1&heads=2&width=32&positions=16&tokenizer={tokenizer}"
