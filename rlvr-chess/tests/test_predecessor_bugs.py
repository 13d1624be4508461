"""
The bugs of the predecessors (rookworld-rlvr, rookworld-trl), one named test each, held against us.

They sat in the algorithm, the generation and the evaluation, so the parts of a run that are no
chess are asked too: the tests skip aloud where rlvr-torch or rlvr-algos is not installed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlvr import (
    BuildContext,
    Completion,
    Datum,
    GenerateRequest,
    Message,
    PrerequisiteError,
    Problem,
    Reward,
    SamplingParams,
    ScoredGroup,
    Segment,
    Trajectory,
)
from rlvr_chess.config import ChessConfig
from rlvr_chess.evaluation.environment import Foretold, figures
from rlvr_chess.evaluation.policy import Judged, greedy_figures
from rlvr_chess.fen import four_fields
from rlvr_chess.questions.grammar import PolicyAnswer, State
from rlvr_chess.questions.records import PolicyPosition
from rlvr_chess.questions.transition import transition
from rlvr_chess.rewards.reward import ChessReward
from rlvr_chess.values import ActionValues

torch = pytest.importorskip("torch", reason="rlvr-torch is not installed")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed")
pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed")

START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
CONTEXT = BuildContext(sampling=SamplingParams(max_tokens=64, group_size=4))


def datum(
    sampled: Sequence[float], prompt: int = 0, advantage: float = 1.0, **annotations: Any
) -> Datum:
    """`prompt` tokens of the prompt, then the policy's with these logprobs; weights sum to 1."""
    mask = np.arange(prompt + len(sampled)) >= prompt
    columns = {
        name: np.pad(np.asarray(values, np.float32), (prompt, 0))
        for name, values in {"logprobs": sampled, **annotations}.items()
    }
    return Datum(
        tokens=np.arange(len(mask)),
        mask=mask,
        logprobs=columns.pop("logprobs"),
        advantages=advantage * mask,
        weights=mask / len(sampled),
        problem_id="p",
        annotations=columns,
    )


def scored(rewards: Sequence[float], name: str = "p") -> ScoredGroup:
    """Answers of three tokens to one problem, with these rewards."""
    policy = Segment(author="policy", tokens=[1, 2, 3], logprobs=[-1.0, -2.0, -0.5])
    return ScoredGroup(
        problem=Problem(id=name, prompt=[Message(role="user", content="?")]),
        trajectories=[Trajectory(problem_id=name, segments=[policy]) for _ in rewards],
        outcomes=[Reward(value=value, score01=float(value == 1)) for value in rewards],
    )


def tiny_engine(positions: int = 48) -> Any:
    """A model of random weights, loud enough that every token has its say, and its engine."""
    from rlvr_torch.generation.engine import Engine
    from rlvr_torch.models.bpe import BytePairTokenizer
    from rlvr_torch.models.gpt2 import GPT2, GPT2Config

    torch.set_num_threads(1)
    tokenizer = BytePairTokenizer.bytes_only()
    config = GPT2Config(vocab_size=257, n_positions=positions, n_embd=32, n_layer=2, n_head=4)
    net = GPT2.new(config, seed=1)
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for value in net.parameters():
            value += 0.1 * torch.randn(value.shape, generator=random)
    return Engine(net, tokenizer)


def generate(engine: Any, prompts: Sequence[str], tokens: int, **settings: Any) -> list[Completion]:
    """One completion a prompt."""
    params = SamplingParams(max_tokens=tokens, **settings)
    requests = [
        GenerateRequest(prompt=engine.tokenizer.encode(prompt), params=params, seed=seed)
        for seed, prompt in enumerate(prompts)
    ]
    found: list[Completion] = engine.generate(requests)
    return found


def backend_of(model: str = "gpt2:new?layers=1&heads=2&width=16&positions=64") -> Any:
    """The trainer of a tiny model."""
    from rlvr_torch.backend import TorchBackend
    from rlvr_torch.config import TorchConfig

    return TorchBackend(TorchConfig(device="cpu", threads=1), BuildContext(model=model, seed=1))


