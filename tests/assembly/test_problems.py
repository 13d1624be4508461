"""The problems of a run: refused where there are none, left out where nothing can be answered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog

from rlvr import (
    BuildContext,
    ConfigError,
    Message,
    Problem,
    TaskSpec,
    Trajectory,
    UnknownNameError,
)
from rlvr.assembly.configure import check_dataset
from rlvr.assembly.problems import (
    check_dataset_is_read,
    posed,
    problems_to_evaluate,
    train_problems,
    warn_of_unwritable,
)
from rlvr.config.core import CORE_OPTIONS, RunOptions
from rlvr.config.layer import PYTHON
from rlvr.config.layers import Layer, resolve
from rlvr.rollouts.group import GroupSampler
from rlvr.rollouts.references import ReferenceSampler
from rlvr.testing.fakes import CharTokenizer, ToyTask


class Begun(ToyTask):
    """Some problems cannot be put to a policy."""

    def __init__(self, *silent: str) -> None:
        super().__init__()
        self.silent = silent

    def why_unanswerable(self, problem: Problem) -> str:
        return "it begins with the answer" if problem.id in self.silent else ""


REPLAY: Any = ReferenceSampler(None, BuildContext())


def test_what_cannot_be_put_to_a_policy_is_left_out_aloud() -> None:
    """Counted and named where the policy samples; all of them where it does not."""
    first, second, *others = (p.id for p in ToyTask().problems("train"))
    task = Begun(first, second)
    with structlog.testing.capture_logs() as logs:
        kept = train_problems(task, GroupSampler(), "toy")
        assert len(train_problems(task, REPLAY, "toy")) == len(others) + 2

    assert [p.id for p in kept] == others
    (line,) = logs
    assert (line["problems"], line["of"], line["first"]) == (2, len(others) + 2, first)
    assert len(posed(ToyTask(), GroupSampler(), kept)) == len(others)


def test_nothing_to_answer_at_all_ends_the_run_before_it_begins() -> None:
    """The first one, why, and what to do; an empty split is said as such."""
    everything = [p.id for p in ToyTask().problems("train")]
    with pytest.raises(ConfigError, match=r"it begins with the answer(.|\n)*--sampler replay"):
        train_problems(Begun(*everything), GroupSampler(), "toy")

    class Empty(ToyTask):
        def problems(self, split: str) -> Iterable[Problem]:
            return []

    with pytest.raises(ConfigError, match=r"nothing to train on(.|\n)*another --dataset"):
        train_problems(Empty(), GroupSampler(), "toy")


def test_refused_rows_are_told_with_a_command_that_every_plugin_has() -> None:
    """How many, the first with its reason, and `rlvr score --golden`, which lists them all."""

    class Refusing(ToyTask):
        def problems(self, split: str) -> Iterable[Problem]:
            return []

        def unsupported(self) -> dict[str, str]:
            return {"line 3": "no king", "line 4": "two kings"}

    with pytest.raises(ConfigError) as refused:
        train_problems(Refusing(), GroupSampler(), "toy")
    said = str(refused.value)
    assert "2 unsupported rows, the first line 3: no king" in said
    assert "rlvr score --plugin toy --dataset FILE --golden" in said
    assert "rlvr toy list" not in said


def test_an_evaluation_of_which_nothing_can_be_put_is_empty() -> None:
    """A run with problems to train on is not refused for the few that are held out."""
    task = Begun(*(p.id for p in ToyTask().problems("test")))
    with structlog.testing.capture_logs() as logs:
        assert posed(task, GroupSampler(), tuple(task.problems("test"))) == ()
    assert [line["event"] for line in logs] == ["problems_left_out"]
    assert train_problems(task, GroupSampler(), "toy")


class OnlyTrains(ToyTask):
    """Nothing to evaluate."""

    def problems(self, split: str) -> Iterable[Problem]:
        return super().problems(split) if split == "train" else []


def test_a_resumed_run_has_as_little_to_evaluate_as_before() -> None:
    """Its options come from its record, all of them: the default split was chosen by nobody."""
    kept = {**resolve(CORE_OPTIONS, []).values, "eval.samples": 1}
    options = resolve(CORE_OPTIONS, [Layer("run r", kept, is_typed=True)])

    with structlog.testing.capture_logs() as logs:
        assert problems_to_evaluate(OnlyTrains(), GroupSampler(), options) == ()

    assert [line["event"] for line in logs] == ["nothing_to_evaluate"]


def test_a_notebook_that_evaluates_nothing_is_warned_too() -> None:
    """As a command line is: options of a file may be for several runs."""
    for place, count in ((PYTHON, 1), ("run.toml", 0)):
        options = resolve(CORE_OPTIONS, [Layer(place, {"eval.every": 5})])
        with structlog.testing.capture_logs() as logs:
            assert problems_to_evaluate(ToyTask(), GroupSampler(), options) == ()
        assert [line["given"] for line in logs] == [["eval.every"]] * count


def test_paths_of_several_data_sets_may_hold_commas(tmp_path: Path) -> None:
    """Separated by commas, or a JSON list; the one that does not exist is named."""
    for name in ("a,b", "c"):
        (tmp_path / name).touch()
    several = TaskSpec(name="t", target="m:T", reads_several=True)
    one, other, none = (str(tmp_path / name) for name in ("a,b", "c", "d,e"))
    for given in (one, f"{other},{other}", json.dumps([one, other])):
        check_dataset(RunOptions(dataset=given), several)
    for given, missing in ((json.dumps([one, none]), "d,e"), (f"{other},{none}", "d")):
        with pytest.raises(UnknownNameError, match=rf"/{missing} was asked for"):
            check_dataset(RunOptions(dataset=given), several)
    check_dataset(RunOptions(dataset=json.dumps([one, other] * 200)), several)  # no path so long
    fetched = TaskSpec(name="t", target="m:T", data="hf download it")
    with pytest.raises(UnknownNameError, match=r"c,(.|\n)*public data: hf download it"):
        check_dataset(RunOptions(dataset=f"{other},{other}"), fetched)


class _Unread(ToyTask):
    """Keeps its context, and never asks it for the data set."""

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        self.context = attrs.evolve(context, seed=context.seed + 1)


class _Built(_Unread):
    def __init__(self, context: BuildContext) -> None:
        super().__init__(context)
        self.path = self.context.dataset  # of a copy


class _Several(_Unread):
    def __init__(self, context: BuildContext) -> None:
        super().__init__(context)
        self.paths = context.datasets


class _Lazy(_Unread):
    def problems(self, split: str) -> Iterator[Problem]:
        yield from super().problems(split)
        assert self.context.dataset is not None  # its own problems, then those of the file


@pytest.mark.parametrize("cls", [_Built, _Several, _Lazy])
def test_a_data_set_may_be_read_early_or_late(cls: type[_Unread]) -> None:
    """In the constructor, by way of a copy or of `datasets`, or when problems are listed."""
    readings: list[Path] = []
    task = cls(BuildContext(dataset=Path("d.jsonl"), readings=readings))

    check_dataset_is_read(RunOptions(dataset="d.jsonl"), task, readings)

    assert set(readings) == {Path("d.jsonl")}


def test_a_data_set_that_nobody_reads_is_refused() -> None:
    """The author has to do nothing for it; without a data set there is nothing to refuse."""
    readings: list[Path] = []
    task = _Unread(BuildContext(dataset=Path("d.jsonl"), readings=readings))

    with pytest.raises(ConfigError, match=r"d\.jsonl was given.*\n?.*read no file"):
        check_dataset_is_read(RunOptions(dataset="d.jsonl"), task, readings)

    check_dataset_is_read(RunOptions(), task, readings)


class _Answers(ToyTask):
    """References of the given texts."""

    def __init__(self, *texts: str) -> None:
        super().__init__()
        self.texts = texts

    def problems(self, split: str) -> Iterator[Problem]:
        for number, text in enumerate(self.texts):
            yield Problem(
                id=str(number),
                prompt=[Message(role="user", content="?")],
                split=split,
                payload=text,
            )

    def reference(self, problem: Problem) -> Trajectory | None:
        if problem.payload == "raise":
            raise ConfigError("an engine is needed for this")
        return Trajectory.from_text(problem.id, problem.payload) if problem.payload else None


class _Dropping(CharTokenizer):
    """Drops characters outside its alphabet, as byte-level BPE without all bytes does."""

    def encode(self, text: str) -> list[int]:
        return super().encode("".join(c for c in text if c in ALPHABET))


ALPHABET = "abc \n"


@pytest.mark.parametrize("tokenizer", [CharTokenizer(ALPHABET), _Dropping(ALPHABET)])
@pytest.mark.parametrize(
    ("texts", "characters"),
    [
        (["ab", "a\u0301b"], "\xe1"),
        (["ab", "xay", "zz"], "xyz"),
        (["ABC"], "ABC"),
        (["a b\n\tc", ""], ""),  # space may change
        (["", ""], ""),
        (["abc"] * 100 + ["z"], ""),  # cheap: some problems, spread evenly
        (["abc"] * 50 + ["z"] * 50, "z"),
        (["raise", "z"], "z"),
    ],
)
def test_characters_that_the_tokenizer_loses_are_warned_of_once(
    tokenizer: CharTokenizer, texts: list[str], characters: str
) -> None:
    """Of references alone; a tokenizer may drop what it does not know, or raise."""
    task = _Answers(*texts)

    with structlog.testing.capture_logs() as logs:
        warn_of_unwritable(task, list(task.problems("train")), tokenizer)

    assert [log["characters"] for log in logs] == ([characters] if characters else [])
