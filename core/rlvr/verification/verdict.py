"""Call a reward or its second judge once, and check the result; a plain function runs in a thread.

Any exception is one failed verification, except that of a missing tool, which passes through.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import math
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any

import attrs
import numpy as np

from rlvr.border.calls import Border, is_finite, shown
from rlvr.errors import PrerequisiteError, VerifierError
from rlvr.log import get
from rlvr.parts import RewardFn
from rlvr.plugins.author_error import log_traceback, said
from rlvr.types import Failed, Outcome, Problem, Reward, Trajectory, Unscorable
from rlvr.verification.blocked_loop import LoopWatch
from rlvr.verification.slots import CLOCK, Clock

log = get(__name__)

_Answer = tuple[Any, BaseException | None]
_PROMISED = "a Reward, an Unscorable, or VerifierError"
_GRACE_S = 30.0
"""Time that a cancelled verification has to clean up; then it is left running."""
_LOOK_S = 0.01
"""Time between two looks at a clock that stands still and has less than this left."""
_SLACK = 1e-6


async def verdict_of(
    reward: RewardFn,
    problem: Problem,
    trajectory: Trajectory,
    *,
    deadline_s: float,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Outcome:
    """
    Judge one trajectory.

    Args:
        reward: Its `__call__` may be a coroutine, or a plain function: that runs in a thread.
        problem: Of the trajectory.
        trajectory: To judge.
        deadline_s: The verification is cancelled after this; waiting for `Slots` does not count.
        bounds: Lowest and highest value that the reward's spec declares.

    Raises:
        PrerequisiteError: The reward says that a tool is missing.
    """
    answer = await _within(deadline_s, contained(reward, reward, problem, trajectory))
    if answer is None:
        return Failed(reason=f"{problem.id}: the verifier did not answer within {deadline_s:g} s")
    found, error = answer
    if isinstance(error, PrerequisiteError):
        raise error
    if isinstance(error, VerifierError):
        return Failed(reason=f"{problem.id}: {error}")
    fault = f"it raised {said(error)}" if error else fault_of_outcome(found, bounds)
    if fault:
        if error:
            log_traceback(error)
        at = Border(reward, "reward", "__call__", promised=_PROMISED, problem=problem.id)
        return Failed(reason=f"{problem.id}: {at.sentence(fault)}")
    return _plain(found)


async def opinion_of(
    reward: RewardFn, problem: Problem, trajectory: Trajectory, *, deadline_s: float
) -> dict[str, Any]:
    """
    The second opinion on one answer, as JSON fields of a line of `opinions.jsonl`.

    `opinion` is confirmed, rejected, none or failed; `why` and `outcome` say more. An exception, a
    result of another type and no result within the deadline are failures to run.
    """
    asked = contained(reward.second_opinion, reward, problem, trajectory)
    answer = await _within(deadline_s, asked)
    found, error = answer or (None, None)
    why = ""
    if answer is None:
        why = f"no answer within {deadline_s:g} s"
    elif isinstance(error, asyncio.CancelledError):
        why = "it was cancelled from inside"
    elif isinstance(error, VerifierError):
        why = said(error)
    elif fault := _fault_of_opinion(found, error):
        at = Border(reward, "reward", "second_opinion", promised="a Reward or None")
        why = at.sentence(fault)
    if why:
        log.warning("second_opinion_failed", problem=problem.id, reason=why)
        return {"opinion": "failed", "why": why}
    if found is None:
        return {"opinion": "none"}
    return {
        "opinion": "confirmed" if found.score01 == 1.0 else "rejected",
        "why": str(found.evidence.get("why", "")),
        "outcome": outcome_to_json(_plain(found)),
    }


def _fault_of_opinion(found: object, error: BaseException | None) -> str:
    if error is not None:
        return f"it raised {said(error)}"
    if found is None:
        return ""
    return fault_of_outcome(found) if isinstance(found, Reward) else shown(found)


async def _within(deadline_s: float, work: Coroutine[Any, Any, _Answer]) -> _Answer | None:
    """The result of the work; None if it was cancelled after the deadline."""
    clock, context = Clock(), contextvars.copy_context()
    context.run(CLOCK.set, clock)
    task = asyncio.create_task(work, context=context)
    try:
        while not task.done() and (left := deadline_s - clock.seconds()) > 0:
            await asyncio.wait({task}, timeout=max(left, _LOOK_S))
        return task.result() if task.done() else None
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE_S)


async def contained(
    call: Callable[..., Any], reward: RewardFn, problem: Problem, trajectory: Trajectory
) -> _Answer:
    """
    Result or exception of a reward or of a method of it; one without async runs in a thread.

    The exception may be `SystemExit`, which would end the event loop, or a cancellation.
    """
    try:
        method = call if inspect.isroutine(call) else type(call).__call__
        if inspect.iscoroutinefunction(inspect.unwrap(method)):
            found = call(problem, trajectory)
        else:
            found = await _in_thread(lambda: call(problem, trajectory))
        if inspect.isawaitable(found):
            found = await LoopWatch.shared().around(found, reward, problem.id)
    except BaseException as error:  # the plugin border; our own cancellation is seen by its caller
        return None, error
    return found, None


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Run in a thread of its own, which the end of the process does not wait for."""
    future: Future[tuple[Any, BaseException | None]] = Future()
    future.set_running_or_notify_cancel()  # who waits may be cancelled; the thread goes on
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result((context.run(work), None))
        except BaseException as raised:  # a thread that dies would leave the run waiting
            future.set_result((None, raised))

    threading.Thread(target=run, daemon=True, name="rlvr-reward").start()
    found, error = await asyncio.wrap_future(future)
    if error is not None:
        raise error
    return found


