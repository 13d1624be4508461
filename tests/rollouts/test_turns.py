"""Episodes of several turns: who wrote what, what is trained on, what an episode leaves behind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlvr import (
    BuildContext,
    Completion,
    ConfigError,
    Datum,
    Episode,
    EpisodeResult,
    GenerateRequest,
    Group,
    Message,
    PrerequisiteError,
    Problem,
    Reward,
    SamplingParams,
    ScoredGroup,
    Segment,
    Tokenizer,
    Trajectory,
    check_data,
)
from rlvr.records.run_directory import RunDir
from rlvr.records.trajectories import trajectory_from_json
from rlvr.rollouts.group import GroupSampler, sample_groups
from rlvr.rollouts.references import ReferenceSampler
from rlvr.testing.fakes import ScriptedPolicy, ToyTask
from rlvr.testing.fakes.toy import ToyEpisode
from rlvr.training.minibatches import weigh
from rlvr.training.stages import collate

PARAMS = SamplingParams(max_tokens=64, group_size=3)


class Told(Episode):
    """An episode of `turns` turns; `on_take(text)` is awaited with each completion."""

    def __init__(
        self, problem: Problem, on_take: Callable[[str], Awaitable[None]], turns: int = 1
    ) -> None:
        self._problem, self._on_take, self._left = problem, on_take, turns
        self._is_first, self.tokenizer, self.texts = True, None, []

    def prompt(self) -> Sequence[Message] | None:
        if not self._left:
            return None
        if self._is_first:
            return self._problem.prompt
        return (Message(role="user", content=f"environment: line {len(self.texts)}"),)

    async def take(self, completion: str) -> None:
        self._left, self._is_first = self._left - 1, False
        self.texts.append(completion)
        await self._on_take(completion)

    def result(self) -> EpisodeResult:
        notes = {"turns": [{"length": len(text)} for text in self.texts]}
        return EpisodeResult(files={"a.txt": self.texts[-1]}, notes=notes)

    def start(self, tokenizer: Tokenizer) -> None:
        assert self._is_first
        self.tokenizer = tokenizer


class Tasked(ToyTask):
    """The toy task with other episodes, which it keeps in `episodes`."""

    def __init__(self, make: Callable[[Problem], Any]) -> None:
        super().__init__()
        self._make, self.episodes = make, []

    def episode(self, problem: Problem) -> Any:
        self.episodes.append(self._make(problem))
        return self.episodes[-1]


def sample(task: ToyTask, policy: ScriptedPolicy | None = None) -> list[Group]:
    problems = list(task.problems("train"))[:2]
    policy = policy or ScriptedPolicy(["hello", "bye", "good day"])
    return asyncio.run(sample_groups(GroupSampler(), policy, task, problems, PARAMS))


def three_turns() -> list[Datum]:
    """The data of sampled three-turn trajectories, as an update of the backend gets them."""
    groups = sample(ToyTask(turns=3))
    scored = [
        ScoredGroup(
            problem=group.problem,
            trajectories=group.trajectories,
            outcomes=[Reward(value=float(k), score01=0.0) for k in range(PARAMS.group_size)],
        )
        for group in groups
    ]
    data = weigh(collate(scored, [[-1.0, 0.5, 2.0] for _ in scored], ToyTask()), "token", 64)
    check_data(data)
    return data


def test_tokens_of_the_environment_are_never_trained_on() -> None:
    """
    From sampled turns to the data of an update: mask, weight, advantage and logprob.

    All four vanish on prompt and environment, and are there on every token that was drawn.
    """
    policy = ScriptedPolicy(["hello", "bye", "good day"])
    again = policy.tokenizer.encode("again")
    for datum in three_turns():
        mask = datum.mask.tolist()
        assert not mask[0]
        own = [place for place, is_own in enumerate(mask) if is_own]
        runs = np.split(own, np.flatnonzero(np.diff(own) != 1) + 1)
        assert len(runs) == 3  # three turns, and something of others between them
        for run in runs:
            text = policy.tokenizer.decode(datum.tokens[run].tolist())
            assert datum.tokens[run].tolist() == policy.drawn(text)
        for before, after in itertools.pairwise(runs):
            assert datum.tokens[before[-1] + 1 : after[0]].tolist() == again
        for values in (datum.weights, datum.advantages, datum.logprobs):
            assert not values[~datum.mask].any()
            assert values[datum.mask].all()


def test_no_loss_has_a_gradient_on_the_environment() -> None:
    """Whatever probability the trainer gives a tool's words, the loss of grpo does not move."""
    torch = pytest.importorskip("torch", reason="losses speak torch; pip install torch")
    grpo = pytest.importorskip("rlvr_algos.losses.grpo", reason="pip install rlvr-algos")
    data = three_turns()
    rng = np.random.default_rng(1)
    logprobs = [
        torch.tensor(rng.uniform(-3, -0.1, len(d.tokens)), requires_grad=True) for d in data
    ]
    loss, _ = grpo.GrpoLoss(None, BuildContext())(data, logprobs, {})
    loss.backward()
    for datum, leaf in zip(data, logprobs, strict=True):
        assert not leaf.grad.numpy()[~datum.mask].any()
    assert any(leaf.grad.numpy().any() for leaf in logprobs)