def test_the_ratio_is_to_the_policy_that_sampled_token_by_token() -> None:
    """
    Was: policy / reference of whole-sequence sums. By hand: ratios 1.1 and 0.9, each its own.

    A reference far away changes neither ratio nor clipping; the product of both would be 0.99.
    """
    from rlvr_algos.config import GrpoConfig
    from rlvr_algos.losses.grpo import GrpoLoss

    far = datum([-1.0, -2.0], prompt=2, advantage=2.0, reference=[-9.0, -0.1])
    now = torch.tensor([-5.0, -5.0, -1.0 + np.log(1.1), -2.0 + np.log(0.9)])
    loss, metrics = GrpoLoss(GrpoConfig(kl_coef=1e-9), CONTEXT)([far], [now], {})
    assert float(loss) == pytest.approx(-2.0 * (1.1 + 0.9) / 2)
    assert metrics["ratio/mean"] == pytest.approx(1.0)
    assert metrics["ratio/max"] == pytest.approx(1.1)
    wide = torch.tensor([-5.0, -5.0, -1.0 + np.log(1.5), -2.0 + np.log(0.9)])
    _, metrics = GrpoLoss(None, CONTEXT)([far], [wide], {})
    assert metrics["clip/high"] == pytest.approx(0.5)  # one token of two, not the sequence


def test_the_kl_is_an_estimate_of_the_kl() -> None:
    """
    Was: exp(logp) * (logp - ref) on sampled tokens, which is no KL and can be negative.

    Expectations are exact here: every token, weighted with its probability.
    """
    from rlvr_algos.shaping.kl import kl_to_reference

    policy = torch.tensor([0.5, 0.2, 0.2, 0.09, 0.01], dtype=torch.float64)
    reference = torch.tensor([0.05, 0.5, 0.05, 0.1, 0.3], dtype=torch.float64)
    true = float((policy * (policy / reference).log()).sum())
    for estimator in ("k1", "k3"):
        values = kl_to_reference(policy.log(), reference.log(), estimator)
        assert float((policy * values).sum()) == pytest.approx(true)
    assert (kl_to_reference(policy.log(), reference.log(), "k3") >= 0).all()
    theirs = policy * (policy.log() - reference.log())  # of each token, sampled
    assert abs(float((policy * theirs).sum()) - true) > 0.3


@pytest.mark.parametrize("length", [4, 400])
def test_the_adaptive_kl_sees_nats_a_token(length: int) -> None:
    """
    Was: a sum over the sequence against a target a token, so the weight ran to its limit.

    A KL of half the target lowers the weight, however long answers are; by at most 2 % a step
    with the horizon of 10.
    """
    from rlvr_algos.config import GrpoConfig
    from rlvr_algos.losses.grpo import GrpoLoss

    loss = GrpoLoss(GrpoConfig(kl_coef=0.02, kl_target=0.01, kl_estimator="k2"), CONTEXT)
    gap = np.sqrt(2 * 0.005)  # k2 is the square's half: 0.005 nats at each token
    own = np.full(length, -1.0)
    _, metrics = loss([datum(own, reference=own - gap)], [torch.tensor(own)], {})
    assert metrics["kl/reference"] == pytest.approx(0.005, rel=1e-3)
    assert metrics["kl/coefficient"] == pytest.approx(0.02)
    memory: dict[str, float] = {}
    for _ in range(40):
        memory = dict(loss.adapted(memory, metrics))
    assert memory["kl_coef"] == pytest.approx(0.02 * 0.98**40)


def test_prompts_of_mixed_lengths_decode_as_each_alone() -> None:
    """Was: right positions at prefill, wrong ones from the first decoded token on."""
    engine = tiny_engine()
    prompts = ["P: 8/8", "A: k7/8/1K6/8/8/8/8/7R b - - 0", "x", "P: 4k3/8/8 M:"]
    together = generate(engine, prompts, 12, temperature=0.0)
    for prompt, found in zip(prompts, together, strict=True):
        (alone,) = generate(engine, [prompt], 12, temperature=0.0)
        assert found.tokens.tolist() == alone.tokens.tolist()
        assert found.logprobs == pytest.approx(alone.logprobs, abs=1e-5)
        tokens = torch.tensor([[*engine.tokenizer.encode(prompt), *found.tokens.tolist()]])
        with torch.no_grad():
            logits = engine.net(tokens)[0, -len(found.tokens) - 1 : -1]
        assert logits.argmax(dim=1).tolist() == found.tokens.tolist()


