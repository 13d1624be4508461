"""The reward of chess: reads the answer strictly, then asks the judge of its kind of question."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import cached_property
from typing import TYPE_CHECKING

import structlog

from rlvr import BuildContext, PrerequisiteError, Problem, Reward, RewardFn, Trajectory
from rlvr_chess.config import ChessConfig
from rlvr_chess.questions.grammar import parse_environment, parse_policy
from rlvr_chess.questions.records import EnvironmentStep, Payload, PolicyPosition, Solution
from rlvr_chess.questions.transition import count_of, transition
from rlvr_chess.rewards import environment, policy, second_opinion, solution
from rlvr_chess.rewards.environment import environment_reward
from rlvr_chess.rewards.policy import policy_reward
from rlvr_chess.rewards.solution import solution_reward
from rlvr_chess.values import ActionValues

if TYPE_CHECKING:
    from rlvr_chess.tables.store import TableStore

log = structlog.get_logger()


class ChessReward(RewardFn):
    """
    Judges a policy line by action values, a state by the rules, a solution by its points.

    A malformed answer, and one that the token limit cut off, earns 0. The table store is opened
    where a position comes without values, and not before: most runs need no engine.
    """

    has_second_opinion = True

    def __init__(self, config: ChessConfig, context: BuildContext) -> None:
        self._config = config
        self._profile = config.wording
        self._searches_deeper = config.second_nodes > 0

    async def __aexit__(self, *error: object) -> None:
        """Close what was opened: cache and engines."""
        async with AsyncExitStack() as opened:  # both, also where one cannot be closed
            for name in ("_store", "_deeper"):
                if (store := self.__dict__.pop(name, None)) is not None:
                    opened.push_async_exit(store)

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
        known = payload.values if isinstance(payload, PolicyPosition) else None
        count = known.count if known is not None else count_of(payload.fen)
        answer = parse_policy(text, count, self._profile)
        if answer is None:
            return self._malformed(payload, "not a line of the grammar")
        if isinstance(payload, Solution):
            return solution_reward(payload, answer)
        return policy_reward(known or await self._store.values(payload.fen), answer)

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
        deeper = await self._search_deeper(payload.fen) if best else None
        values = deeper or payload.values or await self._store.values(payload.fen)
        return second_opinion.on_position(best, values, is_deeper=deeper is not None)

    def _malformed(self, payload: Payload, why: str) -> Reward:
        weights = policy.WEIGHTS
        if isinstance(payload, EnvironmentStep):
            weights = {"exact": 1.0} if self._config.exact else environment.WEIGHTS
        elif isinstance(payload, Solution):
            weights = solution.WEIGHTS
        components = dict.fromkeys(weights, 0.0)
        return Reward(value=0.0, score01=0.0, components=components, evidence={"why": why})

    @cached_property
    def _store(self) -> TableStore:
        from rlvr_chess.tables.store import TableStore

        return TableStore.of(self._config)

    @cached_property
    def _deeper(self) -> TableStore:
        from rlvr_chess.engine.pool import EngineConfig
        from rlvr_chess.tables.store import TableStore

        config = self._config
        engine = EngineConfig(path=config.engine, nodes=config.second_nodes, processes=1)
        return TableStore(engine=engine, cache=None)

    async def _search_deeper(self, fen: str) -> ActionValues | None:
        """The values by `chess.second_nodes` nodes; None where that is 0 or no engine is there."""
        if self._searches_deeper:
            try:
                return await self._deeper.values(fen)
            except PrerequisiteError as error:
                log.info("second_opinion_without_engine", reason=str(error))
                self._searches_deeper = False
        return None


def _payload(problem: Problem) -> Payload:
    if not isinstance(problem.payload, PolicyPosition | EnvironmentStep | Solution):
        raise TypeError(f"{problem.id} is not a problem of the chess task")
    return problem.payload
