"""What a part's method may give by mistake: an error that names part, method and value."""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import AsyncIterator, Callable, Generator
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr import (
    Completion,
    Datum,
    DistributionRequest,
    HiddenStates,
    Metric,
    PartError,
    Policy,
    Probe,
    Problem,
    SamplingParams,
    Segment,
    SingleTurn,
    Task,
    TeacherCapabilities,
    Trajectory,
    Unscorable,
)
from rlvr.border.abilities import adapted_by, figures_of, metrics_of, probes_of, proven
from rlvr.border.calls import Border
from rlvr.border.kinds import curriculum_of
from rlvr.border.promises import (
    drawer_of,
    logprobs_of,
    policy_of,
    problems_of,
    reason_of,
    reference_of,
    score_of,
    unsupported_by,
)
from rlvr.curriculum.discovered import Growth
from rlvr.rollouts.group import GroupSampler
from rlvr.rollouts.rollout import rollout, with_stop_texts
from rlvr.teachers.requests import answered, check_ask, check_problems
from rlvr.testing.fakes import (
    CentredAdvantage,
    CharTokenizer,
    ReinforceLoss,
    ScriptedPolicy,
    TinyBackend,
    TinyTeacher,
    ToyReward,
    ToyTask,
)
from rlvr.testing.fakes.data import random_data
from rlvr.training.stages import token_weights
from rlvr.verification.verdict import opinion_of

DATA = random_data(seed=1, count=2, needs=())
PROBLEM = next(iter(ToyTask().problems("train")))
PARAMS = SamplingParams(max_tokens=2)
PROBE = Probe(kind="empty", trajectory=Trajectory(problem_id=PROBLEM.id))
WRONG: dict[str, Any] = {
    "nothing": None, "truth": True, "number": 1.5, "text": "ab", "numbers": [1],
    "record": {"a": object()}, "object": object(), "class": int, "nested": [[None], [None]],
    "bytes": b"ab", "negative": -1, "huge": 10**400, "nan": float("nan"), "keys": {1: 2.0},
    "set": {1}, "generator": (n for n in "a"), "texts": [np.array(["1.0"] * 6)] * 2,
}  # fmt: skip
RIGHT = {
    ("with_stop_texts", "record"): True,
    ("reason_of", "text"): True,
    ("why_empty", "text"): True,
    ("curriculum_of", "nothing"): True,
    ("score_of", "nothing"): True,
    ("version", "truth"): True,
    ("digest", "text"): True,
    ("version", "negative"): True,
    ("version", "huge"): True,
    ("reference_of", "nothing"): True,
    ("proven", "nothing"): True,
    ("proven", "truth"): True,
    ("with_stop_texts", "generator"): True,
    ("render", "numbers"): True,
}


def giving(part: Any, method: str, value: Any) -> Any:
    """A part of its class whose method gives this; what is awaited in its kind is awaited."""
    if inspect.iscoroutinefunction(getattr(part, method)):

        async def wrong(self: Any, *given: Any, **options: Any) -> Any:
            return value
    else:

        def wrong(self: Any, *given: Any, **options: Any) -> Any:  # type: ignore[misc]
            return value

    part.__class__ = type("Mine", (type(part),), {method: wrong, "__module__": "rlvr_mine"})
    return part


class Strange(TinyBackend):
    """Its policy says of itself what it is told."""

    def __init__(self, **told: Any) -> None:
        super().__init__()
        self._told = told

    async def policy(self) -> Any:
        policy = await super().policy()
        vars(policy).update(self._told)
        return policy


class Told(TinyTeacher):
    """Is asked for states, or for whole data, if it says so."""

    head = SimpleNamespace(weights=np.zeros((53, 2)), bias=None)

    def __init__(self, **able: Any) -> None:
        super().__init__()
        self.capabilities = TeacherCapabilities(has_scores=True, **able)

    async def states(self, data: Any) -> Any: ...

    async def answer(self, data: Any, name: str, ask: Any) -> Any: ...


def ask(teacher: Any, k: int | None = None) -> Any:
    return answered(teacher, DATA, "told", None if k is None else DistributionRequest(k=k))


async def figures(task: Any) -> None:
    async for _ in figures_of(task, policy(), "train", 0):
        pass


def grown(task: Any) -> Any:
    return Growth(fixed=()).grow(task, policy(), seed=0, step=0)


def speaking(method: str, value: Any) -> ScriptedPolicy:
    """A policy whose tokenizer's method gives this."""
    found = policy()
    found.tokenizer = giving(CharTokenizer(), method, value)
    return found


def policy() -> ScriptedPolicy:
    return ScriptedPolicy(["a"])


