"""Second opinions beside a run: who is asked, what they may do, and how a resumed run goes on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

from rlvr import (
    Failed,
    Outcome,
    PrerequisiteError,
    Problem,
    Reward,
    ScoredGroup,
    Trajectory,
    Unscorable,
    VerifierError,
)
from rlvr.assembly.recipe import Recipe
from rlvr.config.core import (
    ParityOptions,
    VerifyOptions,
)
from rlvr.progress.status import RunStatus
from rlvr.records.run_directory import RunDir
from rlvr.records.run_state import RunState
from rlvr.testing.fakes import ToyReward, ToyTask
from rlvr.training.loop import train
from rlvr.training.second_opinions import Opinions, drawn
from rlvr.verification.slots import Slots
from rlvr.verification.trust import Trust
from tests.training.conftest import toy_recipe, watch_of

pytest.importorskip("torch", reason="losses speak torch; pip install torch")

RIGHT, WRONG = Reward(value=1, score01=1), Reward(value=0, score01=0)


class Easy(ToyReward):
    """Takes any letter for right; its second judge takes the right one only."""

    has_second_opinion = True

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        return RIGHT if trajectory.completion.isalpha() else WRONG

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        return None

    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Any:
        verdict = await super().__call__(problem, trajectory)
        return RIGHT if verdict == attrs.evolve(verdict, score01=1.0) else WRONG


class Honest(Easy):
    """Both judges agree."""

    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Any:
        return await self(problem, trajectory)


def plan(directory: Path, reward: Any, *, steps: int = 4, **verify: Any) -> Recipe:
    """A run of the tiny backend on the toy, 12 problems of 8 answers a step."""
    options = VerifyOptions(**{"second_opinion": 0.25, **verify})
    parity = ParityOptions(threshold=None)
    return toy_recipe(directory, reward=reward, steps=steps, parity=parity, verify=options)


def run(directory: Path, reward: Any, **changes: Any) -> list[dict[str, Any]]:
    """Train; the lines of `opinions.jsonl`."""
    asyncio.run(train(plan(directory, reward, **changes), RunState(), watch_of(directory)))
    return RunDir(directory).read_lines("opinions.jsonl")


def resumed(directory: Path, reward: Any, *, steps: int) -> RunState:
    """Go on from the last checkpoint of a run until `steps`."""
    again = plan(directory, reward, steps=steps)
    restored = asyncio.run(again.checkpointer.load(again.checkpointer.list()[-1], again.backend))
    state = RunState.from_json(restored)
    return asyncio.run(train(again, state, watch_of(directory)))


def settled(lines: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """What was judged and how, in the order of the answers."""
    return sorted(
        (o["step"], o["trajectory"], o["opinion"])
        for o in lines
        if o["opinion"] not in ("asked", "alarm")
    )


def answer_at(directory: Path, where: str) -> dict[str, Any]:
    """The line of `trajectories/` that an opinion names."""
    name, _, line = where.rpartition(":")
    found: dict[str, Any] = json.loads((directory / name).read_text().split("\n")[int(line) - 1])
    return found


def test_a_weak_verifier_raises_one_alarm_that_names_the_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any letter is called right: the second judge says so, once, with problem and step."""
    lines = run(tmp_path, Easy())

    (alarm,) = [o for o in lines if o["opinion"] == "alarm"]
    said = [line for line in capsys.readouterr().err.splitlines() if "false_accepts_alarm" in line]
    assert len(said) == 1
    first = next(o for o in lines if o["opinion"] == "rejected")
    assert first["id"] in said[0]
    assert first["trajectory"] in said[0]
    assert alarm["trust/false_accept_low"] > 0.1

    resumed(tmp_path, Easy(), steps=5)  # no step waits for an opinion; by now all were given
    metrics = RunDir(tmp_path).read_lines("metrics.jsonl")
    assert metrics[-1]["trust/alarm"] == 1.0
    assert metrics[-1]["trust/false_accept"] > 0.5
    assert "false_accepts_alarm" not in capsys.readouterr().err


def test_an_honest_verifier_raises_none(tmp_path: Path) -> None:
    """The judges agree: a share of zero, with the interval that so few opinions allow."""
    lines = run(tmp_path, Honest())

    assert {o["opinion"] for o in lines} == {"asked", "confirmed"}
    assert Trust.of(lines).interval[0] == 0.0
    assert Trust.of(lines).waiting == 0  # all were waited for at the end


def test_each_opinion_names_the_answer_that_was_judged(tmp_path: Path) -> None:
    """`trajectory` leads to the line in `trajectories/` of an answer that was called right."""
    lines = run(tmp_path, Easy())

    judged = [o for o in lines if "trajectory" in o]
    assert judged
    for opinion in judged:
        answer = answer_at(tmp_path, opinion["trajectory"])
        assert (answer["id"], answer["step"]) == (opinion["id"], opinion["step"])
        assert answer["outcome"]["score01"] == 1.0


