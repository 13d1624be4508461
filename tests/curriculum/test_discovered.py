"""Problems that a task finds while a run goes on: trained on, remembered, equal after a resume."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from rlvr import (
    Curriculum,
    PartError,
    PassRate,
    Policy,
    Problem,
    SamplingParams,
    epochs,
)
from rlvr.assembly.recipe import Recipe
from rlvr.config.core import CheckpointOptions, TrainOptions
from rlvr.curriculum.discovered import Growth
from rlvr.records.lineage import Lineage, lineage_of
from rlvr.records.run_state import ProblemStream, RunState
from rlvr.testing.fakes import ToyTask
from rlvr.training.loop import train
from tests.training.conftest import toy_recipe, watch_of

pytest.importorskip("torch", reason="losses speak torch; pip install torch")

FOUND = "found-"


class Exploring(ToyTask):
    """Each step finds one of its own problems anew; keeps the last three. Takes those first."""

    discovers_problems = True

    def __init__(self) -> None:
        super().__init__()
        self.versions: list[int] = []

    async def discover(
        self, policy: Policy, memory: Mapping[str, Any], *, seed: int, step: int
    ) -> Mapping[str, Any]:
        self.versions.append(policy.version)
        letter = "abcdefghijkl"[seed % 12]
        return {"letters": [*memory.get("letters", []), f"{step}{letter}"][-3:]}

    def discovered(self, memory: Mapping[str, Any]) -> Sequence[Problem]:
        fixed = {problem.id: problem for problem in self.problems("train")}
        return [
            attrs.evolve(fixed[f"after-{name[-1]}"], id=FOUND + name)
            for name in memory.get("letters", [])
        ]

    def curriculum(self) -> Curriculum:
        return FoundFirst()


class FoundFirst(Curriculum):
    """All found problems, then epochs of the others."""

    def choose(
        self, problems: Sequence[Problem], count: int, *, seed: int, step: int, history: Any
    ) -> list[Problem]:
        found = [problem for problem in problems if problem.id.startswith(FOUND)]
        fixed = [problem for problem in problems if not problem.id.startswith(FOUND)]
        return [*found, *epochs(fixed, count - len(found), seed=seed, step=step)]


def recipe(directory: Path, task: ToyTask, **changes: Any) -> Recipe:
    params, every = SamplingParams(max_tokens=1, group_size=4), CheckpointOptions(every=1)
    own = {"params": params, "train": TrainOptions(problems=5), "checkpoint": every}
    return toy_recipe(directory, task=task, **{**own, **changes})


def ids_of(directory: Path, step: int) -> list[str]:
    lines = (directory / f"trajectories/step-{step:06d}.jsonl").read_text().splitlines()
    return [json.loads(line)["id"] for line in lines][::4]


def test_what_was_found_is_trained_on_at_once(tmp_path: Path) -> None:
    """Step n has the problem that was found before it, by the weights of step n - 1."""
    task = Exploring()
    state = asyncio.run(train(recipe(tmp_path, task), RunState(), watch_of(tmp_path)))
    met = [ids_of(tmp_path, step) for step in range(1, 7)]
    found = [[name for name in ids if name.startswith(FOUND)] for ids in met]
    assert [len(names) for names in found] == [1, 2, 3, 3, 3, 3]
    assert [names[-1][len(FOUND)] for names in found] == list("012345")
    assert task.versions == sorted(task.versions)
    assert len(set(task.versions)) == 6
    assert state.memory["task"]["letters"] == [name[len(FOUND) :] for name in found[-1]]


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    """The memory of the task is part of the state: problems and weights go on as they were."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    asyncio.run(train(recipe(whole, Exploring()), RunState(), watch_of(whole)))
    asyncio.run(train(recipe(parts, Exploring(), steps=3), RunState(), watch_of(parts)))
    again = recipe(parts, Exploring())
    newest = again.checkpointer.list()[-1]
    saved = asyncio.run(again.checkpointer.load(newest, again.backend))
    asyncio.run(train(again, RunState.from_json(saved), watch_of(parts)))
    for step in range(1, 7):
        assert ids_of(whole, step) == ids_of(parts, step)
    last = [recipe(d, ToyTask()).checkpointer.list()[-1] for d in (whole, parts)]
    assert (last[0].path / "model/tiny.npz").read_bytes() == (
        last[1].path / "model/tiny.npz"
    ).read_bytes()


def test_overlapping_steps_find_problems_too(tmp_path: Path) -> None:
    """With staleness the task grows beside training, and nothing that was found gets lost."""
    task = Exploring()
    plan = recipe(tmp_path, task, max_staleness=1)
    state = asyncio.run(train(plan, RunState(), watch_of(tmp_path)))
    assert state.step == 6
    met = [name for step in range(1, 7) for name in ids_of(tmp_path, step)]
    assert sum(name.startswith(FOUND) for name in met) >= 12


def test_an_id_that_is_taken_is_refused() -> None:
    """A found problem must not stand for another one."""

    class Clashing(Exploring):
        def discovered(self, memory: Mapping[str, Any]) -> Sequence[Problem]:
            return list(self.problems("train"))[:1]

    with pytest.raises(PartError, match="after-a"):
        grown_by(Clashing(), 0)


def grown_by(task: Any, *steps: int, **changes: Any) -> Growth:
    growth = Growth(fixed=list(ToyTask().problems("train")))
    for step in steps:
        asyncio.run(growth.grow(task, HANDLE, seed=1, step=step, **changes))
    return growth


HANDLE: Any = type("Handle", (), {"version": 0})()


