"""The reward of chess: reads the answer strictly, then asks the judge of its kind of question."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, cast

from rlvr import BuildContext, Problem, Reward, RewardFn, Trajectory
from rlvr_chess.config import ChessConfig
from rlvr_chess.questions.grammar import Profile, parse_environment, parse_policy
from rlvr_chess.questions.records import EnvironmentStep, Payload, PolicyPosition, Solution
from rlvr_chess.questions.transition import count_of, transition
from rlvr_chess.rewards import environment, policy, second_opinion, solution
from rlvr_chess.rewards.environment import environment_reward
from rlvr_chess.rewards.policy import policy_reward
from rlvr_chess.rewards.second_opinion import DeeperSearch
from rlvr_chess.rewards.solution import solution_reward
from rlvr_chess.values import ActionValues

if TYPE_CHECKING:
    from rlvr_chess.tables.store import TableStore


class ChessReward(RewardFn):
    """
    Judges a policy line by action values, a state by the rules, a solution by its points.

    A malformed answer, and one that the token limit cut off, earns 0. The table store is opened
    where a position comes without values, and not before: most runs need no engine.
    """

    has_second_opinion = True

    def __init__(self, config: ChessConfig, context: BuildContext) -> None:
        self._config = config
        self._profile = cast(Profile, config.profile)
        self._store: TableStore | None = None
        self._opening = asyncio.Lock()
        self._open = AsyncExitStack()
        self._deeper = DeeperSearch(config)

    async def __aenter__(self) -> ChessReward:
        """Open nothing yet."""
        self._opening = asyncio.Lock()
        self._deeper = DeeperSearch(self._config)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close what was opened: cache and engine."""
        self._store = None
        await self._open.aclose()

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        """
        The reward of one answer.

        Raises:
            PrerequisiteError: The engine is needed, and missing or another build than the tables'.
            VerifierError: The engine failed. This is never a reward.
        """
        payload = _payload(problem)
        if trajectory.finish == "length":
            return self._malformed(payload, "cut off at the token limit")
        text = trajectory.completion
        if isinstance(payload, EnvironmentStep):
            state = parse_environment(text, self._profile)
            if state is None:
                return self._malformed(payload, "not a state of the grammar")
            truth, exact = transition(payload.fen, payload.uci), self._config.exact
            return environment_reward(payload.fen, truth, state, exact_only=exact)
        answer = parse_policy(text, _count(payload), self._profile)
        if answer is None:
            return self._malformed(payload, "not a line of the grammar")
        if isinstance(payload, Solution):
            return solution_reward(payload, answer)
        values = payload.values
        if values is None:
            values = await self._values(payload.fen)
        return policy_reward(values, answer)

    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Reward | None:
        """
        Whether an answer is right by another reader, python-chess alone and a deeper search.

        Without an engine (or with `chess.second_nodes=0`) a chosen move is held against the table.
        """
        payload, text = _payload(problem), trajectory.completion
        if trajectory.finish == "length":
            return second_opinion.opinion(False, "cut off at the token limit")
        is_padded = self._profile == "rookworld"
        if isinstance(payload, EnvironmentStep):
            return second_opinion.on_environment(payload, text, is_padded=is_padded)
        best = second_opinion.chosen_move(payload.fen, text, is_padded=is_padded)
        if isinstance(payload, Solution):
            return second_opinion.on_solution(payload, best)
        deeper = await self._deeper.values(payload.fen, self._open) if best else None
        values = deeper or payload.values or await self._values(payload.fen)
        return second_opinion.on_position(best, values, is_deeper=deeper is not None)

    def _malformed(self, payload: Payload, why: str) -> Reward:
        weights = policy.WEIGHTS
        if isinstance(payload, EnvironmentStep):
            weights = {"exact": 1.0} if self._config.exact else environment.WEIGHTS
        elif isinstance(payload, Solution):
            weights = solution.WEIGHTS
        components = dict.fromkeys(weights, 0.0)
        return Reward(value=0.0, score01=0.0, components=components, evidence={"why": why})

    async def _values(self, fen: str) -> ActionValues:
        async with self._opening:
            if self._store is None:
                from rlvr_chess.tables.store import TableStore

                store = TableStore.of(self._config)
                self._store = await self._open.enter_async_context(store)
        return await self._store.values(fen)


def _count(payload: PolicyPosition | Solution) -> int:
    """Candidates that a line must name; a table holds every legal move."""
    if isinstance(payload, PolicyPosition) and payload.values is not None:
        return payload.values.count
    return count_of(payload.fen)


def _payload(problem: Problem) -> Payload:
    if not isinstance(problem.payload, PolicyPosition | EnvironmentStep | Solution):
        raise TypeError(f"{problem.id} is not a problem of the chess task")
    return problem.payload