def fault_of_outcome(outcome: object, bounds: tuple[float, float] = (-math.inf, math.inf)) -> str:
    """Fault of the value that a reward returned; "" if it has none."""
    if isinstance(outcome, Failed):
        return _fault_of_reason(outcome.reason)
    if isinstance(outcome, Unscorable):
        return _fault_of_reason(outcome.reason) or fault_of_json(outcome.evidence)
    if not isinstance(outcome, Reward):
        return f"{shown(outcome)}; return rlvr.Reward(value=..., score01=...)"
    numbers = {
        "value": outcome.value,
        "score01": outcome.score01,
        "cost_s": outcome.cost_s,
        **{f"components[{name!r}]": value for name, value in outcome.components.items()},
    }
    for name, value in numbers.items():
        if not is_finite(value):
            return f"{name} = {shown(value)}, which is no finite number"
    low, high = bounds
    if not low - _SLACK <= outcome.value <= high + _SLACK:
        return f"value {outcome.value:g}, which is outside of its declared bounds {low:g}..{high:g}"
    if not all(isinstance(name, str) for name in outcome.components):
        return f"components with a name that is no text: {shown(dict(outcome.components))}"
    for name, count in (("passed", outcome.tests_passed), ("total", outcome.tests_total)):
        if count is not None and (not isinstance(count, int | np.integer) or count < 0):
            return f"tests_{name} = {shown(count)}, which is no count"
    for name in ("cached", "is_proxy"):
        if not isinstance(getattr(outcome, name), bool | np.bool_):
            return f"{name} = {shown(getattr(outcome, name))}, which is neither True nor False"
    return fault_of_json(outcome.evidence)


def _fault_of_reason(reason: object) -> str:
    return "" if isinstance(reason, str) else f"a reason that is no text: {shown(reason)}"


def fault_of_json(evidence: object) -> str:
    """Why evidence cannot be written as JSON; "" where it can."""
    try:
        json.dumps(evidence)
    except (RecursionError, TypeError, ValueError) as error:
        return f"evidence that is no JSON: {said(error)}"
    return ""


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """JSON form of any outcome; `outcome_from_json` reads it."""
    kind = next(k for k in (Reward, Unscorable, Failed) if isinstance(outcome, k))
    fields = {f.name: getattr(outcome, f.name) for f in attrs.fields(kind)}  # no subclass's own
    if not fields.get("is_proxy", True):
        del fields["is_proxy"]
    return {"kind": kind.__name__.lower(), **fields}


def outcome_from_json(record: Mapping[str, Any], *, cached: bool) -> Outcome:
    """
    The outcome of a JSON record; a reward read from a store costs nothing.

    Raises:
        KeyError, TypeError, ValueError: It is none.
    """
    fields = {name: value for name, value in record.items() if name != "kind"}
    if record["kind"] == "unscorable":
        return Unscorable(**fields)
    if record["kind"] != "reward":
        raise ValueError(f"an outcome of the kind {record['kind']!r}")
    fields["cached"] = cached
    if cached:
        fields["cost_s"] = 0.0
    return Reward(**fields)


def _plain(outcome: Outcome) -> Outcome:
    """The same reward with Python's numbers: NumPy's cannot be written as JSON."""
    if not isinstance(outcome, Reward):
        return outcome
    kinds: dict[str, Any] = dict.fromkeys(("value", "score01", "cost_s"), float)
    kinds |= {"cached": bool, "is_proxy": bool}
    kinds |= {n: int for n in ("tests_passed", "tests_total") if getattr(outcome, n) is not None}
    return attrs.evolve(
        outcome,
        components={name: float(value) for name, value in outcome.components.items()},
        **{name: kind(getattr(outcome, name)) for name, kind in kinds.items()},
    )