class Careless(Exploring):
    """Changes the memory that it was given, and keeps tuples in it."""

    async def discover(
        self, policy: Policy, memory: Mapping[str, Any], *, seed: int, step: int
    ) -> Mapping[str, Any]:
        assert isinstance(memory, dict)
        assert all(isinstance(pair, list) for pair in memory.get("pairs", []))
        memory.setdefault("pairs", []).append((step, seed))
        return memory


def test_a_kept_memory_stays_as_it_was() -> None:
    """What a checkpoint is being written of does not change under the next search."""
    growth = grown_by(Careless(), 0)
    kept = growth.memory
    before = json.dumps(kept)
    asyncio.run(growth.grow(Careless(), HANDLE, seed=1, step=1))
    assert json.dumps(kept) == before
    assert growth.memory == json.loads(json.dumps(growth.memory))
    assert [step for step, _ in growth.memory["pairs"]] == [0, 1]


@pytest.mark.parametrize(
    "kept",
    [{"met": {1, 2}}, ["a"], None, {1: 2.0}, {"a": [{None: 1}]}, {"a": float("nan")}],
    ids=["set", "list", "none", "number as key", "none as key", "nan"],
)
def test_a_memory_that_is_no_json_is_refused(kept: Any) -> None:
    """It shows in the first step, not when a checkpoint is written."""

    class Keeping(Exploring):
        async def discover(self, *_: Any, **__: Any) -> Any:
            return kept

    with pytest.raises(PartError, match="Keeping did not keep its promise: discover"):
        grown_by(Keeping(), 0)


def test_a_problem_that_waits_stays_known_and_others_go() -> None:
    """Three are kept: of what was found before, only what waits to be handed out is known yet."""
    task = Exploring()
    growth = grown_by(task, 0, 1, 2)
    first, second, _ = (problem.id for problem in growth.found)
    asyncio.run(growth.grow(task, HANDLE, seed=1, step=3, waiting=[first, "after-a"]))
    assert first not in {problem.id for problem in growth.found}
    asyncio.run(growth.grow(task, HANDLE, seed=1, step=4, waiting=[first]))
    assert growth.known[first].id == first
    assert second not in growth.known
    assert growth.known["after-a"] is growth.fixed[0]
    asyncio.run(growth.grow(task, HANDLE, seed=1, step=5))
    assert len(growth.known) == len(growth.fixed) + 3


class Straying(Exploring):
    """What it finds is of a family of its own, named by the letter that it found."""

    def problems(self, split: str) -> list[Problem]:
        found = super().problems(split)
        return [attrs.evolve(problem, labels={"family": "data set"}) for problem in found]

    def discovered(self, memory: Mapping[str, Any]) -> Sequence[Problem]:
        return [
            attrs.evolve(problem, labels={"family": problem.id.removeprefix(FOUND)[-1]})
            for problem in super().discovered(memory)
        ]


def test_families_of_what_was_found_are_recorded(tmp_path: Path) -> None:
    """The weights are trained on them too, when the memory has let go of them as well."""
    task = Straying()
    start = Lineage(families=("data set",))
    state = asyncio.run(train(recipe(tmp_path, task), RunState(lineage=start), watch_of(tmp_path)))
    found = {name for step in range(1, 7) for name in ids_of(tmp_path, step) if FOUND in name}
    assert len(found) == 6
    assert set(state.lineage.families) == {"data set", *(name[-1] for name in found)}
    assert state.lineage.is_complete
    last = recipe(tmp_path, task).checkpointer.list()[-1].path
    assert lineage_of(f"tiny:{last / 'model'}").families == state.lineage.families


def test_found_problems_without_a_family_leave_the_record_incomplete() -> None:
    """Nobody can say then whether a score is of problems like those."""
    growth = grown_by(Exploring(), 0)
    assert not growth.settled(RunState(lineage=Lineage(families=("a",)))).lineage.is_complete


def test_pass_rates_of_what_was_let_go_are_forgotten() -> None:
    """Kept are those of fixed and found problems, and of those that wait to be trained on."""
    growth = grown_by(Exploring(), 0, 1, 2)
    gone, waiting, found = (problem.id for problem in growth.found)
    for step in (3, 4):
        asyncio.run(growth.grow(Exploring(), HANDLE, seed=1, step=step, waiting=[waiting]))
    met = PassRate(rate=0.5, count=1, step=2)
    names = [gone, waiting, found, "after-a"]
    state = RunState(
        history=dict.fromkeys(names, met), problem_stream=ProblemStream(waiting=[waiting])
    )
    assert set(growth.settled(state).history) == {waiting, found, "after-a"}
    assert set(growth.settled(attrs.evolve(state, problem_stream=ProblemStream())).history) == {
        found,
        "after-a",
    }


def test_a_checkpoint_holds_no_more_pass_rates_than_problems(tmp_path: Path) -> None:
    """However long a run finds problems: its state stays as large as what the memory holds."""
    task = Exploring()
    state = asyncio.run(train(recipe(tmp_path, task), RunState(), watch_of(tmp_path)))
    found = {problem.id for problem in task.discovered(state.memory["task"])}
    assert {name for name in state.history if name.startswith(FOUND)} == found


def test_two_found_problems_of_one_id_are_refused() -> None:
    """One of them could not be told from the other."""

    class Doubling(Exploring):
        def discovered(self, memory: Mapping[str, Any]) -> Sequence[Problem]:
            return [*super().discovered(memory)] * 2

    with pytest.raises(PartError, match="which is taken"):
        grown_by(Doubling(), 0)


def test_a_task_that_grows_nothing_keeps_nothing(tmp_path: Path) -> None:
    """Without the ability there is no memory and no further problem."""
    state = asyncio.run(train(recipe(tmp_path, ToyTask(), steps=1), RunState(), watch_of(tmp_path)))
    assert "task" not in state.memory
