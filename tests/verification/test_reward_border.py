"""A reward that breaks its promise costs one verification, and is named."""

from __future__ import annotations

import asyncio
import functools
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlvr import (
    ConfigError,
    Failed,
    Outcome,
    PrerequisiteError,
    Problem,
    Reward,
    RewardFn,
    RewardSpec,
    Trajectory,
    Unscorable,
    VerifierError,
)
from rlvr.border import calls
from rlvr.verification import blocked_loop
from rlvr.verification.runner import VerificationRunner

PROBLEM = Problem(id="the problem", prompt=())
RIGHT = Reward(value=1.0, score01=1.0)


class Foreign(RewardFn):
    """A plugin's reward: does what it is told for answers that say so, and judges the others."""

    def __init__(self, does: Callable[[], Any]) -> None:
        self._does = does

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        if trajectory.completion == "bad":
            found = self._does()
            return await found if asyncio.iscoroutine(found) else found  # type: ignore[no-any-return]
        return RIGHT


class Plain(Foreign):
    """The same as a plain function."""

    def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:  # type: ignore[override]
        return self._does() if trajectory.completion == "bad" else RIGHT  # type: ignore[no-any-return]


def as_reward(function: Any) -> RewardFn:
    """A reward that does what a function does."""

    class Judge(RewardFn):
        __call__ = staticmethod(function)

    return Judge()


def score(reward: Any, *texts: str, **options: Any) -> list[Outcome]:
    calls.built(RewardSpec(name="own/judge", target="a:b", provider="stranger"), reward)
    options = {"bounds": (0.0, 1.0), "workers": 4, **options}
    pairs = [(PROBLEM, Trajectory.from_text("the problem", text)) for text in texts]
    return asyncio.run(VerificationRunner(reward=reward, **options).pairs(pairs))


def raises(error: BaseException) -> Callable[[], Any]:
    def run() -> Any:
        raise error

    return run


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Leaving(Exception):
    def __str__(self) -> str:
        raise SystemExit(0)

    __repr__ = __str__


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("held")
        self.lock = threading.Lock()


class Leave(BaseException):
    """No Exception, and none that Python knows."""


class Unsayable(RuntimeError):
    def __str__(self) -> str:
        raise Leave

    __repr__ = __str__


class NoRepr:
    def __repr__(self) -> str:
        raise ValueError


def recursion() -> Any:
    return recursion()


def changed(**fields: Any) -> Callable[[], Any]:
    """A reward with values that its own checks let through."""

    def run() -> Any:
        reward = Reward(value=1.0, score01=1.0)
        for name, value in fields.items():
            object.__setattr__(reward, name, value)
        return reward

    return run


BROKEN: dict[str, tuple[Callable[[], Any], str]] = {
    "None": (lambda: None, "None"),
    "a float": (lambda: 0.5, "0.5 (float)"),
    "a text": (lambda: "right", "'right' (str)"),
    "a dict": (lambda: {"value": 1.0}, "(dict)"),
    "a class": (lambda: Reward, "(type)"),
    "no repr": (NoRepr, "its repr raised ValueError"),
    "a repr that leaves": (Leaving, "its repr raised SystemExit"),
    "a text that leaves": (raises(Leaving()), "its text raised SystemExit"),
    "a repr that leaves in its own way": (Unsayable, "its repr raised Leave"),
    "a text that leaves in its own way": (raises(Unsayable()), "its text raised Leave"),
    "a long text": (lambda: "x" * 10**6, "..."),
    "NaN": (lambda: Reward(value=math.nan, score01=1.0), "got value=nan"),
    "infinity": (changed(value=math.inf), "no finite number"),
    "a value as text": (changed(value="1"), "value = '1' (str)"),
    "a tensor": (changed(value=np.ones(2)), "value ="),
    "a number that is none": (changed(cost_s=None), "cost_s = None"),
    "too much": (lambda: Reward(value=3.0, score01=1.0), "declared bounds 0..1"),
    "too little": (lambda: Reward(value=-3.0, score01=0.0), "declared bounds 0..1"),
    "a component": (lambda: Reward(value=1.0, score01=1.0, components={"a": "b"}), "'a'"),
    "a component's name": (changed(components={1: 1.0}), "name that is no text"),
    "components of NaN": (lambda: Reward(value=1, score01=1, components={"a": math.nan}), "nan"),
    "counts": (lambda: Reward(value=1, score01=1, tests_passed=-1), "tests_passed = -1"),
    "evidence": (lambda: Reward(value=1, score01=1, evidence={"a": {1, 2}}), "no JSON"),
    "a flag": (changed(cached="yes"), "cached = 'yes' (str), which is neither"),
    "another flag": (changed(is_proxy=None), "is_proxy = None"),
    "no reason": (lambda: Unscorable(reason=None), "a reason that is no text"),  # type: ignore[arg-type]
    "ValueError": (raises(ValueError("bad value")), "ValueError: bad value"),
    "OSError": (raises(OSError(28, "No space left on device")), "No space left"),
    "TimeoutError": (raises(TimeoutError("my own")), "TimeoutError: my own"),
    "CancelledError": (raises(asyncio.CancelledError()), "CancelledError"),
    "SystemExit": (raises(SystemExit(3)), "SystemExit: 3"),
    "KeyboardInterrupt": (raises(KeyboardInterrupt()), "KeyboardInterrupt"),
    "GeneratorExit": (raises(GeneratorExit()), "GeneratorExit"),
    "MemoryError": (raises(MemoryError()), "MemoryError"),
    "StopIteration": (raises(StopIteration(1)), "StopIteration"),
    "RecursionError": (recursion, "RecursionError"),
    "AssertionError": (raises(AssertionError()), "AssertionError"),
    "a huge text": (raises(RuntimeError("x" * 10**6)), "RuntimeError: xxx"),
    "no text": (raises(Silent()), "its text raised RuntimeError"),
    "unpicklable": (raises(Unpicklable()), "Unpicklable: held"),
    "ConfigError": (raises(ConfigError("an option")), "ConfigError: an option"),
    "a group": (raises(BaseExceptionGroup("two", [ValueError("x"), SystemExit()])), "two"),
}


