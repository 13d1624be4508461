"""The arithmetic of several turns against numbers worked out by hand."""

from __future__ import annotations

import asyncio

import pytest
from attrs import evolve

from rlvr import Problem, Reward, RewardFn, Segment, Trajectory, VerifierError
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.episodes import hidden
from rlvr_cvdp.episodes.hidden import HiddenTests
from rlvr_cvdp.verify.turn_credit import turns_key, turns_of, with_turns

RIGHT = Reward(value=1.0, score01=1.0, components={"tests": 1.0}, evidence={"why": ""})


def trajectory(*stages: str, ended: str = "right") -> Trajectory:
    """A trajectory whose turns reached these stages."""
    return Trajectory(
        problem_id="p",
        segments=[Segment(author="policy", tokens=[1], logprobs=[-1.0], text="x")] * len(stages),
        files={"rtl/a.sv": "module a; endmodule"},
        notes={"turns": [{"stage": stage} for stage in stages], "ended": ended},
    )


def test_the_worked_number_of_the_docs():
    """Right at turn 3 with a discount of 0.9: 1.0 * 0.9 * 0.9 = 0.81; score01 stays 1."""
    turns = trajectory("format", "compilation", "tests")
    reward = with_turns(RIGHT, turns, CvdpConfig(turns=4, discount=0.9))
    assert reward.value == pytest.approx(0.81)
    assert reward.score01 == 1.0
    assert dict(reward.components) == {"tests": 1.0, "turn_1": 0.1, "turn_2": 0.5, "turn_3": 1.0}
    assert reward.evidence["turns"] == 3
    assert reward.evidence["discount"] == pytest.approx(0.81)
    assert reward.evidence["ended"] == "right"
    assert reward.evidence["why"] == ""


def test_without_a_discount_only_components_are_added():
    """The default leaves the value as it was."""
    reward = with_turns(RIGHT, trajectory("syntax", "tests"), CvdpConfig(turns=2))
    assert reward.value == 1.0
    assert reward.components["turn_1"] == 0.3


def test_a_stage_that_is_no_component_counts_as_the_one_before():
    """With cvdp.compilation=false a turn that compiles is worth what parses."""
    config = CvdpConfig(turns=2, compilation=False)
    assert with_turns(RIGHT, trajectory("compilation", ""), config).components["turn_1"] == 0.3
    none = with_turns(RIGHT, trajectory("none", ""), config)
    assert none.components["turn_1"] == 0.0


def test_a_single_turn_is_left_alone():
    """An answer of one turn, or as files, has the reward that it always had."""
    config = CvdpConfig(turns=4, discount=0.5)
    for single in (Trajectory.from_text("p", "x"), Trajectory(problem_id="p", files={})):
        assert with_turns(RIGHT, single, config) is RIGHT
        assert turns_key(single, config) == []
        assert turns_of(single) == 1


def test_the_key_holds_what_decides():
    """Another number of turns, discount or stage is another verdict."""
    config = CvdpConfig(turns=4, discount=0.9)
    keys = [
        turns_key(trajectory("format", "tests"), config),
        turns_key(trajectory("syntax", "tests"), config),
        turns_key(trajectory("format", "format", "tests"), config),
        turns_key(trajectory("format", "tests"), evolve(config, discount=0.8)),
        turns_key(trajectory("format", "tests", ended="turns"), config),
    ]
    assert len({repr(key) for key in keys}) == len(keys)


def test_notes_from_a_file_may_hold_anything():
    """Odd notes, as a hand-written trajectory file may have, do not stop a rescoring."""
    odd = evolve(trajectory("format", "tests"), notes={"turns": ["x", {"stage": 3}, {}]})
    assert with_turns(RIGHT, odd, CvdpConfig(turns=2)).components["turn_1"] == 0.0


class CountingJudge(RewardFn):
    """Accepts the text "right", fails to run on "broken", and counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        return trajectory.files["a"]

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        text = trajectory.files["a"]
        self.asked.append(text)
        await asyncio.sleep(0.01)
        if text == "broken":
            raise VerifierError("no")
        return Reward(value=0.9, score01=float(text == "right"))


def test_equal_answers_are_asked_about_once(monkeypatch):
    """A group's duplicates cost one run; a failed run is tried again; memory is bounded."""
    monkeypatch.setattr(hidden, "_KEPT", 2)
    judge = CountingJudge()
    problem = Problem(id="p", prompt=())

    async def ask() -> None:
        tests = HiddenTests(judge)
        found = await asyncio.gather(
            *(tests.accept(problem, {"a": text}) for text in ["right", "wrong"] * 3)
        )
        assert found == [True, False] * 3
        assert sorted(judge.asked) == ["right", "wrong"]
        failed = await asyncio.gather(
            *(tests.accept(problem, {"a": "broken"}) for _ in range(2)), return_exceptions=True
        )
        assert all(isinstance(error, VerifierError) for error in failed)
        assert judge.asked.count("broken") == 2
        await tests.accept(problem, {"a": "third"})
        assert not await tests.accept(problem, {"a": "wrong"})
        assert await tests.accept(problem, {"a": "right"})
        assert judge.asked.count("right") == 2

    asyncio.run(ask())
