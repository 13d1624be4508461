"""Scoring: bounded, cached, joined; failures never become rewards."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from rlvr import (
    Failed,
    Group,
    Outcome,
    PrerequisiteError,
    Problem,
    Reward,
    RewardFn,
    RewardSpec,
    Slots,
    Trajectory,
    Unscorable,
    VerifierError,
)
from rlvr.border.calls import built
from rlvr.log import setup
from rlvr.verification.runner import VerificationRunner
from rlvr.verification.slots import Clock
from rlvr.verification.verdict_cache import SqliteStore

PROBLEM = Problem(id="p", prompt=())


class Verifier(RewardFn):
    """Does what the completion says: a number, or how to fail."""

    def __init__(self, key: bool = False) -> None:
        self.calls = 0
        self.running = 0
        self.most = 0
        self._has_key = key

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        self.calls += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0.01)
            match trajectory.completion:
                case "unscorable":
                    return Unscorable(reason="no verdict")
                case "crash":
                    raise VerifierError("the simulator was killed")
                case "missing":
                    raise PrerequisiteError("no simulator")
                case "hang":
                    await asyncio.sleep(60)
            value = float(trajectory.completion)
            return Reward(value=value, score01=value, cost_s=2.0)
        finally:
            self.running -= 1

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        return trajectory.completion if self._has_key else None


def score(scorer: VerificationRunner, *texts: str) -> list[Outcome]:
    pairs = [(PROBLEM, Trajectory.from_text("p", text)) for text in texts]
    return asyncio.run(scorer.pairs(pairs))


def test_outcomes_keep_the_order_and_the_three_kinds_apart() -> None:
    """A crash is Failed, no verdict is Unscorable, and neither is reward 0."""
    outcomes = score(
        VerificationRunner(reward=Verifier(), workers=4), "1", "crash", "unscorable", "0.5"
    )

    assert [type(o) for o in outcomes] == [Reward, Failed, Unscorable, Reward]
    assert isinstance(outcomes[1], Failed)
    assert "the simulator was killed" in outcomes[1].reason


def test_workers_bound_what_runs_at_a_time() -> None:
    """Three workers: never four verifications at once, and all three used."""
    verifier = Verifier()

    score(VerificationRunner(reward=verifier, workers=3), *["1"] * 12)

    assert verifier.most == 3


def test_the_longest_verifications_begin_first() -> None:
    """What is expected to take long starts first; outcomes keep the order that was given."""
    begun: list[str] = []

    class Timed(Verifier):
        def expected_seconds(self, problem: Problem, trajectory: Trajectory) -> float:
            return {"0.1": 1.0, "0.2": 9.0, "0.3": 0.0, "0.4": 9.0}[trajectory.completion]

        async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
            begun.append(trajectory.completion)
            return await super().__call__(problem, trajectory)

    outcomes = score(VerificationRunner(reward=Timed(), workers=1), "0.1", "0.2", "0.3", "0.4")

    assert begun == ["0.2", "0.4", "0.1", "0.3"]
    assert [o.value for o in outcomes if isinstance(o, Reward)] == [0.1, 0.2, 0.3, 0.4]


def test_the_runner_gives_up_on_a_hanging_verifier() -> None:
    """The deadline is the runner's, and passing it is a failure to run."""
    (outcome,) = score(VerificationRunner(reward=Verifier(), deadline_s=0.05), "hang")

    assert isinstance(outcome, Failed)
    assert "within 0.05 s" in outcome.reason


