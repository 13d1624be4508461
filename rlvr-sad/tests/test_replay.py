"""The task `sad` and the sampler `replay`, without a model."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
from byte_tokenizer import ByteTokenizer
from replay_fixture import Policy, chat

from rlvr import (
    BackendError,
    BuildContext,
    ConfigError,
    Group,
    Message,
    RewardFn,
    SamplingParams,
    Task,
    TaskError,
    Trajectory,
    UnknownNameError,
    sample_groups,
)
from rlvr.testing import TaskContract
from rlvr_sad.config import SadConfig
from rlvr_sad.replay.sampler import ReplayConfig, ReplaySampler
from rlvr_sad.task import RecordedReward, SadTask


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))


def task_of(path: Path, **options: Any) -> SadTask:
    """The task of a file."""
    return SadTask(SadConfig(**options), BuildContext(dataset=path))


def replayed(task: SadTask, policy: Policy | None = None, **options: Any) -> list[Group]:
    """All groups of the task."""
    sampler = ReplaySampler(ReplayConfig(**options), BuildContext())
    problems = list(task.problems("all"))
    return asyncio.run(sample_groups(sampler, policy or Policy(), task, problems, SamplingParams()))


class TestSadTask(TaskContract):
    bottom = 1.0  # the reward says the same of everything, and never that it is right

    @pytest.fixture(autouse=True)
    def _files(self, write: Any) -> None:
        lines = [json.dumps(chat(n)) for n in range(12)]
        self.path = write("a.jsonl", "\n".join([*lines, "{broken"]))

    def make_task(self) -> Task:
        return task_of(self.path, held_out=0.3)

    def make_reward(self) -> RewardFn:
        return RecordedReward(None, BuildContext())


def test_every_token_has_its_kind(write: Any) -> None:
    """1 at reasoning, 2 at actions and at what ends a turn, 0 at what others wrote."""
    task = task_of(write("a.jsonl", json.dumps(chat(1))))
    (group,) = replayed(task)
    (one,) = group.trajectories
    kinds = task.annotate(group.problem, one)["span"]

    assert kinds.shape == one.tokens.shape
    said = {k: bytes(one.tokens[kinds == k].tolist()).decode() for k in (0, 1, 2)}
    assert said == {
        0: "question 1?got 0",
        1: "why 0\n",
        2: '{"name": "f", "arguments": {"n": 1}}\0done\0',
    }
    assert (one.mask == (kinds > 0)).all()
    assert not one.logprobs.any()
    assert [s.author for s in one.segments] == ["prompt", "policy", "policy", "env", "policy"]


def test_a_sampled_answer_has_no_kinds(write: Any) -> None:
    """What the policy itself wrote is not looked into."""
    task = task_of(write("a.jsonl", json.dumps(chat(1))))
    (problem,) = task.problems("all")

    assert task.annotate(problem, Trajectory.from_text(problem.id, "hm")) == {}


def test_a_long_trajectory_comes_in_windows(write: Any) -> None:
    """All of what is learnt, each token once, in sequences that fit; said of each in its notes."""
    task = task_of(write("a.jsonl", json.dumps(chat(1, length=12))))
    ((whole,),) = [g.trajectories for g in replayed(task)]
    ((*parts,),) = [g.trajectories for g in replayed(task, Policy(200))]

    assert len(parts) > 2
    assert all(len(t.tokens) <= 200 for t in parts)
    assert sum(int(t.mask.sum()) for t in parts) == int(whole.mask.sum())
    for part in parts:
        start, end, length = part.notes["window"]
        assert length == len(whole.tokens)
        assert (part.tokens == whole.tokens[start:end]).all()
        assert (part.mask <= whole.mask[start:end]).all()
        assert not part.mask[0]
        assert part.finish == "length"
    joined = np.zeros(len(whole.tokens), int)
    for part in parts:
        joined[slice(*part.notes["window"][:2])] += part.mask
    assert (joined == whole.mask).all()


def test_what_is_cut_is_counted(write: Any) -> None:
    """The best window of a long one, and one too long for anything: numbers are said once."""
    lines = [chat(1, length=12), chat(2), chat(3, length=9)]
    task = task_of(write("a.jsonl", "\n".join(map(json.dumps, lines))))
    sampler = ReplaySampler(ReplayConfig(long="cut", max_tokens=120), BuildContext())
    problems = list(task.problems("all"))

    async def twice() -> list[Group]:
        async with sampler:
            await sample_groups(sampler, Policy(), task, problems, SamplingParams())
            return await sample_groups(sampler, Policy(), task, problems, SamplingParams())

    with structlog.testing.capture_logs() as logs:
        groups = asyncio.run(twice())

    assert [len(g.trajectories) for g in groups] == [1, 1, 1]
    first, said = [entry for entry in logs if entry["event"] == "long_trajectories"]
    assert first["cut"] == 1
    lost = sum(int(t.mask.sum()) for g in replayed(task) for t in g.trajectories) - sum(
        int(t.mask.sum()) for g in groups for t in g.trajectories
    )
    assert said["tokens_lost"] == lost


def test_what_is_dropped_is_counted(write: Any) -> None:
    """`replay.long=drop`: an empty group, and the count."""
    lines = [chat(1, length=12), chat(2)]
    task = task_of(write("a.jsonl", "\n".join(map(json.dumps, lines))))
    with structlog.testing.capture_logs() as logs:
        groups = replayed(task, max_tokens=120, long="drop")

    assert [len(g.trajectories) for g in groups] == [0, 1]
    assert [entry["dropped"] for entry in logs if entry["event"] == "long_trajectories"] == [1]


def test_nothing_that_fits_is_an_error(write: Any) -> None:
    """A run that would learn nothing stops, and says what to set."""
    task = task_of(write("a.jsonl", json.dumps(chat(1, length=12))))

    with pytest.raises(ConfigError, match=r"replay\.long=window"):
        replayed(task, max_tokens=50, long="drop")


def test_windows_need_room(write: Any) -> None:
    """An overlap as long as the window leaves nothing to learn."""
    task = task_of(write("a.jsonl", json.dumps(chat(1))))

    with pytest.raises(ConfigError, match=r"replay\.overlap"):
        replayed(task, max_tokens=20, overlap=20)


def test_a_template_that_refuses_one_conversation(write: Any) -> None:
    """That one is left out, with the template's own words; the others are replayed."""

    class Strict(ByteTokenizer):
        def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
            if any(m.role == "system" for m in messages):
                raise BackendError("no system role")
            return super().render(messages, first=first)

    bad = {"messages": [{"role": "system", "content": "s"}, *chat(2)["messages"]]}
    task = task_of(write("a.jsonl", json.dumps(chat(1)) + "\n" + json.dumps(bad)))
    groups = replayed(task, Policy(tokenizer=Strict()))

    assert [len(g.trajectories) for g in groups] == [1, 0]
    with pytest.raises(ConfigError, match="no system role"):
        replayed(task_of(write("b.jsonl", json.dumps(bad))), Policy(tokenizer=Strict()))


