"""The cookbook's environments as our task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("tinker_cookbook", reason="tinker-cookbook is not installed")

import chz
import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.renderers import Message as CookbookMessage
from tinker_cookbook.renderers import get_text_content
from tinker_cookbook.rl import types
from tinker_cookbook.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
from tinker_cookbook.rl.rollouts import do_group_rollout

from rlvr import (
    BuildContext,
    Completion,
    ConfigError,
    GenerateRequest,
    Group,
    GroupSampler,
    Outcome,
    Policy,
    Reward,
    SamplingParams,
    Trajectory,
    UnknownNameError,
    Unscorable,
    sample_groups,
)
from rlvr_tinker_cookbook.config import CookbookConfig
from rlvr_tinker_cookbook.reward import CookbookReward
from rlvr_tinker_cookbook.speech import renderer_of, tokenizer_of
from rlvr_tinker_cookbook.task import CookbookTask

ARITHMETIC = "tinker_cookbook.recipes.math_rl.arithmetic_env:ArithmeticDatasetBuilder"


def arithmetic(model_name: str, **options: Any) -> CookbookTask:
    args = {
        "batch_size": 2,
        "model_name_for_tokenizer": model_name,
        "renderer_name": "role_colon",
        "n_batches": 3,
        "group_size": 2,
    }
    return task_of(ARITHMETIC, *(f"{k}={v}" for k, v in args.items()), **options)


def task_of(builder: str, *args: str, **options: Any) -> CookbookTask:
    config = CookbookConfig(builder=builder, args=args, **options)
    return CookbookTask(config, BuildContext())


class Saying(Policy):
    """A policy of ours that says the given texts one after another."""

    version, digest, context_length = 0, "", 4096

    def __init__(self, model_name: str, texts: Sequence[str]) -> None:
        self.tokenizer = tokenizer_of(model_name)
        self.requests: list[GenerateRequest] = []
        self._texts = iter(texts)

    async def generate(self, request: GenerateRequest) -> Completion:
        self.requests.append(request)
        text = next(self._texts)
        is_cut = text.endswith("...")
        stop = next((s for s in request.params.stop if s in text), None)
        has_end = not is_cut and stop is None
        ids = self.tokenizer.encode(text) + [self.tokenizer.eos_id] * has_end
        return Completion(
            tokens=ids,
            logprobs=[-0.5] * len(ids),
            text=text.partition(stop)[0] if stop else text,
            finish="length" if is_cut else "stop",
        )


def sample(task: CookbookTask, policy: Saying, size: int = 1, count: int = 1) -> list[Group]:
    problems = list(task.problems("train"))[:count]
    params = SamplingParams(max_tokens=64, group_size=size)
    return asyncio.run(sample_groups(GroupSampler(), policy, task, problems, params))


def judged(task: CookbookTask, trajectory: Trajectory, **options: Any) -> Outcome:
    problem = next(p for p in task.problems("all") if p.id == trajectory.problem_id)
    reward = CookbookReward(CookbookConfig(**options), BuildContext())
    return asyncio.run(reward(problem, trajectory))


class TestArithmetic:
    def test_plays_as_the_cookbook_does(self, model_name: str) -> None:
        """Prompt, tokens and rewards are those of the cookbook's own rollout of the same words."""
        task = arithmetic(model_name)
        problem = next(iter(task.problems("train")))
        builder = task._builders[problem.payload]
        env = asyncio.run(builder.make_envs())[0]
        total = env.x + env.y  # type: ignore[attr-defined]
        texts = [f" {total}\n\nUser:", " no number\n\nUser:"]
        policy = Saying(model_name, texts)
        group = sample(task, policy, size=2)[0]
        said = iter([t.segments[-1].tokens.tolist() for t in group.trajectories])
        prompts: list[list[int]] = []

        class Same:
            async def __call__(self, prompt: Any, stop: Any, *, max_tokens: Any = None) -> Any:
                prompts.append(prompt.to_ints())
                ids = next(said)
                return TokensWithLogprobs(
                    tokens=ids, maybe_logprobs=[0.0] * len(ids), stop_reason="stop"
                )

        theirs = asyncio.run(do_group_rollout(builder, Same()))
        assert prompts == [t.segments[0].tokens.tolist() for t in group.trajectories]
        outcomes = [judged(task, t) for t in group.trajectories]
        assert [o.value for o in outcomes if isinstance(o, Reward)] == theirs.get_total_rewards()
        assert [o.score01 for o in outcomes if isinstance(o, Reward)] == [1.0, 0.0]

    def test_stops_where_the_environment_says(self, model_name: str) -> None:
        """The environment's stop condition reaches the policy; its own end of turn is known."""
        policy = Saying(model_name, [" 1"])
        sample(arithmetic(model_name), policy)
        assert policy.requests[0].params.stop == ("\n\nUser:",)

    def test_problems_are_the_same_every_time(self, model_name: str) -> None:
        """Ids and digests do not depend on when the data set was made."""
        first, again = arithmetic(model_name), arithmetic(model_name)
        ids = [(p.id, p.digest) for p in first.problems("train")]
        assert ids == [(p.id, p.digest) for p in again.problems("train")]
        assert len({digest for _, digest in ids}) == 6
        assert list(first.problems("test")) == []

    def test_batches_bound_the_problems(self, model_name: str) -> None:
        """An endless data set gives as many problems as were asked for."""
        assert len(list(arithmetic(model_name, batches=2).problems("train"))) == 4

    def test_other_tokenizer_is_refused(
        self, model_name: str, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        """An environment that writes ids of another vocabulary is no task for this policy."""
        from transformers import AutoTokenizer

        other = tmp_path_factory.mktemp("other")
        tokenizer = AutoTokenizer.from_pretrained(model_name)
        vocab = tokenizer.backend_tokenizer.to_str()
        tokenizer.save_pretrained(other)
        a, b = tokenizer.convert_tokens_to_ids(["a", "b"])
        swapped = vocab.replace(f'"a": {a}', '"a": -1').replace(f'"a":{a}', '"a":-1')
        swapped = swapped.replace(f'"b": {b}', f'"b": {a}').replace(f'"b":{b}', f'"b":{a}')
        swapped = swapped.replace('"a": -1', f'"a": {b}').replace('"a":-1', f'"a":{b}')
        (other / "tokenizer.json").write_text(swapped, "utf-8")
        with pytest.raises(ConfigError, match="the policy reads"):
            sample(arithmetic(model_name), Saying(str(other), [" 1"]))


class Echo(MessageEnv):
    """Wants to hear its last word again, `turns` times; 1 for each time it does."""

    def __init__(self, turns: int) -> None:
        self._left, self._said = turns, [CookbookMessage(role="user", content="word 0")]

    async def initial_observation(self) -> list[CookbookMessage]:
        return list(self._said)

    async def step(self, message: CookbookMessage) -> MessageStepResult:
        wanted = get_text_content(self._said[-1])
        reward = float(get_text_content(message) == wanted)
        self._left -= 1
        self._said += [message, CookbookMessage(role="user", content=f"word {self._left}")]
        return MessageStepResult(
            reward=reward,
            episode_done=not self._left,
            next_messages=list(self._said),
            metrics={"turn_reward": reward},
        )


class EchoGroup(types.EnvGroupBuilder):
    def __init__(self, model_name: str, rewrites: bool = False) -> None:
        self.model_name, self.rewrites, self.cleaned, self.made = model_name, rewrites, 0, 0

    async def make_envs(self) -> Sequence[types.Env]:
        self.made += 1
        renderer = renderer_of("role_colon", self.model_name)
        return [EnvFromMessageEnv(renderer, Rewriting(2) if self.rewrites else Echo(2))] * 1

    async def cleanup(self) -> None:
        self.cleaned += 1


class Rewriting(Echo):
    """Shows another beginning each turn."""

    async def step(self, message: CookbookMessage) -> MessageStepResult:
        result = await super().step(message)
        result.next_messages = [CookbookMessage(role="user", content="anew"), message]
        return result


class Compared(EchoGroup):
    """The group's longest answer wins."""

    async def compute_group_rewards(
        self, trajectory_group: list[types.Trajectory], env_group: Sequence[types.Env]
    ) -> list[tuple[float, types.Metrics]]:
        return [(float(len(trajectory_group)), {"compared": 1.0}) for _ in env_group]


class Few(types.RLDataset):
    def __init__(self, builders: list[types.EnvGroupBuilder]) -> None:
        self._builders = builders

    def get_batch(self, index: int) -> Sequence[types.EnvGroupBuilder]:
        return self._builders

    def __len__(self) -> int:
        return 1


KINDS = {"echo": EchoGroup, "compared": Compared}


@chz.chz
class FewBuilder(types.RLDatasetBuilder):
    model_name: str
    kind: str = "echo"

    async def __call__(self) -> tuple[types.RLDataset, types.RLDataset | None]:
        if self.kind == "rewriting":
            return Few([EchoGroup(self.model_name, rewrites=True)]), None
        train = Few([KINDS[self.kind](self.model_name)])
        return train, Few([EchoGroup(self.model_name), EchoGroup(self.model_name)])


@pytest.fixture
def few(model_name: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CookbookTask]:
    """Makes a task of the small environments above, found by a module name."""
    import sys
    from types import ModuleType

    module = ModuleType("few_environments")
    module.FewBuilder = FewBuilder  # type: ignore[attr-defined]
    module.nothing = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "few_environments", module)

    def make(kind: str = "echo", **options: Any) -> CookbookTask:
        return task_of(
            "few_environments:FewBuilder", f"model_name={model_name}", f"kind={kind}", **options
        )

    return make


