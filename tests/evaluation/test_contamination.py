"""What a model was trained on is found beside its weights, and a score on it is not held-out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rlvr import (
    BackendSpec,
    BuildContext,
    CheckpointError,
    CheckpointerSpec,
    EvalReport,
    Problem,
    Reward,
    ScoredGroup,
    Trajectory,
)
from rlvr.assembly.configured import Configured
from rlvr.assembly.trained_model import lineage_at_start, load_last
from rlvr.builtin.file_checkpoints import FileCheckpointer, FileCheckpointOptions
from rlvr.evaluation.contamination import facts, held_out, marked, sentence
from rlvr.records.lineage import FILE, UNKNOWN, Lineage, after_training, lineage_of, record_of
from rlvr.records.run_state import RunState
from rlvr.testing.fakes import TinyBackend


def problems(*names: str) -> list[Problem]:
    """Problems `family_number`; a name without `_` has no family."""
    return [
        Problem(id=n, prompt=(), labels={"family": n.partition("_")[0]} if "_" in n else {})
        for n in names
    ]


def scored(given: Sequence[Problem], *scores: Sequence[float]) -> list[ScoredGroup]:
    return [
        ScoredGroup(
            problem=problem,
            trajectories=[Trajectory.from_text(problem.id, "x") for _ in row],
            outcomes=[Reward(value=s, score01=s) for s in row],
        )
        for problem, row in zip(given, scores, strict=True)
    ]


def write(path: Path, record: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    return path.parent


TRAINED = Lineage(families=("fifo", "lfsr"), source="run.json")


@pytest.mark.parametrize(
    ("asked", "lineage", "verdict", "seen"),
    [
        (("lfsr_1", "uart_1"), TRAINED, False, ("lfsr_1",)),
        (("uart_1", "gcd_1"), TRAINED, True, ()),
        (("uart_1", "nameless"), TRAINED, None, ()),
        (("lfsr_1", "nameless"), TRAINED, False, ("lfsr_1",)),
        (("uart_1",), Lineage(families=("lfsr",), source="r", is_complete=False), None, ()),
        (("lfsr_1", "nameless"), Lineage(), True, ()),
        (("lfsr_1",), UNKNOWN, None, ()),
    ],
)
def test_held_out_is_never_claimed_where_a_label_or_a_record_is_missing(
    asked: tuple[str, ...], lineage: Lineage, verdict: bool | None, seen: tuple[str, ...]
) -> None:
    """Yes, no and not known, by what is recorded."""
    found = held_out(problems(*asked), lineage)

    assert (found.verdict, found.seen) == (verdict, seen)


def test_the_unseen_part_has_a_score_of_its_own() -> None:
    """Hand-worked: of three problems one was trained on; the others are right 1 of 2 and 2 of 2."""
    given = problems("lfsr_1", "uart_1", "gcd_1")
    groups = scored(given, (1.0, 1.0), (1.0, 0.0), (1.0, 1.0))
    found = held_out(given, TRAINED)

    told = facts(found, groups)

    assert (told["held_out"], told["seen"]) == (False, ["lfsr_1"])
    assert (told["unseen"]["problems"], told["unseen"]["pass_at"]["1"]) == (2, 0.75)
    said = sentence(found, told)
    assert (
        "NOT held-out: 1 of 3 problems are of families that this model was trained on: lfsr" in said
    )
    assert "unseen part: pass@1 75.0%" in said


def test_without_an_unseen_part_there_is_no_such_score() -> None:
    """All seen: no number is left that could be called held-out."""
    given = problems("lfsr_1")
    told = facts(held_out(given, TRAINED), scored(given, (1.0,)))

    assert told == {"held_out": False, "seen": ["lfsr_1"]}


def test_many_families_are_counted_and_not_listed() -> None:
    """A sentence stays one line."""
    given = problems(*(f"f{i}_1" for i in range(9)))
    lineage = Lineage(families=tuple(f"f{i}" for i in range(9)), source="r")

    assert sentence(held_out(given, lineage), {}).endswith("f0, f1, f2, f3, f4, f5 and 3 more")


def test_a_report_of_a_run_is_marked() -> None:
    """An evaluation inside a run says which of its problems share a family with training."""
    report = EvalReport(
        split="test", scores={}, pass_at={}, low=0, high=0, reward_mean=0, samples=0
    )

    marked_report = marked(report, problems("lfsr_1", "uart_1"), TRAINED)

    assert (marked_report.held_out, marked_report.seen) == (False, ("lfsr_1",))


def test_a_checkpoint_is_found_by_walking_up_to_its_run(tmp_path: Path) -> None:
    """`gpt2:RUN/checkpoints/step-N/model` of a run: own families and those of before."""
    write(tmp_path / "r/run.json", {
        "config": {}, "families": ["lfsr"], "families_before": ["fifo"], "families_complete": True,
    })  # fmt: skip
    model = tmp_path / "r/checkpoints/step-000003/model"
    model.mkdir(parents=True)

    assert lineage_of(f"gpt2:{model}") == Lineage(
        families=("fifo", "lfsr"), source=str(tmp_path / "r/run.json")
    )


def test_copied_weights_still_say_what_they_were_trained_on(tmp_path: Path) -> None:
    """The file beside the weights counts first: the folder may lie anywhere."""
    folder = write(tmp_path / "exported" / FILE, TRAINED.to_json())

    assert lineage_of(f"gpt2:{folder}").families == ("fifo", "lfsr")


def test_a_run_of_before_families_were_recorded_is_not_known(tmp_path: Path) -> None:
    """Silence is no proof."""
    folder = write(tmp_path / "run.json", {"config": {}})

    lineage = lineage_of(f"gpt2:{folder}")

    assert not lineage.is_complete
    assert "does not name all families" in sentence(held_out(problems("a_1"), lineage), {})


@pytest.mark.parametrize(
    "model", ["starter", "gpt2:new?layers=1", "tinker:Qwen", "server:http://x#y", "gpt2:nowhere"]
)
def test_a_model_without_files_here_has_no_record(model: str) -> None:
    """Then rlvr says that it knows of no training, and no more."""
    assert lineage_of(model) == Lineage()
    told = sentence(held_out(problems("a_1"), Lineage()), {})
    assert told == "held-out: yes, as far as rlvr knows: no run of it trained this model"


@pytest.mark.parametrize("text", ["not JSON", "[]", '{"steps": 3}'])
def test_a_foreign_run_json_is_no_record(tmp_path: Path, text: str) -> None:
    """Another program's file of that name says nothing about a model."""
    (tmp_path / "run.json").write_text(text)

    assert lineage_of(f"gpt2:{tmp_path}").source != str(tmp_path / "run.json")