def test_a_step_of_which_nothing_is_left_is_no_error(write: Any) -> None:
    """The one long trajectory of a step is dropped; the run goes on with the others."""
    lines = [chat(1, length=12), chat(2)]
    task = task_of(write("a.jsonl", "\n".join(map(json.dumps, lines))))
    sampler = ReplaySampler(ReplayConfig(long="drop", max_tokens=120), BuildContext())
    steps = [
        asyncio.run(sample_groups(sampler, Policy(), task, [problem], SamplingParams()))
        for problem in task.problems("all")
    ]

    assert [len(groups[0].trajectories) for groups in steps] == [0, 1]


def test_windows_come_in_order_and_no_more_than_are_asked_for(write: Any) -> None:
    """Each has its place in the group; who stops asking leaves nothing behind."""
    task = task_of(write("a.jsonl", json.dumps(chat(1, length=12))))
    (problem,) = task.problems("all")
    sampler: Any = ReplaySampler(None, BuildContext())

    async def work() -> list[Trajectory]:
        async with aclosing(sampler.sample(Policy(200), task, problem, SamplingParams())) as some:
            found = [await anext(some), await anext(some)]
        assert len(asyncio.all_tasks()) == 1
        return found

    first, second = asyncio.run(work())
    ((*all_of_them,),) = [g.trajectories for g in replayed(task, Policy(200))]

    assert (first.index, second.index) == (0, 1)
    assert all_of_them[:2] == [first, second]
    assert [one.index for one in all_of_them] == list(range(len(all_of_them)))