def test_only_the_policys_tokens_are_trained() -> None:
    """
    Was: the mask was made for padding on the right and the batch was padded on the left.

    Data of different lengths in one batch score as each alone, and the loss's gradient is zero on
    every token of a prompt.
    """
    from rlvr.training.stages import datum_of
    from rlvr_algos.losses.grpo import GrpoLoss

    data = []
    for prompt, answer in ((3, 9), (20, 2), (7, 5)):
        segments = [
            Segment(author="prompt", tokens=np.arange(1, prompt + 1)),
            Segment(author="policy", tokens=np.arange(1, answer + 1), logprobs=[-1.0] * answer),
        ]
        data.append(datum_of(Trajectory(problem_id="p", segments=segments), advantage=1.0))
        assert data[-1].mask.tolist() == [False] * prompt + [True] * answer
    backend = backend_of()

    async def score() -> tuple[list[Any], list[Any]]:
        async with backend:
            together = await backend.logprobs(data, "policy")
            alone = [(await backend.logprobs([one], "policy"))[0] for one in data]
            return together, alone

    together, alone = asyncio.run(score())
    for one, some, single in zip(data, together, alone, strict=True):
        assert some == pytest.approx(single, abs=1e-5)
        assert (some[one.mask] < 0).all()
    leaves = [torch.tensor(values, requires_grad=True) for values in together]
    GrpoLoss(None, CONTEXT)(data, leaves, {})[0].backward()
    for one, leaf in zip(data, leaves, strict=True):
        assert ((leaf.grad != 0).numpy() == one.mask).all()


def test_samples_of_a_group_do_not_follow_one_another() -> None:
    """
    Was: "GAE" along the K samples of a group: rewards 1, 0, 0, 0 gave .16, -1.47, -1.00, -.51.

    Equal rewards get equal credit, and estimates with a critic look at one answer only.
    """
    from rlvr_algos.advantages.global_batch import GaeAdvantage
    from rlvr_algos.advantages.group import GroupAdvantage

    (found,) = GroupAdvantage(None, CONTEXT)([scored([1, 0, 0, 0])])
    assert found == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    part = GaeAdvantage(GaeAdvantage.config_class(whiten=False), CONTEXT)
    data = [datum([-1.0] * 3, advantage=float(r), value=[0.1, 0.2, 0.3]) for r in (1, 0, 0, 0)]
    rows = [new.advantages.tolist() for new in part.per_token(data)]
    assert rows[1] == rows[2] == rows[3] != rows[0]
    assert rows[0] == part.per_token(data[:1])[0].advantages.tolist()


def test_a_flat_group_gets_nothing_and_disturbs_no_other() -> None:
    """Was: normalised over the batch, so that one group got all the signal."""
    from rlvr_algos.advantages.group import GroupAdvantage

    part = GroupAdvantage(None, CONTEXT)
    flat, other = scored([0.7] * 4, "flat"), scored([0.2, 0.9, 0.4, 0.1], "other")
    first, second = part([flat, other])
    assert first == [0.0] * 4
    assert second == part([other])[0]


def test_the_value_head_reads_hidden_states() -> None:
    """Was: a head of width 768 on 50257 logits, a crash with the default settings."""
    from rlvr_algos.losses.ppo import PpoLoss

    backend = backend_of()  # width 16, vocabulary 257
    column = [0.0, 0.0, 0.0]
    one = datum([-5.0, -5.0, -5.0], prompt=2, value=column, **{"return": [1.0, 1.0, 1.0]})

    async def step() -> dict[str, float]:
        async with backend:
            found: dict[str, float] = await backend.update([one], PpoLoss(None, CONTEXT))
            return found

    metrics = asyncio.run(step())
    assert metrics["update/skipped"] == 0.0
    assert metrics["grad/critic_norm"] > 0