def test_an_episode_leaves_files_and_notes(tmp_path: Path) -> None:
    """What an episode leaves is in its trajectory, and comes back from the run's directory."""

    async def nothing(_text: str) -> None:
        return None

    task = Tasked(lambda problem: Told(problem, nothing, turns=2))
    groups = sample(task)
    episode = task.episodes[0]
    assert episode.tokenizer is not None
    first = groups[0].trajectories[0]
    assert first.files == {"a.txt": first.completion}
    assert first.notes == {"turns": [{"length": len(text)} for text in first.completions]}

    directory = RunDir.create(tmp_path / "run")
    reward = Reward(value=0.0, score01=0.0)
    scored = [
        ScoredGroup(problem=g.problem, trajectories=g.trajectories, outcomes=[reward] * 3)
        for g in groups
    ]
    directory.write_trajectories("step", 1, scored)
    lines = directory.read_lines("trajectories/step-000001.jsonl")
    assert [trajectory_from_json(line) for line in lines] == [
        trajectory for group in groups for trajectory in group.trajectories
    ]
    plain = sample(ToyTask())[0].trajectories[0]
    assert plain.files is None
    assert not plain.notes


def test_no_rollout_waits_for_another_ones_tool() -> None:
    """All episodes may work at once, whatever their turn; each gets its own completions."""
    running, most = 0, 0

    async def slow(_text: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    task = Tasked(lambda problem: Told(problem, slow, turns=2))
    policy = ScriptedPolicy(lambda _prompt, seed: str(seed))
    groups = sample(task, policy)
    assert most == 6
    trajectories = [t for group in groups for t in group.trajectories]
    for trajectory, episode in zip(trajectories, task.episodes, strict=True):
        assert tuple(episode.texts) == trajectory.completions


def test_trajectories_come_as_they_end_and_stand_at_their_places() -> None:
    """A slow first rollout holds back nobody; the group is in the order of the indices."""
    made = itertools.count()
    gate = asyncio.Event()

    def make(problem: Problem) -> Told:
        number = next(made)

        async def take(_text: str) -> None:
            if number == 0:
                await gate.wait()

        return Told(problem, take)

    async def main() -> list[int]:
        task = Tasked(make)
        (problem, *_) = task.problems("train")
        ended = []
        stream = GroupSampler().sample(ScriptedPolicy(["a"]), task, problem, PARAMS)
        async with aclosing(stream) as found:
            async for trajectory in found:
                ended.append(trajectory.index)
                if len(ended) == 2:
                    gate.set()
        return ended

    assert asyncio.run(main()) == [1, 2, 0]
    gate = asyncio.Event()
    gate.set()
    made = itertools.count()
    for group in sample(Tasked(make)):
        assert [t.index for t in group.trajectories] == [0, 1, 2]


def test_what_nobody_asks_for_any_more_is_ended() -> None:
    """A sampler that is left in the middle leaves no rollout behind."""
    open_now = 0

    async def slow(text: str) -> None:
        nonlocal open_now
        open_now += 1
        try:
            await asyncio.sleep(60 if open_now > 1 else 0)
        finally:
            await asyncio.sleep(0.01)
            open_now -= 1

    async def main() -> None:
        task = Tasked(lambda problem: Told(problem, slow))
        (problem, *_) = task.problems("train")
        stream = GroupSampler().sample(ScriptedPolicy(["a"]), task, problem, PARAMS)
        async with aclosing(stream) as found:
            await anext(found)
        assert open_now == 0

    asyncio.run(main())


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit, GeneratorExit, BaseException])
def test_a_failing_episode_sinks_only_itself(kind: type[BaseException]) -> None:
    """An episode that raises while others work ends with its error; the others are whole."""
    made = 0

    async def fail(_text: str) -> None:
        raise kind("the tool caught fire")

    async def slow(_text: str) -> None:
        await asyncio.sleep(0.01)

    def make(problem: Problem) -> Told:
        nonlocal made
        made += 1
        return Told(problem, fail if made == 2 else slow, turns=2)

    trajectories = [t for group in sample(Tasked(make)) for t in group.trajectories]
    assert [t.finish for t in trajectories] == ["stop", "error", *["stop"] * 4]
    file, line = Path(__file__).name, fail.__code__.co_firstlineno + 1
    said = f"{Told.__qualname__}: take raised {kind.__name__}: the tool caught fire ("
    assert said in trajectories[1].error
    assert trajectories[1].error.endswith(f"{file}:{line})")
    assert [len(t.completions) for t in trajectories] == [2, 1, 2, 2, 2, 2]


