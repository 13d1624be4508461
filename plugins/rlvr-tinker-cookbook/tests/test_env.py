"""Our problems as the cookbook's environments."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("tinker_cookbook", reason="tinker-cookbook is not installed")

from tinker_cookbook.rl.data_processing import compute_advantages, trajectory_to_data
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.types import TrajectoryGroup

from rlvr import (
    ConfigError,
    Episode,
    EpisodeResult,
    Failed,
    Message,
    Outcome,
    Problem,
    Reward,
    Task,
    Trajectory,
    Unscorable,
    VerifierError,
    Verifying,
    open_verifying,
)
from rlvr_tinker_cookbook.dataset import TaskDatasetBuilder
from rlvr_tinker_cookbook.env import TaskEnv, TaskGroupBuilder
from rlvr_tinker_cookbook.judge import ENOUGH, AnswerVerifier, Wanted
from rlvr_tinker_cookbook.speech import (
    RendererSpeech,
    TemplateSpeech,
    renderer_of,
    tokenizer_of,
)

Saying = Callable[..., Any]
Seeing = tuple[AnswerVerifier, list[Trajectory]]


def toy(model_name: str, *options: str, group_size: int = 4, **more: Any) -> TaskDatasetBuilder:
    return TaskDatasetBuilder(
        plugin="toy",
        model_name=model_name,
        batch_size=4,
        group_size=group_size,
        options=options,
        **more,
    )


def first_group(builder: TaskDatasetBuilder, problem: str = "toy_a") -> TaskGroupBuilder:
    dataset, _ = asyncio.run(builder())
    groups = {group.problem.id: group for group in dataset.get_batch(0)}
    return groups[problem]


class TestSingleTurn:
    def test_rewards_are_the_verifiers(self, model_name: str, saying: Saying) -> None:
        """The cookbook trains on exactly what `rlvr score` gives the same answers."""
        texts = ["aaaa", "abcd", "bbbb", "aaa"]
        group = asyncio.run(do_group_rollout(first_group(toy(model_name)), saying(texts)))
        assert group.get_total_rewards() == [1.0, 0.25, 0.0, 0.75]
        last = [t.transitions[-1].metrics for t in group.trajectories_G]
        assert [m["solved"] for m in last] == [1.0, 0.0, 0.0, 0.0]
        assert [m["component/letters"] for m in last] == [1.0, 0.25, 0.0, 0.75]
        assert {t.stop_reason for t in group.trajectories_G} == {"completed"}

    def test_prompt_is_what_a_run_of_ours_shows(self, model_name: str, saying: Saying) -> None:
        """The model sees the same token ids in the cookbook's loop as in `rlvr run`."""
        builder, policy = first_group(toy(model_name, group_size=1)), saying(["aaaa"])
        asyncio.run(do_group_rollout(builder, policy))
        tokenizer = tokenizer_of(model_name)
        assert policy.prompts == [tokenizer.render(builder.problem.prompt)]
        assert policy.stops == [[tokenizer.eos_id]]

    def test_renderer_gives_the_same_prompt_where_it_is_the_template(
        self, model_name: str, saying: Saying
    ) -> None:
        """A renderer of the cookbook can be asked for: qwen3's writes this template's turns."""
        builder = first_group(toy(model_name, group_size=1, renderer_name="qwen3_disable_thinking"))
        policy = saying(["aaaa"])
        group = asyncio.run(do_group_rollout(builder, policy))
        assert group.get_total_rewards() == [1.0]
        text = tokenizer_of(model_name).decode(policy.prompts[0])
        assert text.startswith("<|im_start|>user\na=<|im_end|>\n<|im_start|>assistant\n")

    def test_long_prompt_loses_its_middle(self, model_name: str) -> None:
        """With a context given, prompt and completion fit into it."""
        builder = first_group(toy(model_name, context_length=20, max_tokens=10))
        env = asyncio.run(builder.make_envs())[0]
        observation, _ = asyncio.run(env.initial_observation())
        whole = tokenizer_of(model_name).render(builder.problem.prompt)
        assert len(whole) > 10
        assert observation.to_ints() == whole[:5] + whole[-5:]

    def test_stop_texts_end_the_answer(self, model_name: str) -> None:
        """`sampler.stop` reaches the service, beside the model's own end of turn."""
        builder = first_group(toy(model_name, "sampler.stop=b"))
        env = asyncio.run(builder.make_envs())[0]
        assert isinstance(env, TaskEnv)
        assert env.speech.stop == ["<|im_end|>", "b"]
        assert env.speech.text(tokenizer_of(model_name).encode("aab")) == "aa"

    def test_builders_pickle(self, model_name: str) -> None:
        """A rollout may happen in another process, which opens a judge of its own."""
        builder = first_group(toy(model_name))
        assert pickle.loads(pickle.dumps(builder)) == builder

    def test_bad_option_is_said_by_the_builder(self, model_name: str) -> None:
        """What is wrong with the task is an error of rlvr's, before anything is sampled."""
        with pytest.raises(ConfigError, match="lenght"):
            asyncio.run(toy(model_name, "toy.lenght=3")())