class Slotted(RewardFn):
    """
    Needs a slot for so many seconds; with "both" a second part of it waits for the same slot.

    Whoever has the slot before keeps it until the event.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.slots, self.may_end = seconds, Slots(1), asyncio.Event()

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        parts = 2 if trajectory.completion == "both" else 1
        await asyncio.gather(*(self._part() for _ in range(parts)))
        return Reward(value=1.0, score01=1.0)

    async def _part(self) -> None:
        async with self.slots.taken():
            await asyncio.sleep(self.seconds)

    async def occupied(self, text: str, *, hold_s: float, deadline_s: float) -> tuple[Outcome, int]:
        """Verify while another one has the slot; the outcome, and slots free at the end."""
        runner = VerificationRunner(reward=self, deadline_s=deadline_s)
        async with self.slots.taken():
            judged = asyncio.create_task(runner.pairs([(PROBLEM, Trajectory.from_text("p", text))]))
            await asyncio.sleep(hold_s)
        async with asyncio.timeout(5):
            (outcome,) = await judged
        return outcome, self.slots._free


def test_waiting_for_a_slot_does_not_count_against_the_deadline() -> None:
    """The slot is another's for three times the deadline; then the answer is judged."""
    outcome, free = asyncio.run(Slotted(0.01).occupied("x", hold_s=0.6, deadline_s=0.2))

    assert isinstance(outcome, Reward)
    assert free == 1


@pytest.mark.parametrize("text", ["one", "both"])
def test_work_in_a_slot_counts_against_the_deadline(text: str) -> None:
    """Also where a second part of the verification waits behind the one that hangs."""
    outcome, free = asyncio.run(Slotted(60).occupied(text, hold_s=0.05, deadline_s=0.2))

    assert isinstance(outcome, Failed)
    assert "within 0.2 s" in outcome.reason
    assert free == 1


def test_a_clock_stands_still_while_all_that_is_known_of_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits in 1..5 and 6..9 s, has a slot in 3..7 s, and counts 0..1, 3..7 and 9..10 s."""
    now = 0.0
    monkeypatch.setattr("rlvr.verification.slots.time.monotonic", lambda: now)
    changes = {1: (1, 0), 3: (0, 1), 5: (-1, 0), 6: (1, 0), 7: (0, -1), 9: (-1, 0)}
    clock, read = Clock(since=0.0), []
    for second in range(11):
        now = float(second)
        read.append(clock.seconds())
        clock._add(*changes.get(second, (0, 0)))

    assert read == [0, 1, 1, 1, 2, 3, 4, 5, 5, 5, 6]


def test_duplicates_in_flight_are_verified_once() -> None:
    """A group's equal answers cost one verification; the joined ones say so."""
    verifier = Verifier(key=True)

    outcomes = score(VerificationRunner(reward=verifier, workers=4), "1", "1", "1", "0")

    assert verifier.calls == 2
    assert [o.cached for o in outcomes if isinstance(o, Reward)] == [False, True, True, False]
    assert [o.cost_s for o in outcomes if isinstance(o, Reward)] == [2.0, 0.0, 0.0, 2.0]


def test_verdicts_outlive_the_process_and_failures_do_not(tmp_path: Path) -> None:
    """What could not run is tried again; what was judged is not."""
    first, second = Verifier(key=True), Verifier(key=True)
    with_store = SqliteStore(tmp_path / "v.sqlite")
    score(VerificationRunner(reward=first, store=with_store), "1", "crash", "unscorable")
    with_store.close()

    again = SqliteStore(tmp_path / "v.sqlite")
    outcomes = score(VerificationRunner(reward=second, store=again), "1", "crash", "unscorable")

    assert (first.calls, second.calls) == (3, 1)
    assert isinstance(outcomes[0], Reward)
    assert outcomes[0].cached
    assert isinstance(outcomes[1], Failed)
    assert outcomes[2] == Unscorable(reason="no verdict")


def test_too_many_failures_stop_the_run() -> None:
    """One of four is past 20 %: exit 5, and the first reason is named."""
    group = Group(
        problem=PROBLEM,
        trajectories=[Trajectory.from_text("p", t) for t in ("1", "1", "1", "crash")],
    )

    with pytest.raises(VerifierError, match=r"1 of 4 .*\n.*simulator was killed"):
        asyncio.run(VerificationRunner(reward=Verifier()).groups([group]))
    scored = asyncio.run(VerificationRunner(reward=Verifier(), max_failures=0.25).groups([group]))
    assert len(scored[0].rewards) == 3


class Faulty(RewardFn):
    """Raises what the completion says, or returns it as a number: neither is a reward."""

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        text = trajectory.completion
        if text.startswith("raise "):
            raise ValueError(text.removeprefix("raise "))
        return cast(Outcome, {"true": True, "false": False, "none": None}.get(text, len(text) / 2))