def test_a_missing_tool_stops_the_run() -> None:
    """What the machine lacks is no failure of one rollout: the person is told."""

    async def lacking(_text: str) -> None:
        raise PrerequisiteError("verifying needs iverilog")

    with pytest.raises(PrerequisiteError, match="needs iverilog"):
        sample(Tasked(lambda problem: Told(problem, lacking)))


def test_interrupted_episodes_end_before_the_interruption_goes_on() -> None:
    """Ctrl-C in the middle of a turn: every episode has cleaned up when `sample` is left."""
    open_slots = 0
    all_open = asyncio.Event()

    async def slow(_text: str) -> None:
        nonlocal open_slots
        open_slots += 1
        if open_slots == 6:
            all_open.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)  # taking a sandbox down takes a moment
            open_slots -= 1

    async def interrupted() -> None:
        task = Tasked(lambda problem: Told(problem, slow))
        problems = list(task.problems("train"))[:2]
        policy = ScriptedPolicy(["hello"])
        sampling = asyncio.create_task(
            sample_groups(GroupSampler(), policy, task, problems, PARAMS)
        )
        await all_open.wait()
        sampling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sampling
        assert open_slots == 0

    asyncio.run(interrupted())


class Losing(ScriptedPolicy):
    """Loses the first completion of the second rollout: each of them has two turns."""

    async def generate(self, request: GenerateRequest) -> Completion:
        found = await super().generate(request)
        if len(self.requests) != 3:
            return found
        why = "the text could be several ids"
        return Completion(tokens=[], logprobs=[], text="", finish="error", error=why)


def test_a_completion_that_is_none_ends_its_own_rollout() -> None:
    """Finish "error" with the policy's words; its episode takes nothing, the others go on."""
    groups = sample(ToyTask(turns=2), Losing(["hello", "bye", "good day"]))

    trajectories = [one for group in groups for one in group.trajectories]
    lost = trajectories.pop(1)
    assert (lost.finish, lost.error) == ("error", "the text could be several ids")
    assert not lost.mask.any()
    for one in trajectories:
        assert one.finish != "error"
        assert [s.author for s in one.segments] == ["prompt", "policy", "env", "policy"]


class Referred(ToyTask):
    """Three turns, each with an answer that is known."""

    def reference(self, problem: Problem) -> Trajectory:
        segments = [
            Segment(author="policy", tokens=[], logprobs=[], text=t) for t in ("a", "b", "c")
        ]
        return Trajectory(problem_id=problem.id, segments=segments)


def test_a_reference_of_several_turns_is_what_its_rollout_would_be() -> None:
    """Each answer follows the prompt that the episode gives there; only the answers are learnt."""
    task, policy = Referred(turns=3), ScriptedPolicy(["a", "b", "c"])
    (problem,) = list(task.problems("train"))[:1]
    alone = SamplingParams(max_tokens=64, group_size=1)
    (drawn,) = asyncio.run(sample_groups(GroupSampler(), policy, task, [problem], alone))
    sampler = ReferenceSampler(None, BuildContext())
    (told,) = asyncio.run(sample_groups(sampler, policy, task, [problem], alone))

    (one,), (other,) = told.trajectories, drawn.trajectories
    assert [s.author for s in one.segments] == [s.author for s in other.segments]
    asked = [[s.tokens.tolist() for s in t.segments if s.author != "policy"] for t in (one, other)]
    assert asked[0] == asked[1]
    assert one.completions == ("a", "b", "c")
    assert not one.logprobs.any()