def test_a_completion_ends_with_its_end_of_text_in_one_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Was: tokens after the end stayed in the rows, and a "batch" was a loop over prompts."""
    engine = tiny_engine()
    with torch.no_grad():
        engine.net.wte.weight[engine.tokenizer.eos_id] *= 4  # likelier, at no fixed place
    sizes = []
    hidden = type(engine.net).hidden

    def counting(net: Any, tokens: Any, *rest: Any) -> Any:
        sizes.append(tokens.shape)
        return hidden(net, tokens, *rest)

    monkeypatch.setattr(type(engine.net), "hidden", counting)
    found = generate(engine, [f"P: {n}" for n in range(24)], 20, temperature=1.5)
    eos = engine.tokenizer.eos_id
    ended = [c for c in found if c.finish == "stop"]
    assert len({len(c.tokens) for c in ended}) > 2  # rows of different lengths: no empty test
    for completion in found:
        tokens = completion.tokens.tolist()
        assert tokens.count(eos) == (completion.finish == "stop")
        assert completion.finish == "length" or tokens[-1] == eos
        assert "<|endoftext|>" not in completion.text
    passes = [rows for rows, tokens in sizes if tokens == 1]  # prompts are longer, each read alone
    assert len(sizes) - len(passes) == 24
    assert len(passes) < 20  # one a token for all rows together
    assert passes[0] == 24


def test_each_measure_of_the_evaluation_means_its_name() -> None:
    """
    Was: "best move" counted content above .7, "legal" any of five, and a key that never matched.

    Here B is illegal, though four candidates are the best ones: neither legal nor best. And an
    environment answer with one wrong clock is right in eight fields and not exact.
    """
    values = ActionValues(
        fen=START, moves=[["e2e4", "cp", 40], ["d2d4", "cp", 38], ["a2a3", "cp", -200]]
    )
    judged = [
        Judged(values=values, answer=PolicyAnswer(("e2e4", "d2d4"), ("0.40", "0.38"), "e2e5")),
        Judged(values=values, answer=PolicyAnswer(("a2a3", "a2a3"), ("0.0", "0.0"), "d2d4")),
        Judged(values=values, answer=None),
    ]
    found = {figure.name: figure.value for figure in greedy_figures(judged)}
    assert found["policy/legal"] == pytest.approx(1 / 3)  # the second line only
    assert found["policy/best"] == pytest.approx(1 / 3)  # d2d4 ties with e2e4
    assert found["policy/best_exact"] == 0.0
    assert found["policy/format"] == pytest.approx(2 / 3)

    truth = transition(START, "e2e4")
    exact = State(truth.fen, truth.reward, truth.terminated, truth.truncated)
    late = State(truth.fen[:-1] + "7", *(exact.reward, "0", "0"))
    told = [Foretold(truth=truth, answer=answer, category="c") for answer in (exact, late)]
    by_name = {figure.name: figure.value for figure in figures(told)}
    assert by_name["environment/exact"] == 0.5
    assert by_name["environment/field/placement"] == 1.0
    assert by_name["environment/field/fullmove"] == 0.5


def test_what_is_held_out_was_never_trained_on(write: Any, make_task: Any) -> None:
    """Was: 20 rows of the train split in another order, sampled at temperature .7."""
    import inspect

    import chess

    from rlvr_chess.asking import Player

    boards = []
    for seed in range(60):
        board = chess.Board()
        random = np.random.default_rng(seed)
        for _ in range(1 + seed % 9):
            moves = sorted(board.legal_moves, key=chess.Move.uci)
            board.push(moves[int(random.integers(len(moves)))])
        boards += [board.fen(), " ".join([*board.fen().split()[:4], "7", "30"])]  # other clocks
    task = make_task(write("positions.fen", *boards), holdout=0.3)
    seen = {
        split: {four_fields(problem.payload.fen) for problem in task.problems(split)}
        for split in ("train", "test")
    }
    assert len(seen["test"]) > 5
    assert len(seen["train"]) > 20
    assert not seen["train"] & seen["test"]
    assert inspect.signature(Player.lines).parameters["temperature"].default == 0.0


def test_a_missing_engine_is_an_error_and_no_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Was: RANDOM labels, and training went on."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fen = "rnbqkb1r/pp1ppppp/5n2/2p5/P6P/8/1PPPPPP1/RNBQKBNR w KQkq - 1 37"  # in no table
    problem = Problem(
        id="p", prompt=[Message(role="user", content="?")], payload=PolicyPosition(fen=fen)
    )
    line = " a4a5 h4h5 b2b3 b2b4 c2c3 E: 0.10 0.10 0.10 0.10 0.10 B: a4a5"
    config = ChessConfig(engine=str(tmp_path / "no-engine"))

    async def judge() -> Any:
        async with ChessReward(config, BuildContext()) as reward:
            return await reward(problem, Trajectory.from_text("p", line))

    with pytest.raises(PrerequisiteError, match="no-engine") as caught:
        asyncio.run(judge())
    assert caught.value.exit_code == 4


def test_the_gelu_is_gpt2s(tmp_path: Path) -> None:
    """Was: the exact GELU. The tanh one differs by up to 5e-4, and logits with it."""
    import torch.nn.functional as F

    from rlvr_torch.models.gpt2 import MLP, GPT2Config

    mlp = MLP(GPT2Config(n_embd=1, n_head=1, n_inner=1))
    with torch.no_grad():
        for name, value in mlp.named_parameters():
            value.fill_(float(name.endswith("weight")))
    x = torch.linspace(-4, 4, 801)[:, None]
    with torch.no_grad():
        found = mlp(x)
    wanted = 0.5 * x * (1 + torch.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
    assert (found - wanted).abs().max() < 1e-6
    assert (found - F.gelu(x)).abs().max() > 1e-4