def test_a_few_empty_ones_are_no_reason_to_end(write: Any) -> None:
    """Many of which none can be replayed are; the sampler then says why."""
    lines = [chat(n, length=12) for n in range(70)]
    task = task_of(write("a.jsonl", "\n".join(map(json.dumps, lines))))
    sampler = ReplaySampler(ReplayConfig(long="drop", max_tokens=120), BuildContext())
    problems = list(task.problems("all"))
    asyncio.run(sample_groups(sampler, Policy(), task, problems[:63], SamplingParams()))

    assert sampler.why_empty() == ""
    with pytest.raises(ConfigError, match=r"64 recorded[\s\S]*nothing to learn in 120 tokens"):
        asyncio.run(sample_groups(sampler, Policy(), task, problems[63:64], SamplingParams()))


def test_a_trajectory_is_tokenised_once(write: Any) -> None:
    """The second time, and in the next run, tokens come from the cache, and are the same."""
    path = write("a.jsonl", "\n".join(json.dumps(chat(n)) for n in range(3)))
    task = task_of(path)
    first = replayed(task)
    before = ByteTokenizer.calls
    replayed(task)
    same_process = ByteTokenizer.calls - before
    again = replayed(task_of(path))

    assert same_process < 10  # what tells the tokenizer apart, and no trajectory
    for one, two in zip(first, again, strict=True):
        assert one.trajectories == two.trajectories


@pytest.mark.parametrize("is_named", [False, True])
def test_an_emptied_cache_is_filled_again(write: Any, is_named: bool) -> None:
    """
    Texts are read from their file anew; where the file changed, the run says so.

    As the format that was asked for (`sad.format`), which the problem itself knows.
    """
    path = write("a.jsonl", json.dumps(chat(1)))
    task = task_of(path)
    if is_named:
        task = task_of(path, format="chat")
    (problem,) = task.problems("all")
    wanted = task.trajectory(problem)
    task.cache._store.execute("delete from results")
    assert task.trajectory(problem) == wanted
    task.cache._store.execute("delete from results")
    task.cache._store.commit()  # the sampler reads the same file
    sampler = ReplaySampler(ReplayConfig(), BuildContext())
    groups = sample_groups(sampler, Policy(), task, [problem], SamplingParams())
    assert [len(group.trajectories) for group in asyncio.run(groups)] == [1]

    task.cache._store.execute("delete from results")
    path.write_text(json.dumps(chat(2)))
    with pytest.raises(TaskError, match="was changed since the run began"):
        task.trajectory(problem)


def test_an_episode_begins_where_the_model_began(write: Any) -> None:
    """The messages before its first turn, whole, for runs that sample (--algo opd)."""
    question = "x" * 400
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": question},
        {"role": "assistant", "content": "a"},
    ]
    task = task_of(write("a.jsonl", json.dumps({"messages": messages})))
    (problem,) = task.problems("all")
    prompt = task.episode(problem).prompt()

    assert prompt is not None
    assert [(m.role, m.content) for m in prompt] == [("system", "S"), ("user", question)]
    assert len(problem.prompt[0].content) < 200


def test_an_episode_of_a_transcript_begins_where_the_model_began(write: Any) -> None:
    """All that stands before its first word, not the beginning of it that lists show."""
    task = task_of(write("a.txt", f"Question: {'long ' * 80}end?\nThought: t\nAction: Finish[a]\n"))
    (problem,) = task.problems("all")
    (message,) = task.episode(problem).prompt() or ()

    assert message.content == f"Question: {'long ' * 80}end?"


def test_a_trajectory_knows_its_first_messages(write: Any) -> None:
    """Whole, as they are rendered before the model's first turn: for teachers' own templates."""
    said = {"role": "assistant", "content": "a"}
    messages = [{"role": "user", "content": c * 200} for c in "xy"]
    task = task_of(write("a.jsonl", json.dumps({"messages": [*messages, said]})))
    for _ in range(2):  # made, and kept
        ((group,), policy) = (replayed(task), Policy())
        (one,) = group.trajectories
        assert [m.content for m in one.messages] == ["x" * 200 + "\n" + "y" * 200]
        prompt = policy.tokenizer.render(one.messages)
        assert one.tokens[: int(np.argmax(one.mask))].tolist() == prompt