class TestDataset:
    def test_batches_are_epochs(self, model_name: str) -> None:
        """Each problem is met once in an epoch, and a batch is a function of its number."""
        builder = TaskDatasetBuilder(
            plugin="toy", model_name=model_name, batch_size=2, group_size=2
        )
        dataset, test = asyncio.run(builder())
        again, _ = asyncio.run(builder())
        assert test is None
        assert len(dataset) == 2
        ids = [[g.problem.id for g in dataset.get_batch(i)] for i in range(6)]
        assert ids == [[g.problem.id for g in again.get_batch(i)] for i in range(6)]
        for epoch in range(3):
            assert len({*ids[2 * epoch], *ids[2 * epoch + 1]}) == 4

    def test_test_problems_are_met_once_each(self, model_name: str) -> None:
        """The evaluation of the cookbook's loop sees each problem of split test once."""
        dataset = asyncio.run(toy(model_name, test_problems=3)())[1]
        assert dataset is not None
        groups = [g for i in range(len(dataset)) for g in dataset.get_batch(i)]
        assert [g.problem.id for g in groups] == ["toy_a", "toy_b", "toy_c"]
        assert {g.group_size for g in groups} == {1}


class TwoTurns(Episode):
    """Asks again until the answer is long enough; the answer is what was said last."""

    def __init__(self, problem: Problem, turns: int = 2) -> None:
        self._problem, self._turns, self.said = problem, turns, []

    def prompt(self) -> Sequence[Message] | None:
        if len(self.said) == self._turns:
            return None
        if not self.said:
            return self._problem.prompt
        return (Message(role="user", content=f"not {self.said[-1]}"),)

    async def take(self, completion: str) -> None:
        if completion == "raise":
            raise RuntimeError("the episode broke")
        self.said.append(completion)

    def result(self) -> EpisodeResult:
        return EpisodeResult(notes={"said": self.said})


class TwoTurnTask(Task):
    """The toy's problems, asked twice."""

    def __init__(self, task: Any) -> None:
        self._task = task

    def problems(self, split: str) -> Any:
        return self._task.problems(split)

    def episode(self, problem: Problem) -> TwoTurns:
        return TwoTurns(problem)


@pytest.fixture(scope="module")
def two_turns() -> Iterator[Seeing]:
    """A judge whose episodes have two turns, and the trajectories that it has seen."""
    seen: list[Trajectory] = []

    @asynccontextmanager
    async def opening() -> AsyncIterator[Verifying]:
        async with open_verifying("toy") as toy:

            async def verify(pairs: Sequence[tuple[Problem, Trajectory]]) -> list[Outcome]:
                seen.extend(trajectory for _, trajectory in pairs)
                return await toy.verify(pairs)

            yield Verifying(task=TwoTurnTask(toy.task), verify=verify, max_failures=0.2, stop=())

    judge = AnswerVerifier(opening)
    yield judge, seen
    judge.close()