@pytest.mark.parametrize("verify", [{"second_opinion": 0.0}, {}])
def test_a_run_without_opinions_is_as_it_was(tmp_path: Path, verify: dict[str, float]) -> None:
    """Switched off, or with a reward that has no second judge: no file and no metric."""
    lines = run(tmp_path, Easy() if verify else ToyReward(), **verify)

    assert lines == []
    assert not (tmp_path / "opinions.jsonl").exists()
    metrics = RunDir(tmp_path).read_lines("metrics.jsonl")
    assert not [name for line in metrics for name in line if name.startswith("trust/")]


def sampled(directory: Path) -> list[dict[str, Any]]:
    """All trajectories of a run without what a verification cost."""
    records = [
        json.loads(line)
        for path in sorted((directory / "trajectories").glob("step-*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return [{**r, "outcome": {**r["outcome"], "cost_s": 0}} for r in records]


def test_opinions_change_nothing_that_is_trained(tmp_path: Path) -> None:
    """With and without them a run samples the same answers."""
    run(tmp_path / "with", Easy())
    run(tmp_path / "without", Easy(), second_opinion=0.0)

    assert sampled(tmp_path / "with") == sampled(tmp_path / "without")


class Raises(Easy):
    """A second judge that does something wrong."""

    def __init__(self, error: Any) -> None:
        super().__init__()
        self.error = error

    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Any:
        if isinstance(self.error, BaseException):
            raise self.error
        return self.error


@pytest.mark.parametrize(
    "error",
    [
        VerifierError("no simulator"),
        PrerequisiteError("no engine"),
        TimeoutError("its own"),
        OSError(28, "No space left on device"),
        KeyError("x"),
        RecursionError("deep"),
        asyncio.CancelledError(),
        SystemExit(3),
        1.0,
        "right",
        Unscorable(reason="?"),
        Failed(reason="?"),
        [],
    ],
    ids=repr,
)
def test_whatever_a_second_judge_does_costs_opinions_and_not_the_run(
    tmp_path: Path, error: Any
) -> None:
    """It is counted as could not run, never as a false accept, and training goes on."""
    lines = run(tmp_path, Raises(error), steps=2)

    trust = Trust.of(lines)
    assert trust.failed > 0
    assert (trust.judged, trust.waiting, trust.has_alarmed) == (0, 0, False)
    metrics = RunDir(tmp_path).read_lines("metrics.jsonl")
    assert len(metrics) == 2


def test_none_is_no_opinion(tmp_path: Path) -> None:
    """It is counted apart and is in no share."""
    trust = Trust.of(run(tmp_path, Raises(None), steps=2))

    assert trust.unsure > 0
    assert (trust.judged, trust.failed) == (0, 0)


class Blocks(Easy):
    """A second judge that is no coroutine."""

    def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Any:
        time.sleep(0.01)
        return RIGHT


def test_a_second_judge_that_blocks_runs_in_a_thread(tmp_path: Path) -> None:
    """A plain function is allowed, and holds up no step."""
    trust = Trust.of(run(tmp_path, Blocks(), steps=1))

    assert trust.confirmed > 0
    assert trust.failed == 0


class Waits(Easy):
    """A second judge that answers only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.asked = self.most = self.now = 0

    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Any:
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await self.gate.wait()
        self.now -= 1
        return RIGHT


def test_a_step_never_waits_for_an_opinion(tmp_path: Path) -> None:
    """All steps end while no opinion does; then the run waits for all of them, four at a time."""
    reward = Waits()
    watch = watch_of(tmp_path)

    async def both() -> None:
        training = asyncio.create_task(train(plan(tmp_path, reward), RunState(), watch))
        while watch.state.step < 4 or reward.most < 4:
            await asyncio.sleep(0.01)
        assert not training.done()
        assert "second opinions" in watch.status.phase
        reward.gate.set()
        await training

    asyncio.run(both())
    metrics = RunDir(tmp_path).read_lines("metrics.jsonl")
    assert metrics[-1]["trust/waiting"] > 4
    assert Trust.of(RunDir(tmp_path).read_lines("opinions.jsonl")).confirmed == reward.asked
    assert reward.most == 4  # verify.workers, once nothing else runs


def test_while_training_goes_on_few_are_asked_at_a_time(tmp_path: Path) -> None:
    """One for four workers; an opinion under way holds no slot of a verification."""
    reward, slots = Waits(), Slots(count=4)
    group = ScoredGroup(
        problem=next(iter(ToyTask().problems("train"))),
        trajectories=[Trajectory.from_text("toy_a", "a")] * 8,
        outcomes=[RIGHT] * 8,
    )

    async def ask() -> None:
        opinions = Opinions(
            reward=reward,
            share=1.0,
            seed=1,
            directory=RunDir(tmp_path),
            status=RunStatus(),
            slots=slots,
        )
        async with opinions:
            opinions.ask(1, [group])
            await asyncio.sleep(0.05)
            assert reward.now == 1
            async with AsyncExitStack() as verifications:
                for _ in range(4):
                    slot = slots.taken(())
                    await asyncio.wait_for(verifications.enter_async_context(slot), timeout=5)
                reward.gate.set()
                await asyncio.sleep(0.05)
                assert reward.asked == 1  # the next one stands behind the verifications
            await opinions.drain()

    asyncio.run(ask())
    assert reward.asked == 8


def test_a_slow_opinion_ends_at_the_deadline(tmp_path: Path) -> None:
    """`verify.deadline_s` holds for second opinions too."""
    lines = run(tmp_path, Waits(), steps=1, deadline_s=0.05)

    assert Trust.of(lines).failed > 0
    assert "no answer within 0.05 s" in str(lines)


def test_a_resumed_run_draws_the_same_answers_and_loses_none(tmp_path: Path) -> None:
    """Stopped after step 3 of six and resumed from step 2: the opinions of a whole run."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    expected = settled(run(whole, Easy(), steps=6))
    run(parts, Easy(), steps=3)
    RunDir(parts).truncate_after(2)

    again = plan(parts, Easy(), steps=6)
    kept = next(c for c in again.checkpointer.list() if c.step == 2)
    restored = asyncio.run(again.checkpointer.load(kept, again.backend))
    asyncio.run(train(again, RunState.from_json(restored), watch_of(parts)))

    assert sampled(whole) == sampled(parts)
    lines = RunDir(parts).read_lines("opinions.jsonl")
    assert settled(lines) == expected
    assert len([o for o in lines if o["opinion"] == "alarm"]) == 1


def test_what_was_drawn_before_a_crash_is_judged_after_it(tmp_path: Path) -> None:
    """Drawn and not judged: a resumed run reads the answer from `trajectories/` and asks again."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    expected = settled(run(whole, Easy(), steps=4))
    run(parts, Easy(), steps=2)
    path = parts / "opinions.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    asked = [json.dumps(o) + "\n" for o in lines if o["opinion"] == "asked"]
    path.write_text("".join(asked))

    resumed(parts, Easy(), steps=4)

    assert settled(RunDir(parts).read_lines("opinions.jsonl")) == expected


def test_an_answer_that_cannot_be_read_again_is_a_failure(tmp_path: Path) -> None:
    """Its trajectory is gone after a crash: counted as could not run, and the run goes on."""
    run(tmp_path, Easy(), steps=2)
    where = {"step": 1, "id": "nobody", "trajectory": "trajectories/step-000001.jsonl:99999"}
    odd = [
        {**where, "opinion": "asked"},
        {**where, "trajectory": "x", "opinion": "asked"},
    ]
    (tmp_path / "opinions.jsonl").write_text("".join(json.dumps(o) + "\n" for o in odd))

    state = resumed(tmp_path, Easy(), steps=3)

    assert state.step == 3
    assert Trust.of(RunDir(tmp_path).read_lines("opinions.jsonl")).failed == 2


def group_of(outcomes: Sequence[Outcome]) -> ScoredGroup:
    """One problem's answers with these verdicts."""
    problem = next(iter(ToyTask().problems("train")))
    trajectories = [Trajectory.from_text(problem.id, str(i)) for i in range(len(outcomes))]
    return ScoredGroup(problem=problem, trajectories=trajectories, outcomes=outcomes)


def test_only_what_was_called_right_is_drawn() -> None:
    """No partly right answer, no proxy's verdict, no failure; lines count from 1."""
    outcomes = [
        WRONG,
        Reward(value=0.9, score01=0.9),
        RIGHT,
        Reward(value=1.0, score01=0.0, is_proxy=True),
        Unscorable(reason="?"),
        Failed(reason="?"),
        RIGHT,
    ]

    found = list(drawn([group_of(outcomes)] * 2, 3, share=1.0, seed=1))

    assert [line for line, _, _ in found] == [3, 7, 10, 14]
    assert [t.completion for _, _, t in found] == ["2", "6"] * 2


def test_a_draw_depends_on_seed_step_and_line_alone() -> None:
    """What other answers earned moves no draw; another step or seed draws others."""
    all_right = [group_of([RIGHT] * 200)]
    some_right = [group_of([RIGHT, WRONG] * 100)]

    def lines(groups: list[ScoredGroup], step: int = 3, seed: int = 1) -> set[int]:
        return {line for line, _, _ in drawn(groups, step, share=0.3, seed=seed)}

    assert lines(all_right) == lines(all_right)
    assert lines(some_right) == {line for line in lines(all_right) if line % 2 == 1}
    assert lines(all_right) != lines(all_right, step=4)
    assert lines(all_right) != lines(all_right, seed=2)
    assert 30 < len(lines(all_right)) < 90


class SameKey(Easy):
    """Keeps verdicts by the answer, and counts what its second judge is asked."""

    asked = 0

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        return ToyReward.verdict_key(self, problem, trajectory)

    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Any:
        self.asked += 1
        return WRONG


def test_equal_answers_get_one_opinion(tmp_path: Path) -> None:
    """An answer that the policy repeats is judged once and counts as often as it was drawn."""
    reward = SameKey()
    lines = run(tmp_path, reward, second_opinion=1.0)

    judged = [o for o in lines if o["opinion"] == "rejected"]
    answers = {
        (o["id"], json.dumps(answer_at(tmp_path, o["trajectory"])["segments"][-1]["text"]))
        for o in judged
    }
    assert reward.asked == len(answers) < len(judged)