CALLS: dict[str, Callable[[Any], Any]] = {
    "reason_of": lambda v: reason_of(
        giving(ToyTask(), "why_unanswerable", v), "why_unanswerable", PROBLEM
    ),
    "why_empty": lambda v: reason_of(giving(GroupSampler(), "why_empty", v), "why_empty"),
    "unsupported_by": lambda v: unsupported_by(giving(ToyTask(), "unsupported", v)),
    "curriculum_of": lambda v: curriculum_of(giving(ToyTask(), "curriculum", v)),
    "logprobs_of": lambda v: logprobs_of(giving(TinyBackend(), "logprobs", v), DATA, "policy"),
    "score_of": lambda v: score_of(giving(policy(), "score", v), DATA),
    "drawer_of": lambda v: drawer_of(giving(GroupSampler(), "drawn_by", v), policy()),
    "metrics_of": lambda v: metrics_of(giving(CentredAdvantage(), "metrics", v), DATA),
    "adapted_by": lambda v: adapted_by(giving(ReinforceLoss(), "adapted", v), {}, {}),
    "weighed": lambda v: token_weights(giving(ReinforceLoss(), "token_weights", v), DATA),
    "with_stop_texts": lambda v: with_stop_texts(
        PARAMS, giving(SingleTurn(PROBLEM.prompt), "stop_texts", v)
    ),
    "generate": lambda v: rollout(giving(policy(), "generate", v), ToyTask(), PROBLEM, PARAMS),
    "version": lambda v: policy_of(Strange(version=v)),
    "digest": lambda v: policy_of(Strange(digest=v)),
    "tokenizer": lambda v: policy_of(Strange(tokenizer=v)),
    "render": lambda v: rollout(speaking("render", v), ToyTask(), PROBLEM, PARAMS),
    "reference_of": lambda v: reference_of(giving(ToyTask(), "reference", v), PROBLEM),
    "proven": lambda v: proven(giving(ToyTask(), "prove", v), PROBLEM, PROBE),
    "probes_of": lambda v: probes_of(giving(ToyTask(), "probes", v), PROBLEM, count=1, seed=0),
    "figures": lambda v: figures(giving(ToyTask(), "measure", v)),
    "grown": lambda v: grown(giving(ToyTask(), "discover", v)),
    "teacher_metrics": lambda v: metrics_of(giving(TinyTeacher(), "metrics", v), DATA),
    "teacher_logprobs": lambda v: ask(giving(TinyTeacher(), "logprobs", v)),
    "teacher_score": lambda v: ask(giving(TinyTeacher(), "score", v), k=2),
    "teacher_states": lambda v: ask(giving(Told(has_states=True), "states", v), k=0),
    "teacher_answer": lambda v: ask(giving(Told(reads_data=True), "answer", v)),
    "teacher_asked": lambda v: ask(giving(Told(reads_data=True), "answer", v), k=2),
}
METHODS = {
    "reason_of": "why_unanswerable", "unsupported_by": "unsupported", "weighed": "token_weights",
    "curriculum_of": "curriculum", "logprobs_of": "logprobs", "score_of": "score",
    "drawer_of": "drawn_by", "metrics_of": "metrics", "adapted_by": "adapted",
    "with_stop_texts": "stop_texts", "reference_of": "reference", "proven": "prove",
    "probes_of": "probes", "figures": "measure", "grown": "discover", "render": "render",
    "teacher_metrics": "metrics", "teacher_logprobs": "logprobs", "teacher_score": "score",
    "teacher_states": "states", "teacher_answer": "answer", "teacher_asked": "answer",
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_return_names_its_part_and_method(call: str, wrong: str) -> None:
    """Nothing else than what is promised goes on into the run, whatever it could pass for."""
    value = (n for n in "a") if wrong == "generator" else WRONG[wrong]  # one is read once
    if RIGHT.get((call, wrong)):
        done(CALLS[call](value))
        return
    with pytest.raises(PartError, match=f"did not keep its promise: .*{METHODS.get(call, '')}"):
        done(CALLS[call](value))


def done(found: Any) -> None:
    """What is awaited is awaited."""
    if inspect.iscoroutine(found):
        asyncio.run(found)


async def alone(figure: Metric) -> Any:
    yield figure


def drawn(**changes: Any) -> Trajectory:
    """A trajectory that is one, but for these changes."""
    return attrs.evolve(Trajectory(problem_id=PROBLEM.id, segments=[segment()]), **changes)


def completion(**changes: Any) -> Completion:
    right = Completion(tokens=[1], logprobs=[-1.0], text="a", finish="stop")
    return attrs.evolve(right, **changes)


def said(**changes: Any) -> list[Datum]:
    """The data with a teacher's logprobs, but for these changes."""
    told = [attrs.evolve(d, annotations={"told": d.logprobs}) for d in DATA]
    return [attrs.evolve(datum, **changes) for datum in told]


def segment(**changes: Any) -> Segment:
    return attrs.evolve(Segment(author="policy", tokens=[1], logprobs=[-1.0], text="a"), **changes)


def wide() -> list[HiddenStates]:
    return [HiddenStates(states=np.zeros((int(d.mask.sum()), 3))) for d in DATA]


NEARLY: dict[str, tuple[str, Any]] = {
    "no trajectory inside": ("reference_of", drawn(segments=["a"])),
    "no text": ("reference_of", drawn(segments=[segment(text=3)])),
    "negative id": ("reference_of", drawn(segments=[segment(tokens=[-1])])),
    "two dimensions": ("reference_of", drawn(segments=[segment(tokens=[[1]], logprobs=[[0.0]])])),
    "nan": ("reference_of", drawn(segments=[segment(logprobs=[np.nan])])),
    "files": ("reference_of", drawn(files={"a.v": 1})),
    "finish": ("reference_of", drawn(finish="done")),
    "another problem": ("reference_of", drawn(problem_id="other")),
    "a number as key": ("grown", {"found": [{1: 2.0}]}),
    "nan in the memory": ("grown", {"best": float("nan")}),
    "nameless": ("figures", alone(Metric(name="", value=1, low=0, high=2, n=3))),
    "above 0": ("teacher_logprobs", [np.full(d.tokens.shape, 5.0) for d in DATA]),
    "words": ("teacher_logprobs", [np.full(d.tokens.shape, "1.0") for d in DATA]),
    "one too few": ("teacher_logprobs", [d.logprobs for d in DATA[1:]]),
    "other width": ("teacher_states", wide()),
    "other weights": ("teacher_answer", said(weights=np.full(DATA[0].tokens.shape, 9.0))),
    "no array": ("teacher_answer", said(annotations={"told": "abc"})),
    "logprobs of another": ("teacher_answer", said()[::-1]),
    "no distribution": ("teacher_asked", said(distributions={"told": "abc"})),
    "outside the vocabulary": ("render", [10**6]),
    "completion of no text": ("generate", completion(text=1)),
    "completion of one logprob": ("generate", completion(tokens=[1, 2])),
    "completion that ended otherwise": ("generate", completion(finish="eos")),
    "completion of nan": ("generate", completion(logprobs=[np.nan])),
    "completion of texts as versions": ("generate", completion(versions=["a"])),
}  # fmt: skip
"""By what is wrong: something that only looks right."""


@pytest.mark.parametrize("wrong", NEARLY)
def test_what_is_nearly_right_is_refused(wrong: str) -> None:
    """Also deep inside a value of the right class."""
    call, value = NEARLY[wrong]
    with pytest.raises(PartError, match=f"did not keep its promise: {METHODS.get(call, '')}"):
        done(CALLS[call](value))


def test_a_policy_that_says_no_version_is_named() -> None:
    """Not a bug of ours, though nothing asks for the version before the rollouts do."""

    class Bare(Policy):
        digest, context_length, tokenizer = "d", 8, CharTokenizer()

        async def generate(self, request: Any) -> Any:
            raise NotImplementedError

    with pytest.raises(PartError, match=r"policy .*Bare did not keep[^/]*'version'"):
        asyncio.run(policy_of(giving(TinyBackend(), "policy", Bare())))


def test_the_policy_is_blamed_for_its_completion() -> None:
    """Not the sampler that asked it."""
    mute = giving(policy(), "generate", "text")
    with pytest.raises(PartError, match=r"^policy rlvr_mine.Mine .*generate for problem "):
        asyncio.run(rollout(mute, ToyTask(), PROBLEM, PARAMS))


class Plain(Task):
    """Its problems are put as they are."""

    def problems(self, split: str) -> Any:
        return [Problem(id="mute", prompt=[])]


def test_an_empty_prompt_is_the_tasks_unless_an_episode_asks() -> None:
    """A run says so before it samples, where the task has no episode of its own."""
    with pytest.raises(PartError, match=r"Plain .* problems[\s\S]*'mute' with an empty prompt"):
        problems_of(Plain(), "train")

    class Asking(Plain):
        def episode(self, problem: Problem) -> Any:
            return SingleTurn(PROBLEM.prompt)

    class Recorded(Plain):
        is_offline = True

    for task in (Asking(), Recorded()):
        assert [problem.id for problem in problems_of(task, "train")] == ["mute"]


def rolled(policy: Policy, episode: Any) -> str:
    """The error of a rollout."""
    task = giving(ToyTask(), "episode", episode)
    return asyncio.run(rollout(policy, task, PROBLEM, PARAMS)).error


class Ids(SingleTurn):
    writes_tokens = True

    async def next_tokens(self) -> Any:
        return [1]

    async def take_tokens(self, completion: Completion) -> None: ...


TURNS = {**WRONG, "empty": [], "outside": [10**6], "below": [-1], "truths": [True]}


@pytest.mark.parametrize("name", sorted(TURNS.keys() - {"nothing"}))
def test_an_episode_is_named_by_the_rollout_that_it_breaks(name: str) -> None:
    """That one rollout fails, in words; others go on."""
    wrong = TURNS[name]
    told = {"prompt": SingleTurn(()), "next_tokens": Ids(()), "result": SingleTurn(PROBLEM.prompt)}
    for method, episode in told.items():
        if method == "next_tokens" and wrong == [1]:
            continue
        why = rolled(policy(), giving(episode, method, wrong))
        assert f"episode rlvr_mine.Mine: {method} promised " in why


def test_a_tokenizer_that_raises_is_named_by_the_rollout() -> None:
    """It may lack the characters of this prompt alone."""
    mute = speaking("render", None)
    type(mute.tokenizer).render = lambda *_, **__: 1 / 0  # type: ignore[method-assign, assignment]
    why = rolled(mute, SingleTurn(PROBLEM.prompt))
    assert "tokenizer rlvr_mine.Mine: render promised ids" in why
    assert "ZeroDivisionError" in why


def test_a_teachers_head_and_problems_are_its_own() -> None:
    """Before anything is sampled, and not the loss is named that meets it."""
    for head in (None, SimpleNamespace(weights=np.zeros(3), bias=None), 3):
        teacher: Any = Told(has_states=True)
        teacher.head = head
        with pytest.raises(PartError, match=r"^teacher .*Told did not keep its promise: head"):
            check_ask(teacher, DistributionRequest(k=0))
    lost = giving(TinyTeacher(), "check_problems", None)
    type(lost).check_problems = lambda *_: 1 / 0
    with pytest.raises(PartError, match=r"^teacher rlvr_mine.Mine .*: check_problems"):
        check_problems(lost, [PROBLEM])


@pytest.mark.parametrize("name", [*WRONG, "no verdict"])
def test_a_second_opinion_that_is_none_names_its_reward(name: str) -> None:
    """It counts as a failure to run."""
    wrong = WRONG.get(name, Unscorable(reason="x"))
    judge = giving(ToyReward(), "second_opinion", wrong)
    found = asyncio.run(opinion_of(judge, PROBLEM, PROBE.trajectory, deadline_s=5))
    wanted = "none" if wrong is None else "failed"
    assert found["opinion"] == wanted
    assert wrong is None or "reward rlvr_mine.Mine: second_opinion promised" in found["why"]


def test_a_reference_to_another_problem_is_none() -> None:
    """It says of which problem it is."""
    task = giving(ToyTask(), "reference", Trajectory(problem_id="else"))
    with pytest.raises(PartError, match=r"a trajectory of 'else' .*for problem"):
        reference_of(task, PROBLEM)


@types.coroutine
def waits() -> Generator[None]:
    yield


async def leaves() -> None:
    raise GeneratorExit


async def asked(of: Callable[[], Any]) -> None:
    with Border(ToyTask(), "task", "measure", promised="figures"):
        await of()


def test_a_coroutine_that_is_closed_is_no_fault_of_the_part() -> None:
    """`GeneratorExit` is that of the part only where the part raised it."""
    call = asked(waits)
    call.send(None)
    call.close()

    with pytest.raises(PartError, match="came: it raised GeneratorExit"):
        asyncio.run(asked(leaves))


def test_figures_that_nobody_wants_any_more_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generator is closed where it waits to give the next one."""
    task, is_closed = ToyTask(), False

    async def measure(*_: Any, **__: Any) -> AsyncIterator[Metric]:
        nonlocal is_closed
        try:
            yield Metric(name="one", value=1.0, low=0.0, high=1.0, n=1)
            yield Metric(name="two", value=2.0, low=0.0, high=2.0, n=1)
        finally:
            is_closed = True

    async def one() -> None:
        figures = figures_of(task, ScriptedPolicy(["a"]), "test", 1)
        await anext(figures)
        await figures.aclose()

    monkeypatch.setattr(task, "measure", measure)
    asyncio.run(one())

    assert is_closed