def test_files_that_cannot_be_used(write: Any, tmp_path: Path) -> None:
    """None, one twice, one that is not there: each is said before anything is read."""
    path = write("a.jsonl", json.dumps(chat(1)))

    with pytest.raises(ConfigError, match="--dataset"):
        SadTask(SadConfig(), BuildContext())
    with pytest.raises(UnknownNameError, match="twice"):
        task_of(path, files=(str(path),))
    (tmp_path / "link.jsonl").symlink_to(path)
    with pytest.raises(UnknownNameError, match=r"link.jsonl was named twice"):
        task_of(path, files=(str(tmp_path / "link.jsonl"),))
    with pytest.raises(UnknownNameError, match="no such file"):
        task_of(path, files=(str(tmp_path / "b.jsonl"),))
    with pytest.raises(UnknownNameError, match="no format named"):
        task_of(path, format="chatt")


def test_files_whose_names_hold_commas(write: Any) -> None:
    """One path with a comma is that file; several stand in a JSON list, or with commas between."""
    one, other = (
        write(name, json.dumps(chat(n))) for n, name in ((1, "a,b.jsonl"), (2, "c.jsonl"))
    )
    for given, count in (
        (str(one), 1),
        (json.dumps([str(one), str(other)]), 2),
        (f"{other},{other.parent}/d.jsonl", 2),
    ):
        write("d.jsonl", json.dumps(chat(3)))
        assert len(list(task_of(Path(given)).problems("all"))) == count, given


def test_a_folder_of_many_files_opens_at_once(tmp_path: Path) -> None:
    """4,000 logs of one record each: looking for files named twice is no quadratic work."""
    for n in range(4000):
        (tmp_path / f"{n}.traj").touch()
    start = time.process_time()
    SadTask(SadConfig(), BuildContext(dataset=tmp_path))
    assert time.process_time() - start < 2.0


def test_another_task_cannot_be_replayed() -> None:
    """The sampler says which tasks can."""
    from rlvr.testing.fakes.toy import ToyTask

    sampler, task = ReplaySampler(None, BuildContext()), ToyTask()
    sampling = sample_groups(sampler, Policy(), task, list(task.problems("all")), SamplingParams())

    with pytest.raises(ConfigError, match="--plugin sad"):
        asyncio.run(sampling)


def test_notices_say_what_was_read(write: Any) -> None:
    """How many, the split, what holds nothing, what was refused and why."""
    empty = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": " "}]}
    shown = chat(9)
    shown["messages"][0]["content"] = [{"type": "image_url", "image_url": {"url": "a.png"}}]
    chats = [*(chat(n) for n in range(9)), shown]
    lines = [*map(json.dumps, chats), "{broken", json.dumps(empty)]
    first, *others = task_of(write("a.jsonl", "\n".join(lines))).warnings("train")

    assert first.startswith("10 trajectories of 10 tasks: ")
    assert others[0] == "1 trajectory with nothing to learn: a.jsonl:12 record 11"
    assert others[1].startswith("1 record left out: a.jsonl:11 record 10: it is no JSON")
    assert others[2].startswith("1 trajectory: with pictures or the like: shown to a model")


@pytest.mark.thorough
@pytest.mark.slow
def test_a_corpus_is_not_held_in_memory(write: Any) -> None:
    """Of 24 MB of logs less than a fifth is ever held, while they are read and replayed."""
    import tracemalloc

    one = chat(0)
    one["messages"][0]["content"] = "long question " * 1400
    lines = "\n".join(json.dumps({**one, "task_id": n}) for n in range(1200))
    path = write("a.jsonl", lines)
    size = len(lines)
    del lines
    task = task_of(path)
    sampler = ReplaySampler(ReplayConfig(layout="text", long="cut"), BuildContext())
    tracemalloc.start()
    problems = list(task.problems("train"))
    for start in range(0, 64, 8):
        part = problems[start : start + 8]
        asyncio.run(sample_groups(sampler, Policy(), task, part, SamplingParams()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert size > 23e6
    assert len(problems) > 1000
    assert peak < size / 5