def test_a_reference_that_ends_before_its_episode_is_learnt_as_far_as_it_goes() -> None:
    """Nothing is made up for the turns that it does not answer."""
    task, policy = Referred(turns=5), ScriptedPolicy(["x"])
    (problem,) = list(task.problems("train"))[:1]
    sampler = ReferenceSampler(None, BuildContext())
    (told,) = asyncio.run(
        sample_groups(sampler, policy, task, [problem], SamplingParams(max_tokens=64))
    )
    assert told.trajectories[0].completions == ("a", "b", "c")


@pytest.mark.parametrize(("turns", "tokens"), [(1, 9), (3, 5)])
def test_references_that_are_not_learnt_are_counted_by_the_reason(turns: int, tokens: int) -> None:
    """No text, or too long for the context: the error names the numbers, and then the way out."""

    class Task(Referred):
        def reference(self, problem: Problem) -> Trajectory:
            if problem.id == nothing.id:
                return Trajectory(problem_id=problem.id, files={"a": "b"})
            if turns > 1:
                return super().reference(problem)
            return Trajectory.from_text(problem.id, "abcdefg")

    task, policy = Task(turns=turns), ScriptedPolicy(["x"])
    policy.context_length = 4
    nothing, *long = list(task.problems("train"))[:3]
    sampler = ReferenceSampler(None, BuildContext())
    with pytest.raises(ConfigError, match=r"none as text, for 1 problems\n.*a data set with"):
        asyncio.run(sample_groups(sampler, policy, task, [nothing], PARAMS))
    told = rf"2 do not fit .* of 4 tokens \(the shortest needs {tokens} or.*1 pr.*\n.*longer con"
    with pytest.raises(ConfigError, match=told):
        asyncio.run(sample_groups(sampler, policy, task, long, PARAMS))


class Noting(ToyEpisode):
    """Three turns; leaves a file and a note behind, and ends the policy's turns at "!"."""

    def result(self) -> EpisodeResult:
        return EpisodeResult(files={"a.txt": "a"}, notes={"turns": self._taken})

    def stop_texts(self) -> Sequence[str]:
        return ("!",)


def test_a_reference_leaves_what_its_rollout_leaves() -> None:
    """Files and notes of the episode, also where the reference ends before it does."""

    class Task(Referred):
        def episode(self, problem: Problem) -> Noting:
            return Noting(problem)

    task, policy = Task(turns=5), ScriptedPolicy(["x! y"])
    problems = list(task.problems("train"))[:1]
    sampler = ReferenceSampler(None, BuildContext())
    (told,) = asyncio.run(sample_groups(sampler, policy, task, problems, PARAMS))
    assert told.trajectories[0].notes == {"turns": 3}
    assert told.trajectories[0].files == {"a.txt": "a"}

    (drawn,) = asyncio.run(sample_groups(GroupSampler(), policy, task, problems, PARAMS))
    assert {request.params.stop for request in policy.requests} == {("!",)}
    assert drawn.trajectories[0].completions == ("x",) * 5


def test_a_result_of_another_type_fails_one_rollout() -> None:
    """The message says which method gave what."""

    class Untidy(ToyEpisode):
        def result(self) -> Any:
            return {"files": {}}

    tidy = itertools.cycle([False, True, True])
    task = Tasked(lambda problem: (ToyEpisode if next(tidy) else Untidy)(problem))
    first, *others = sample(task)[0].trajectories
    assert first.finish == "error"
    assert "Untidy: result promised an EpisodeResult; came: {'files': {}} (dict)" in first.error
    assert {trajectory.finish for trajectory in others} == {"stop"}


def test_a_plain_method_in_place_of_a_coroutine_is_named() -> None:
    """Python's own words name neither the episode nor its method."""

    class Hasty(Episode):
        def __init__(self, problem: Problem) -> None: ...

        def prompt(self) -> Sequence[Message]:
            return [Message(role="user", content="go")]

        def take(self, completion: str) -> None: ...  # type: ignore[override]  # the fault

    class Exact(Hasty):
        writes_tokens = True

        async def next_tokens(self) -> list[int]:
            return [1, 2]

        def take_tokens(self, completion: Completion) -> None: ...  # type: ignore[override]

    for make, method in ((Hasty, "take"), (Exact, "take_tokens")):
        one = sample(Tasked(make))[0].trajectories[0]
        assert f"{method} promised a coroutine; came: None" in one.error
