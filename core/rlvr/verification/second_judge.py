"""Call a reward's second judge once: if it fails, this opinion is lost and the run goes on."""

from __future__ import annotations

import asyncio
from typing import Any

from rlvr.border.calls import is_cancelled, said
from rlvr.log import get
from rlvr.parts import RewardFn
from rlvr.types import Problem, Reward, Trajectory
from rlvr.verification.verdict import contained, fault_of_json
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
    async with asyncio.timeout(deadline_s) as deadline:
        found, error = await contained(reward.second_opinion, reward, problem, trajectory)
    if error is not None and is_cancelled():
        raise error
    why = ""
    if deadline.expired():
        why = f"no answer within {deadline_s:g} s"
    elif error is not None:
        why = said(error)
    elif not isinstance(found, Reward | None):
        why = f"second_opinion promises Reward or None, and gave {type(found).__name__}"
    if why:
        log.warning("second_opinion_failed", problem=problem.id, reason=why)
        return {"opinion": "failed", "why": why}
    if found is None:
        return {"opinion": "none"}
    outcome = outcome_to_json(found)
    return {
        "opinion": "confirmed" if found.score01 == 1.0 else "rejected",
        "why": str(found.evidence.get("why", "")),
        "outcome": None if fault_of_json(outcome) else outcome,
    }