def env_of(judge: AnswerVerifier, model_name: str, **more: Any) -> TaskEnv:
    problem = next(iter(judge.verifying.task.problems("train")))
    speech = TemplateSpeech(tokenizer_of(model_name))
    return TaskEnv(judge=judge, problem=problem, speech=speech, model_name=model_name, **more)


class OneOf:
    """A group of one environment that is there already."""

    def __init__(self, env: TaskEnv) -> None:
        self._env = env

    async def make_envs(self) -> list[TaskEnv]:
        return [self._env]

    compute_group_rewards = TaskGroupBuilder.compute_group_rewards

    async def cleanup(self) -> None:
        pass


def play(env: TaskEnv, policy: Any) -> TrajectoryGroup:
    return asyncio.run(do_group_rollout(OneOf(env), policy))  # type: ignore[arg-type]


class TestTurns:
    def test_turns_make_one_sequence(
        self, two_turns: Seeing, model_name: str, saying: Saying
    ) -> None:
        """The cookbook merges the turns into one datum and trains on the policy's tokens only."""
        judge, seen = two_turns
        group = play(env_of(judge, model_name), saying(["x", "aaaa"]))
        assert group.get_total_rewards() == [1.0]
        data = trajectory_to_data(group.trajectories_G[0], 1.0)
        assert len(data) == 1
        targets = data[0].loss_fn_inputs["target_tokens"].data
        mask = data[0].loss_fn_inputs["mask"].data
        tokenizer = tokenizer_of(model_name)
        trained = [t for t, m in zip(targets, mask, strict=True) if m]
        assert tokenizer.decode(trained) == "x<|im_end|>aaaa<|im_end|>"
        whole = "".join(
            [
                "<|im_start|>user\na=<|im_end|>\n<|im_start|>assistant\nx<|im_end|>\n",
                "<|im_start|>user\nnot x<|im_end|>\n<|im_start|>assistant\naaaa<|im_end|>",
            ]
        )
        trajectory = seen[-1]
        assert tokenizer.decode(trajectory.tokens.tolist()) == whole
        assert [s.author for s in trajectory.segments] == ["prompt", "policy", "env", "policy"]
        assert trajectory.notes == {"said": ["x", "aaaa"]}

    def test_turn_that_broke_off_is_closed(
        self, two_turns: Seeing, model_name: str, saying: Saying
    ) -> None:
        """The next turn begins after an end of turn, also where the policy wrote none."""
        judge, seen = two_turns
        group = play(env_of(judge, model_name), saying(["x", "y"], ends=False))
        text = tokenizer_of(model_name).decode(seen[-1].tokens.tolist())
        assert "assistant\nx<|im_end|>\n<|im_start|>user" in text
        assert seen[-1].finish == "length"
        assert group.trajectories_G[0].stop_reason == "max_tokens"

    def test_episode_that_outgrows_the_context_ends(
        self, two_turns: Seeing, model_name: str, saying: Saying
    ) -> None:
        """No prompt is longer than there is room; what was said so far is judged."""
        judge, seen = two_turns
        group = play(env_of(judge, model_name, room=30), saying(["aaaa"]))
        assert len(group.trajectories_G[0].transitions) == 1
        assert seen[-1].finish == "length"
        assert group.get_total_rewards() == [1.0]

    def test_episode_that_raises_is_no_reward(
        self, two_turns: Seeing, model_name: str, saying: Saying
    ) -> None:
        """A broken episode is a failure with its reason, never an answer of reward 0."""
        env = env_of(two_turns[0], model_name)
        play(env, saying(["raise"]))
        assert isinstance(env.outcome, Failed)
        assert "the episode broke" in env.outcome.reason

    def test_renderer_keeps_the_conversation(self, model_name: str) -> None:
        """With a renderer, the next prompt holds what was said before."""
        speech = RendererSpeech(renderer_of("role_colon", model_name))
        tokenizer = tokenizer_of(model_name)
        speech.opening([Message(role="user", content="a=")])
        assert speech.text(tokenizer.encode(" x\n\nUser:")) == "x"
        after = speech.following([], [Message(role="user", content="not x")])
        assert tokenizer.decode(after) == "User: a=\n\nAssistant: x\n\nUser: not x\n\nAssistant:"