class TestTurns:
    def test_several_turns_are_one_trajectory(
        self, few: Callable[..., CookbookTask], model_name: str
    ) -> None:
        """All turns stand in one sequence; rewards of all steps are summed."""
        task = few()
        policy = Saying(model_name, [" word 0\n\nUser:", " word 1\n\nUser:"])
        trajectory = sample(task, policy)[0].trajectories[0]
        assert [s.author for s in trajectory.segments] == ["prompt", "policy", "env", "policy"]
        outcome = judged(task, trajectory, solved_at=2.0)
        assert isinstance(outcome, Reward)
        assert (outcome.value, outcome.score01) == (2.0, 1.0)
        assert outcome.components == {"turn_reward": 1.0}
        assert judged(task, trajectory, solved_at=3.0).score01 == 0.0  # type: ignore[union-attr]

    def test_broken_off_answer_has_their_penalty(
        self, few: Callable[..., CookbookTask], model_name: str
    ) -> None:
        """That the policy ran out of tokens is told to the environment, which knows a reward."""
        task = few()
        trajectory = sample(task, Saying(model_name, [" word..."]))[0].trajectories[0]
        outcome = judged(task, trajectory)
        assert isinstance(outcome, Reward)
        assert outcome.value == pytest.approx(-0.1)

    def test_rewritten_history_is_refused(
        self, few: Callable[..., CookbookTask], model_name: str
    ) -> None:
        """A renderer that changes what was said cannot be trained on as one sequence."""
        with pytest.raises(ConfigError, match="has_extension_property"):
            sample(few("rewriting"), Saying(model_name, [" word 0\n\nUser:"] * 2))

    def test_builder_cleans_up(self, few: Callable[..., CookbookTask], model_name: str) -> None:
        """Environments are made as they are needed, and cleaned up when none is played."""
        task = few()
        sample(task, Saying(model_name, [" word 0\n\nUser:"] * 6), size=3)
        problem = next(iter(task.problems("train")))
        builder = task._builders[problem.payload]
        assert isinstance(builder, EchoGroup)
        assert builder.made == 3
        assert builder.cleaned == 1


