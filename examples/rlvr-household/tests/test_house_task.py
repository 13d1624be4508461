from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rlvr import BuildContext, ConfigError, Problem, Reward, Segment, Trajectory
from rlvr.border.declared import overrides
from rlvr.testing import TaskContract
from rlvr.testing.fakes import CharTokenizer
from rlvr_household.config import HouseConfig
from rlvr_household.episode import HouseEpisode, HouseReward, span_codes
from rlvr_household.probes import trajectory_of
from rlvr_household.task import HouseTask

SMALL = {"train": 24, "test": 8}


def make_task(**options: Any) -> HouseTask:
    return HouseTask(HouseConfig(**{**SMALL, **options}), BuildContext())


def judged(problem: Problem, trajectory: Trajectory, **options: Any) -> Reward:
    reward = HouseReward(HouseConfig(**options), BuildContext())
    return asyncio.run(reward(problem, trajectory))


class TestTask(TaskContract):
    """The promises of a task, every reference judged."""

    max_judged = 32

    def make_task(self) -> HouseTask:
        return make_task()

    def make_reward(self) -> HouseReward:
        return HouseReward(HouseConfig(**SMALL), BuildContext())


class TestExplained(TestTask):
    """The same with the commands explained in the prompt."""

    def make_task(self) -> HouseTask:
        return make_task(explain=True)


def test_abilities() -> None:
    """The task says spans, probes and figures."""
    task = make_task()
    for name in ("annotate", "probes", "measure"):
        assert overrides(task, name)


def test_probes_have_the_verdict_they_claim() -> None:
    """Every probe is judged as it says, and there are mutants of most problems."""
    task = make_task()
    mutants = 0
    for problem in task.problems("all"):
        for probe in task.probes(problem, count=6, seed=0):
            assert judged(problem, probe.trajectory).score01 == float(probe.is_right), probe
            mutants += probe.is_mutant
    assert mutants > 64


def test_more_probes_begin_with_the_fewer() -> None:
    """A larger count gives the same probes and more."""
    task = make_task()
    problem = next(iter(task.problems("train")))
    few, many = (list(task.probes(problem, count=n, seed=3)) for n in (2, 12))
    assert many[: len(few)] == few


def test_what_the_policy_claims_counts_nothing() -> None:
    """A text that holds the whole solution, observations too, is one turn and does one thing."""
    task = make_task()
    problem = next(p for p in task.problems("test") if len(task.reference(p).completions) > 2)
    whole = "\n".join(segment.text for segment in task.reference(problem).segments)
    assert judged(problem, Trajectory.from_text(problem.id, whole)).value == 0.0


def test_turns_past_the_limit_do_nothing() -> None:
    """With a limit of one turn less than the solver takes, its answer is wrong."""
    task = make_task()
    problem = next(iter(task.problems("test")))
    reference = task.reference(problem)
    needed = len(reference.completions)
    assert judged(problem, reference, steps=needed).value == 1.0
    assert judged(problem, reference, steps=needed - 1).value == 0.0


def test_a_data_set_is_refused() -> None:
    """The house reads no file, and says where trajectories go."""
    with pytest.raises(ConfigError, match="--plugin sad"):
        HouseTask(HouseConfig(), BuildContext(dataset="x.jsonl"))  # type: ignore[arg-type]


class Letters(CharTokenizer):
    """Three bytes a token, so that tokens straddle what they like; the last may be shorter."""

    has_bytes = True

    def __init__(self, texts: list[str]) -> None:
        self.pieces = [b""]
        self.ids: list[list[int]] = []
        for text in texts:
            data = text.encode()
            first = len(self.pieces)
            self.pieces += [data[i : i + 3] for i in range(0, len(data), 3)]
            self.ids.append(list(range(first, len(self.pieces))))

    def bytes_of(self, token: int) -> bytes:
        return self.pieces[token]