class TestMissingVerdicts:
    def test_answers_without_verdict_leave_the_baseline(self, model_name: str) -> None:
        """They have advantage 0, and the others the one that they have without them."""
        outcomes: list[Outcome | None] = [
            Reward(value=1.0, score01=1.0),
            Unscorable(reason="no verdict"),
            Reward(value=0.25, score01=0.0),
            Failed(reason="the tool died"),
            Reward(value=0.1, score01=0.0),
            None,
        ]
        builder = first_group(toy(model_name))
        envs = [TaskEnv(judge=None, problem=None, speech=None, model_name="") for _ in outcomes]  # type: ignore[arg-type]
        for env, outcome in zip(envs, outcomes, strict=True):
            env.outcome = outcome
        added = asyncio.run(builder.compute_group_rewards([], envs))
        steps = [o.value if isinstance(o, Reward) else 0.0 for o in outcomes]
        total = [step + extra for step, (extra, _) in zip(steps, added, strict=True)]
        group = TrajectoryGroup([], [], [])
        group.get_total_rewards = lambda: total  # type: ignore[method-assign]
        advantages = compute_advantages([group])[0].tolist()
        mean = (1.0 + 0.25 + 0.1) / 3
        wanted = [1.0 - mean, 0.0, 0.25 - mean, 0.0, 0.1 - mean, 0.0]
        assert advantages == pytest.approx(wanted, abs=1e-6)

    def test_equal_rewards_stay_equal(self, model_name: str) -> None:
        """A group of equal rewards is still seen as one, so the cookbook can leave it out."""
        builder = first_group(toy(model_name))
        envs = [TaskEnv(judge=None, problem=None, speech=None, model_name="") for _ in range(4)]  # type: ignore[arg-type]
        for env in envs[:3]:
            env.outcome = Reward(value=0.1, score01=0.0)
        added = asyncio.run(builder.compute_group_rewards([], envs))
        assert [0.1 + a for a, _ in added[:3]] == [added[3][0]] * 3

    def test_verifier_that_fails_too_often_stops_the_loop(
        self, model_name: str, saying: Saying
    ) -> None:
        """Past `verify.max_failures` the cookbook's loop ends with rlvr's error."""
        builder = first_group(toy(model_name, "toy.fail_share=1.0", group_size=ENOUGH))
        with pytest.raises(VerifierError, match=f"{ENOUGH} of the last {ENOUGH} verifications"):
            asyncio.run(do_group_rollout(builder, saying(["aaaa"] * ENOUGH)))

    def test_few_failures_are_borne(self, model_name: str, saying: Saying) -> None:
        """Before that, a failure is a metric of its answer, and the group goes on."""
        builder = first_group(toy(model_name, "toy.fail_share=0.5", group_size=3))
        group = asyncio.run(do_group_rollout(builder, saying(["aaaa"] * 3)))
        metrics = [t.transitions[-1].metrics for t in group.trajectories_G]
        assert [m["failed"] for m in metrics] == [1.0] * 3
        assert all("solved" not in m for m in metrics)


def test_one_judge_for_a_task(model_name: str) -> None:
    """Groups of one task share what it has opened; another option means another task."""
    from rlvr_tinker_cookbook.judge import judge_of

    assert judge_of(Wanted(plugin="toy")) is judge_of(Wanted(plugin="toy"))
    assert judge_of(Wanted(plugin="toy")) is not judge_of(
        Wanted(plugin="toy", options=("toy.length=3",))
    )