@pytest.mark.parametrize("kind", [Foreign, Plain])
@pytest.mark.parametrize(("does", "found"), BROKEN.values(), ids=BROKEN)
def test_one_bad_answer_is_one_failed_verification(
    does: Callable[[], Any], found: str, kind: type[Foreign]
) -> None:
    """Plugin, part, method, promise, what came and the problem are named; others are judged."""
    first, bad, last = score(kind(does), "good", "bad", "good")

    assert isinstance(first, Reward)
    assert isinstance(last, Reward)
    assert isinstance(bad, Failed), bad
    for word in ("plugin 'stranger'", "reward 'own/judge'", "__call__", "promised", "the problem"):
        assert word in bad.reason
    assert found in bad.reason
    assert "did not answer within" not in bad.reason
    assert len(bad.reason) < 1000


@pytest.mark.parametrize("kind", [Foreign, Plain])
def test_a_verifier_that_says_it_could_not_run_is_not_broken(kind: type[Foreign]) -> None:
    """Its own words stay; a missing tool still ends everything."""
    (failed,) = score(kind(raises(VerifierError("the simulator died"))), "bad")
    assert failed == Failed(reason="the problem: the simulator died")
    with pytest.raises(PrerequisiteError, match="no simulator"):
        score(kind(raises(PrerequisiteError("no simulator"))), "good", "bad")


def test_numpy_numbers_become_python_s_own() -> None:
    """They are no JSON, and a verdict is written as such."""
    given = Reward(
        value=np.float32(0.5), score01=np.int64(1), components={"a": np.float32(0.5)},
        tests_passed=np.int64(2),
    )  # fmt: skip
    (found,) = score(Foreign(lambda: given), "bad")

    assert isinstance(found, Reward)
    numbers = (found.value, found.score01, found.components["a"], found.tests_passed)
    assert [type(n) for n in numbers] == [float, float, float, int]


def test_plain_functions_are_rewards_and_run_in_threads() -> None:
    """A function, a lambda, a partial, a decorated coroutine; sleeping ones overlap."""
    together = threading.Barrier(4, timeout=60)

    def sleeping(problem: Problem, trajectory: Trajectory) -> Reward:
        assert threading.current_thread() is not threading.main_thread()
        together.wait()
        return RIGHT

    async def own(_: int, problem: Problem, trajectory: Trajectory) -> Reward:
        await asyncio.sleep(0)
        return RIGHT

    @functools.wraps(own)
    def decorated(problem: Problem, trajectory: Trajectory) -> Any:
        return own(1, problem, trajectory)

    assert all(isinstance(o, Reward) for o in score(as_reward(sleeping), *["x"] * 4))
    for reward in (lambda p, t: RIGHT, functools.partial(own, 1), decorated):
        (found,) = score(as_reward(reward), "x")
        assert isinstance(found, Reward), found


def test_a_plain_function_that_hangs_meets_the_deadline() -> None:
    """The run does not wait for its thread, nor does the end of the process."""
    forever = threading.Event()

    def hanging(problem: Problem, trajectory: Trajectory) -> Reward:
        forever.wait(60)
        return RIGHT

    (found,) = score(as_reward(hanging), "x", deadline_s=0.2)
    forever.set()
    assert isinstance(found, Failed)
    assert "did not answer within 0.2 s" in found.reason