class TestGroupRewards:
    def test_are_refused_aloud(self, few: Callable[..., CookbookTask]) -> None:
        """An environment that compares answers gives no problem, and the reason says so."""
        task = few("compared")
        assert list(task.problems("train")) == []
        reasons = task.unsupported()
        assert list(reasons) == ["train_0000_000"]
        assert "cookbook.group_rewards=alone" in reasons["train_0000_000"]

    def test_can_be_had_alone(self, few: Callable[..., CookbookTask], model_name: str) -> None:
        """On request each answer is a group of one."""
        task = few("compared", group_rewards="alone")
        policy = Saying(model_name, [" word 0\n\nUser:", " no\n\nUser:"])
        outcome = judged(task, sample(task, policy)[0].trajectories[0])
        assert isinstance(outcome, Reward)
        assert outcome.value == 1.0 + 0.0 + 1.0  # two steps, and a group of one
        assert outcome.components["compared"] == 1.0


class TestBadInput:
    def test_test_dataset_is_split_test(self, few: Callable[..., CookbookTask]) -> None:
        """The cookbook's test data set is what `rlvr eval` measures on."""
        task = few()
        assert [p.id for p in task.problems("test")] == ["test_0000_000", "test_0000_001"]
        assert len(list(task.problems("all"))) == 3

    def test_no_builder(self) -> None:
        """Without a builder the error names one to try."""
        with pytest.raises(ConfigError, match="ArithmeticDatasetBuilder"):
            list(task_of("").problems("train"))

    def test_unknown_builder(self) -> None:
        """A module or class that is not there is an unknown name."""
        with pytest.raises(UnknownNameError, match="no_such_module"):
            list(task_of("no_such_module:Builder").problems("train"))

    @pytest.mark.usefixtures("few")
    def test_no_dataset_builder(self) -> None:
        """Something else by that name is refused."""
        with pytest.raises(ConfigError, match="no RLDatasetBuilder"):
            list(task_of("few_environments:nothing").problems("train"))

    @pytest.mark.usefixtures("few")
    @pytest.mark.parametrize("args", [(), ("model_nam=x",), ("model_name=x", "kind")])
    def test_wrong_fields(self, args: tuple[str, ...]) -> None:
        """Fields that the builder does not have, or lacks, are named."""
        with pytest.raises(ConfigError, match=r"cookbook\.args"):
            list(task_of("few_environments:FewBuilder", *args).problems("train"))

    def test_dataset_is_refused(self, tmp_path: Any) -> None:
        """A file of problems has no meaning here."""
        with pytest.raises(ConfigError, match="name the builder"):
            CookbookTask(CookbookConfig(), BuildContext(dataset=tmp_path))

    def test_answers_from_elsewhere_have_no_verdict(self, few: Callable[..., CookbookTask]) -> None:
        """An answer that no environment has seen is unscorable, not wrong."""
        task = few()
        outcome = judged(task, Trajectory.from_text("train_0000_000", "word 0"))
        assert isinstance(outcome, Unscorable)

    def test_messages_are_refused(self, few: Callable[..., CookbookTask]) -> None:
        """A sampler that knows messages only cannot play an environment of tokens."""
        task = few()
        episode = task.episode(next(iter(task.problems("train"))))
        with pytest.raises(ConfigError, match="--sampler group"):
            episode.prompt()


def test_observation_with_pictures_is_refused() -> None:
    """What is not text has no token ids here."""
    from rlvr import BackendError
    from rlvr_tinker_cookbook.episode import _ids

    picture = tinker.ModelInput(
        chunks=[tinker.types.ImageChunk(data=b"x", format="png", expected_tokens=3)]
    )
    with pytest.raises(BackendError, match="more than text"):
        _ids(picture)
