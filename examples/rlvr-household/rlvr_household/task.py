"""The task: houses made of seeds, lived in turn by turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from attrs import evolve

from rlvr import (
    BuildContext,
    ConfigError,
    Message,
    Metric,
    Policy,
    Probe,
    Problem,
    Task,
    Tokenizer,
    Trajectory,
)
from rlvr_household.config import HouseConfig
from rlvr_household.episode import HouseEpisode, house_of, span_codes
from rlvr_household.layout import houses, problem_of
from rlvr_household.play import figures, play
from rlvr_household.probes import probes, trajectory_of
from rlvr_household.solver import solve
from rlvr_household.state import Turn

EXPLANATION = """You live in a house of four rooms and do one thing a turn. Answer with two lines:
Thought: what you need next
Action: one command
Commands: go[room], open[furniture], take[thing], put[thing, furniture], wash[thing] (at a sink,
tub or trough), heat[thing] (at a stove or fire), cool[thing] (at a fridge or icebox).
You hold one thing at a time. You reach what is in the room you are in; closed furniture has to be
opened."""
"""What a model needs to know that was not made for the house (`house.explain`)."""


class HouseTask(Task):
    """Problems whose goals are held out in the other split; a solver gives the references."""

    def __init__(self, config: HouseConfig, context: BuildContext) -> None:
        if context.dataset is not None:
            raise ConfigError(
                f"the data set {context.dataset} was given to the house.",
                "found: its problems are its own and read no file",
                "leave --dataset out; trajectories go to --plugin sad",
            )
        self._config = config
        self._tokenizer: Tokenizer | None = None

    def problems(self, split: str) -> Sequence[Problem]:
        """Problems of "train", "test" or "all"; house.seed and the counts decide them."""
        return [p for p in self._problems if split in ("all", p.split)]

    def episode(self, problem: Problem) -> HouseEpisode:
        return HouseEpisode(problem, self._config.steps, self._meet)

    def reference(self, problem: Problem) -> Trajectory:
        return trajectory_of(problem, [str(turn) for turn in self._turns(problem)])

    def annotate(self, problem: Problem, trajectory: Trajectory) -> Mapping[str, Any]:
        """`span` (T,): 1 reasoning, 2 action, 0 what the policy did not write."""
        codes = None if self._tokenizer is None else span_codes(trajectory, self._tokenizer)
        return {} if codes is None else {"span": codes}

    def probes(self, problem: Problem, *, count: int, seed: int) -> Iterable[Probe]:
        """Answers that the reward has to reject, and some that it has to accept."""
        turns = self._turns(problem)
        return probes(problem, turns, self._config.steps, count=count, seed=seed)

    async def measure(self, policy: Policy, *, split: str, seed: int) -> AsyncIterator[Metric]:
        """Success, steps, reasoning length, CoT-match: of all problems and of each kind."""
        temperature = self._config.temperature
        played = await play(
            policy,
            self.problems(split),
            steps=self._config.steps,
            temperature=temperature,
            seed=seed,
        )
        note = f"temperature {temperature:g}" if temperature else "greedy"
        for figure in figures([one.notes for one in played], note):
            yield figure
        for kind in sorted({one.problem.labels["family"] for one in played}):
            notes = [one.notes for one in played if one.problem.labels["family"] == kind]
            yield evolve(figures(notes, note)[0], name=f"house/success/{kind}")

    # --- problems -------------------------------------------------------------------------------

    @cached_property
    def _problems(self) -> list[Problem]:
        counts = {"train": self._config.train, "test": self._config.test}
        return [
            self._explained(problem_of(house, split, f"{split}-{number:05d}"))
            for split, count in counts.items()
            for number, house in enumerate(islice(houses(split, self._config.seed), count))
        ]

    def _explained(self, problem: Problem) -> Problem:
        if not self._config.explain:
            return problem
        system = Message(role="system", content=EXPLANATION)
        return evolve(problem, prompt=[system, *problem.prompt])

    def _turns(self, problem: Problem) -> list[Turn]:
        return solve(house_of(problem), f"reference/{problem.id}")

    def _meet(self, tokenizer: Tokenizer) -> None:
        """Keep the policy's tokenizer: spans are found with it."""
        self._tokenizer = tokenizer