def test_a_reward_that_ignores_its_cancellation_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had its time to clean up."""
    monkeypatch.setattr("rlvr.verification.verdict._GRACE_S", 0.1)
    stop = False

    class Stubborn(RewardFn):
        async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
            while not stop:
                try:
                    await asyncio.sleep(0.05)
                except asyncio.CancelledError:
                    continue
            return RIGHT

    async def run() -> list[Outcome]:
        nonlocal stop
        pair = (PROBLEM, Trajectory.from_text("the problem", "x"))
        found = await VerificationRunner(reward=Stubborn(), deadline_s=0.1).pairs([pair])
        stop = True
        await asyncio.sleep(0.2)
        return found

    (found,) = asyncio.run(run())
    assert isinstance(found, Failed)


@pytest.mark.parametrize("how", ["sleep", "compute", "often"])
def test_a_reward_that_blocks_the_event_loop_is_named_once(
    how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sleeping and computing alike, in one long step or in many short ones."""
    monkeypatch.setattr(blocked_loop, "_LONG_S", 0.2)
    monkeypatch.setattr(blocked_loop, "_OFTEN_S", 0.4)
    blocked_loop.LoopWatch.shared.cache_clear()

    class Blocking(RewardFn):
        async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
            await asyncio.sleep(0)
            if how == "often":
                time.sleep(0.15)
            elif how == "sleep":
                time.sleep(0.3)
            else:
                until = time.thread_time() + 0.3
                while time.thread_time() < until:
                    pass
            return RIGHT

    assert score(Blocking(), *["x"] * (12 if how == "often" else 2))
    said = capsys.readouterr().err
    assert said.count("reward_blocks_the_event_loop") == 1
    assert "plugin 'stranger'" in said
    assert "the problem" in said
    assert float(re.findall(r"seconds\W+([\d.]+)", said)[0]) > 0.1


def test_a_busy_machine_is_not_a_reward_that_blocks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a reward computes on a processor that a second program has as well."""
    monkeypatch.setattr(blocked_loop, "_LONG_S", 0.5)
    blocked_loop.LoopWatch.shared.cache_clear()
    waited = 0.0

    class Slowed(RewardFn):
        async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
            nonlocal waited
            since, until = time.monotonic(), time.thread_time() + 0.4
            while time.thread_time() < until:
                pass
            waited = time.monotonic() - since - 0.4
            return RIGHT

    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everywhere)})
    try:
        others = [subprocess.Popen([sys.executable, "-c", "while 1: pass"]) for _ in range(3)]
        try:
            score(Slowed(), "x")
        finally:
            for other in others:
                other.kill()
                other.wait()
    finally:
        os.sched_setaffinity(0, everywhere)
    assert waited > 0.2
    assert "reward_blocks_the_event_loop" not in capsys.readouterr().err


def test_a_block_that_never_ends_is_named_while_it_lasts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message comes from another thread: the loop itself cannot speak."""
    monkeypatch.setattr(blocked_loop, "_LONG_S", 0.1)
    blocked_loop.LoopWatch.shared.cache_clear()
    seen: list[str] = []

    class Endless(RewardFn):
        async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
            for _ in range(100):
                time.sleep(0.05)
                seen.append(capsys.readouterr().err)
                if "reward_blocks_the_event_loop" in seen[-1]:
                    break
            return RIGHT

    score(Endless(), "x")
    assert any("reward_blocks_the_event_loop" in text for text in seen)


@pytest.mark.parametrize("key", [17, b"bytes", ["list"], ValueError("no key"), SystemExit()])
def test_a_key_that_is_none_costs_one_verification(key: Any) -> None:
    """`verdict_key` gives a text or None; what else comes is named with its method."""

    class Keyed(Foreign):
        def verdict_key(self, problem: Problem, trajectory: Trajectory) -> Any:
            if trajectory.completion != "bad":
                return trajectory.completion
            if isinstance(key, BaseException):
                raise key
            return key

    good, bad = score(Keyed(lambda: RIGHT), "good", "bad")
    assert isinstance(good, Reward)
    assert isinstance(bad, Failed)
    assert "verdict_key" in bad.reason
    assert "stranger" in bad.reason


def test_an_order_that_cannot_be_told_loses_no_verdict() -> None:
    """`expected_seconds` orders what begins first, and nothing else."""

    class Costed(Foreign):
        def expected_seconds(self, problem: Problem, trajectory: Trajectory) -> Any:
            return None if trajectory.completion == "bad" else 1.0

    assert all(isinstance(o, Reward) for o in score(Costed(lambda: RIGHT), "good", "bad"))


def test_cancelling_a_run_still_cancels_its_verifications() -> None:
    """Ctrl-C is no fault of the reward: nothing is swallowed."""
    ended: list[str] = []

    class Slow(RewardFn):
        async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(trajectory.completion)
            return RIGHT

    async def run() -> None:
        pair = (PROBLEM, Trajectory.from_text("the problem", "x"))
        task = asyncio.create_task(VerificationRunner(reward=Slow()).pairs([pair]))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert ended == ["x"]
    assert sys.exc_info() == (None, None, None)