def test_chains_of_runs_add_up() -> None:
    """Trained on b after a: both; a problem without a family makes the record incomplete."""
    start = Lineage(families=("a",), source="x")

    assert after_training(start, problems("b_1", "b_2")).families == ("a", "b")
    assert record_of(start, problems("b_1")) == {
        "families": ["b"],
        "families_before": ["a"],
        "families_complete": True,
    }
    assert not after_training(start, problems("b_1", "nameless")).is_complete
    assert Lineage.from_json(record_of(start, problems("b_1"))).families == ("a", "b")


def stub(spec: CheckpointerSpec) -> Configured:
    """As much of a configuration as loading a checkpoint needs."""
    return cast(Configured, SimpleNamespace(chosen=SimpleNamespace(checkpointer=spec)))


FILES = CheckpointerSpec(name="file", target="rlvr.builtin.file_checkpoints:FileCheckpointer")


def test_the_last_checkpoint_is_loaded_and_none_is_said_aloud(tmp_path: Path) -> None:
    """The newest of two; a run without one names the command that goes on with it."""
    context = BuildContext(run_dir=tmp_path)
    backend = TinyBackend(seed=3)
    with pytest.raises(CheckpointError, match="no checkpoint of it"):
        asyncio.run(load_last(stub(FILES), context, tmp_path, backend))

    keeper = FileCheckpointer(FileCheckpointOptions(keep=9), context)
    for step in (2, 5):
        state = RunState(step=step, lineage=TRAINED)
        asyncio.run(keeper.save(step, state.to_json(), backend))

    assert asyncio.run(load_last(stub(FILES), context, tmp_path, TinyBackend(seed=4))) == 5
    beside = tmp_path / "checkpoints/step-000005/model" / FILE
    assert json.loads(beside.read_text()) == TRAINED.to_json()
    keeper.verify(keeper.list()[-1])


def test_an_adapter_that_a_run_starts_from_brings_its_own_families(tmp_path: Path) -> None:
    """The base knows one family, the adapter's directory another: the start knows both."""
    for name, family in (("base", "adders"), ("adapter", "counters")):
        (tmp_path / name).mkdir()
        record = {"families": [family], "families_complete": name == "base"}
        (tmp_path / name / "trained-on.json").write_text(json.dumps(record), encoding="utf-8")
    backend = BackendSpec(name="b", target="b:B", starts=("b.adapter", "b.unused"))

    def start(**values: str) -> Lineage:
        configured: Any = SimpleNamespace(
            chosen=SimpleNamespace(backend=backend, advantage=None, loss=None),
            options=SimpleNamespace(values=values),
        )
        return lineage_at_start(configured, f"hf:{tmp_path / 'base'}")

    assert start().families == ("adders",)
    both = start(**{"b.adapter": str(tmp_path / "adapter"), "b.unused": ""})
    assert both.families == ("adders", "counters")
    assert not both.is_complete