def spans_of(*texts: str) -> list[list[int]]:
    tokenizer = Letters(list(texts))
    segments = [Segment(author="prompt", tokens=[0, 0], text="")]
    for text, ids in zip(texts, tokenizer.ids, strict=True):
        segments.append(Segment(author="policy", tokens=ids, logprobs=[0.0] * len(ids), text=text))
        segments.append(Segment(author="env", tokens=[0], text=""))
    trajectory = Trajectory(problem_id="p", segments=segments)
    codes = span_codes(trajectory, tokenizer)
    assert codes is not None
    assert codes.shape == trajectory.tokens.shape
    assert not codes[~trajectory.mask].any()
    written, at = codes[trajectory.mask].astype(int).tolist(), 0
    found = []
    for ids in tokenizer.ids:
        found.append(written[at : at + len(ids)])
        at += len(ids)
    return found


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("abcd\nAction: x", [1, 1, 2, 2, 2]),  # "d\nA": one byte of three is action
        ("abc\nAction: x", [1, 2, 2, 2, 2]),  # "\nAc": two of three are
        ("ab\nAction: x", [1, 2, 2, 2]),
        ("Action: xyz", [2, 2, 2, 2]),
        ("no action at all", [1, 1, 1, 1, 1, 1]),
        ("ß\nAction: ß", [1, 2, 2, 2, 2]),  # bytes, not characters
    ],
)
def test_spans_by_hand(text: str, codes: list[int]) -> None:
    """A token belongs to the span that holds most of its bytes."""
    assert spans_of(text) == [codes]


def test_every_turn_has_its_own_spans() -> None:
    """Reasoning begins again with each turn."""
    assert spans_of("abc\nAction: x", "abcdef") == [[1, 2, 2, 2, 2], [1, 1]]


def test_without_bytes_there_are_no_spans() -> None:
    """A tokenizer that does not say its bytes gives no annotation, rather than a wrong one."""
    task = make_task()
    problem = next(iter(task.problems("train")))
    assert task.annotate(problem, task.reference(problem)) == {}


class Counting(CharTokenizer):
    """Counts words."""

    def encode(self, text: str) -> list[int]:
        return [0] * len(text.split())


async def lived(problem: Problem, texts: list[str], steps: int = 20) -> HouseEpisode:
    episode = HouseEpisode(problem, steps)
    episode.start(Counting())
    for text in texts:
        assert episode.prompt() is not None
        await episode.take(text)
    return episode


def test_notes_count_what_happened() -> None:
    """A solver's episode matches everywhere; an idle turn in front matches nothing."""
    task = make_task()
    problem = next(iter(task.problems("train")))
    texts = list(task.reference(problem).completions)
    thoughts = sum(len(text.partition("\nAction:")[0].split()) for text in texts)
    notes = (
        asyncio.run(lived(problem, ["Thought: x y\nAction: go[nowhere]", *texts])).result().notes
    )
    count = len(texts)
    assert notes == {
        "done": True,
        "turns": count + 1,
        "matched": count,
        "sensible": count,
        "impossible": 1,
        "thought_tokens": thoughts + 3,
    }


def test_an_episode_ends_after_its_steps() -> None:
    """Idle turns end with the limit, not with the goal."""
    problem = next(iter(make_task().problems("train")))
    episode = asyncio.run(lived(problem, ["", "", ""], steps=3))
    assert episode.prompt() is None
    assert not episode.result().notes["done"]


def test_the_observation_is_the_next_prompt() -> None:
    """What cannot be done is answered with one sentence."""
    problem = next(iter(make_task().problems("train")))
    episode = asyncio.run(lived(problem, ["Action: take[moon]"]))
    (message,) = episode.prompt() or ()
    assert message.content == "Observation: Nothing happens.\n"


def test_a_reference_shows_the_observations() -> None:
    """Between the solver's turns stands what the house says."""
    problem = next(iter(make_task().problems("train")))
    reference = make_task().reference(problem)
    assert {s.author for s in reference.segments} == {"policy", "env"}
    assert reference == trajectory_of(problem, reference.completions)