@pytest.mark.parametrize(
    ("texts", "kinds"),
    [
        (["a", "bb", "ccc"], 1),
        (["true", "false", "true"], 1),
        (["none", "none", "none"], 1),
        (["raise no 7 in '1 2'", "raise no 12.5e-3 in '3'", 'raise no -1 in "4"'], 1),
        (["raise no a", "raise no a", "raise no b", "raise no b"], 2),
        (["true", "none", "a", "true", "none", "a"], 3),
        ([f"raise no {letter}" for letter in "aabbccddeeffgg"], 6),
    ],
)
def test_failures_of_one_kind_are_one_line_and_a_count(
    texts: list[str], kinds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """However many answers it concerns; past five kinds the others are one number."""
    setup(json=True)
    runner = VerificationRunner(reward=Faulty())
    outcomes = score(runner, *texts)
    at_step = runner.at(1, {})
    outcomes += score(at_step, *texts)
    runner.tell_failures()

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    told = [line["count"] for line in lines if line["event"] == "verifications_failed"]
    assert all(isinstance(outcome, Failed) for outcome in outcomes)
    assert len({line["reason"] for line in lines}) == len(lines) == kinds
    assert len(told) == kinds
    assert sum(told) == 2 * len(texts)


@pytest.mark.parametrize(
    ("settings", "events"),
    [
        ({}, []),
        ({"max_failures": 1.0}, ["verification_failed", "verifications_failed"]),
        ({"begun": -100.0}, ["verification_failed"]),
    ],
)
def test_the_reason_of_a_failure_is_told_once(
    settings: dict[str, float], events: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """By the error that ends the command, else by the log; late failures at once."""
    setup(json=True)
    runner = VerificationRunner(reward=Faulty(), **settings)  # type: ignore[arg-type]
    outcomes = score(runner, "raise no b", "raise no b")
    with suppress(VerifierError):
        runner.check_failures(outcomes)
    runner.tell_failures()

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == events
    assert sum("reason" in line for line in lines) == len(events[:1])


@pytest.mark.parametrize("text", ["a", "true", "false", "none"])
def test_what_is_no_reward_is_told_the_cure(text: str) -> None:
    """Numbers and truth values are what authors return first."""
    (outcome,) = score(VerificationRunner(reward=Faulty()), text)

    assert isinstance(outcome, Failed)
    assert outcome.reason.endswith("; return rlvr.Reward(value=..., score01=...)")


@pytest.mark.parametrize(("texts", "loosens"), [("ab", False), ("a", False), ("1a", True)])
def test_a_reward_that_always_fails_is_not_excused(texts: str, loosens: bool) -> None:
    """The plugin to check is named, and a higher share of failures only where some succeed."""
    reward = Verifier()
    built(RewardSpec(name="sums", target="a:B", provider="adder"), reward)
    group = Group(problem=PROBLEM, trajectories=[Trajectory.from_text("p", t) for t in texts])

    with pytest.raises(VerifierError) as caught:
        asyncio.run(VerificationRunner(reward=reward).groups([group]))

    assert "rlvr plugins check adder" in str(caught.value)
    assert ("verify.max_failures=SHARE" in str(caught.value)) is loosens


def test_a_missing_tool_is_no_verdict_on_anything() -> None:
    """PrerequisiteError passes through: nothing else of the step can run either."""
    with pytest.raises(PrerequisiteError, match="no simulator"):
        score(VerificationRunner(reward=Verifier(key=True), workers=2), "missing", "missing", "1")


def test_a_broken_rollout_is_not_judged() -> None:
    """A rollout that broke off is a failure, not a wrong answer."""
    verifier = Verifier()
    broken = Trajectory(problem_id="p", finish="error", error="tool died")

    (outcome,) = asyncio.run(VerificationRunner(reward=verifier).pairs([(PROBLEM, broken)]))

    assert verifier.calls == 0
    assert outcome == Failed(reason="the rollout broke off: tool died")
