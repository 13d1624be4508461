"""Call a reward's second judge once: if it fails, this opinion is lost and the run goes on."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping
from typing import Any

from rlvr.log import get
from rlvr.parts import RewardFn
from rlvr.types import Problem, Reward, Trajectory
from rlvr.verification.verdict_cache import outcome_to_json

log = get(__name__)


async def opinion_of(
    reward: RewardFn, problem: Problem, trajectory: Trajectory, *, deadline_s: float
) -> dict[str, Any]:
    """
    The second opinion on one answer, as JSON fields of a line of `opinions.jsonl`.

    `opinion` is confirmed, rejected, none or failed; `why` and `outcome` say more. An exception, a
    result of another type and no result within the deadline are failures to run.
    """
    try:
        async with asyncio.timeout(deadline_s) as deadline:
            said = await _asked(reward.second_opinion, problem, trajectory)
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is None or current.cancelling():
            raise
        return _failed(problem, "it was cancelled from inside")
    except (Exception, SystemExit) as error:  # the plugin border
        late = f"no answer within {deadline_s:g} s" if deadline.expired() else ""
        return _failed(problem, late or f"{type(error).__name__}: {error}")
    if said is None:
        return {"opinion": "none"}
    if not isinstance(said, Reward):
        promised = "second_opinion promises Reward or None"
        return _failed(problem, f"{promised}, and gave {type(said).__name__}")
    found: dict[str, Any] = {
        "opinion": "confirmed" if said.score01 == 1.0 else "rejected",
        "why": str(said.evidence.get("why", "")),
        "outcome": outcome_to_json(said),
    }
    return found if _is_json(found) else {**found, "outcome": None}


async def _asked(ask: Any, problem: Problem, trajectory: Trajectory) -> Any:
    """What a second judge gives; one that is no coroutine runs in a thread."""
    if inspect.iscoroutinefunction(ask):
        return await ask(problem, trajectory)
    said = await asyncio.to_thread(ask, problem, trajectory)
    return await said if inspect.isawaitable(said) else said


def _failed(problem: Problem, why: str) -> dict[str, Any]:
    log.warning("second_opinion_failed", problem=problem.id, reason=why)
    return {"opinion": "failed", "why": why}


def _is_json(values: Mapping[str, Any]) -> bool:
    try:
        json.dumps(values)
    except (TypeError, ValueError):
        return False
    return True
