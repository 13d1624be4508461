"""The memory plan: by hand, beside what real nets hold, and what it chooses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve

from rlvr import BuildContext, Datum, GenerateRequest, SamplingParams
from rlvr.testing.fakes import CharTokenizer
from rlvr_torch import memory_table
from rlvr_torch.config import TorchConfig
from rlvr_torch.generation.captured.engine import CapturedEngine
from rlvr_torch.memory_plan import (
    CONTEXT,
    GIB,
    Settings,
    activations,
    fit,
    layer_bytes,
    plan_memory,
    usable,
)
from rlvr_torch.memory_table import MODELS, main, shape_of
from rlvr_torch.models.gpt2 import GPT2, GPT2Config
from rlvr_torch.models.interface import Net
from rlvr_torch.models.shape import Shape
from rlvr_torch.models.source import ModelSource
from rlvr_torch.models.weight_storage import CopiedWeights, store_lower
from rlvr_torch.training.logprobs import trunk
from rlvr_torch.training.optimizer import OptimSettings, build_adamw

V = 97
GROUP, PROMPT, COMPLETION = 4, 96, 96


def small(layers: int = 2) -> GPT2:
    return GPT2.new(GPT2Config(vocab_size=V, n_positions=256, n_embd=64, n_layer=layers, n_head=4))


def llama(kind: str = "qwen3", lora: int = 0, dtype: str = "float32", layers: int = 2) -> Any:
    transformers = pytest.importorskip("transformers")
    from rlvr_torch.models.hf.net import HFNet
    from rlvr_torch.models.lora.adapters import attach

    names = {"qwen3": transformers.Qwen3Config, "llama": transformers.LlamaConfig}
    config = names[kind](
        vocab_size=V, hidden_size=64, intermediate_size=160, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=256,
        tie_word_embeddings=kind == "qwen3",
    )  # fmt: skip
    net = HFNet(transformers.AutoModelForCausalLM.from_config(config))
    if lora:
        pytest.importorskip("peft")
        net.model.to(getattr(torch, dtype))
        attach(net, TorchConfig(lora_rank=lora, dtype=dtype))
    return net


def group_of_data(prompt: int = PROMPT, completion: int = COMPLETION) -> list[Datum]:
    """Completions of one prompt, as a step has them."""
    random = np.random.default_rng(0)
    data = []
    for _ in range(GROUP):
        tokens = random.integers(0, V, prompt + completion)
        tokens[:prompt] = np.arange(prompt) % V
        zeros = np.zeros(len(tokens), np.float32)
        data.append(
            Datum(
                tokens=tokens,
                mask=np.arange(len(tokens)) >= prompt,
                logprobs=zeros,
                advantages=zeros,
                weights=zeros,
            )
        )
    return data


def kept(net: Net, dtype: torch.dtype, data: list[Datum] | None = None) -> int:
    """Bytes that autograd keeps of a micro-batch, weights and their copies not counted."""
    shapes = {tuple(p.shape) for p in net.module.parameters()}
    shapes |= {shape[::-1] for shape in shapes}
    own = {value.untyped_storage().data_ptr() for value in net.module.parameters()}
    found: dict[int, torch.Tensor] = {}

    def pack(value: torch.Tensor) -> torch.Tensor:
        place = value.untyped_storage().data_ptr()
        if place not in own and tuple(value.shape) not in shapes:
            found[place] = value
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        trunk(net, data or group_of_data(), dtype)
    return sum(value.untyped_storage().nbytes() for value in found.values())


def settings(**changes: Any) -> Settings:
    tokens = PROMPT + GROUP * (COMPLETION - 1)
    shared = {"prompt": PROMPT, "completion": COMPLETION, "group": GROUP}
    # the plain attention of the CPU copies prompts
    return evolve(Settings(microbatch_tokens=tokens, copies_prompts=True, **shared), **changes)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("kind", "lora"), [("gpt2", 0), ("qwen3", 0), ("llama", 0), ("qwen3", 8), ("llama", 8)]
)
def test_activations_are_what_autograd_keeps(kind: str, lora: int, dtype: str) -> None:
    """Of a group that shares its prompt: within 8 % of the tensors that a real net keeps."""
    net: Net = small() if kind == "gpt2" else llama(kind, lora, dtype)
    config = net.module.config
    planned = activations(Shape.of(config), settings(dtype=dtype, lora_rank=lora))

    assert planned == pytest.approx(kept(net, getattr(torch, dtype)), rel=0.08)


@pytest.mark.one_of(8, "olmo_hybrid-8-float32")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lora", [0, 8])
@pytest.mark.parametrize("family", ["qwen3_5_text", "olmo_hybrid"])
def test_activations_of_layers_with_states(
    make_hf: Any, tmp_path: Path, family: str, lora: int, dtype: str
) -> None:
    """Counted on a net without numbers, of each layer as it is: within 8 % of a real one."""
    config = TorchConfig(lora_rank=lora, dtype=dtype)
    transformers = pytest.importorskip("transformers")
    shape = transformers.AutoConfig.from_pretrained(make_hf(family))
    shape.max_position_embeddings = 512
    transformers.AutoModelForCausalLM.from_config(shape).save_pretrained(tmp_path)
    model = f"hf:{tmp_path}"
    net = ModelSource.parse(model, 0, config).net(0)
    lengths = {"prompt": 128, "completion": 129}  # such layers read 64 tokens at a time
    tokens = 128 + GROUP * 128
    planned = settings(dtype=dtype, lora_rank=lora, microbatch_tokens=tokens, **lengths)
    found = kept(net, getattr(torch, dtype), group_of_data(**lengths))

    assert activations(shape_of(model, config), planned) == pytest.approx(found, rel=0.08)


@pytest.mark.parametrize("kind", ["gpt2", "qwen3", "llama"])
def test_weights_gradients_and_moments_are_those_of_a_real_net(kind: str) -> None:
    """Full training in float32: to the byte."""
    net: Net = small() if kind == "gpt2" else llama(kind)
    optimizer = build_adamw(net.module, OptimSettings(), (0.9, 0.95))
    for value in net.module.parameters():
        value.grad = torch.zeros_like(value)
    optimizer.step()
    values = list(net.module.parameters())
    moments = [s[k] for s in optimizer.state.values() for k in ("exp_avg", "exp_avg_sq")]
    plan = plan_memory(Shape.of(net.module.config), settings(dtype="float32"), 8 * GIB)

    assert plan.steady["weights"] == sum(v.nbytes for v in values)
    assert plan.training["gradients"] == sum(v.grad.nbytes for v in values)
    assert plan.steady["optimiser"] == sum(m.nbytes for m in moments)


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_adapters_are_those_of_a_real_net(kind: str) -> None:
    """LoRA: base weights in bfloat16, adapters in float32, and only their gradients."""
    net = llama(kind, lora=8, dtype="bfloat16")
    trained = [v for v in net.module.parameters() if v.requires_grad]
    frozen = [v for v in net.module.parameters() if not v.requires_grad]
    shape = Shape.of(net.module.config)
    plan = plan_memory(shape, settings(lora_rank=8), 8 * GIB)

    assert plan.steady["adapters"] == 4 * sum(v.numel() for v in trained)
    assert plan.training["gradients"] == 4 * sum(v.numel() for v in trained)
    assert plan.steady["weights"] == sum(v.nbytes for v in frozen)


@pytest.mark.parametrize("lora", [0, 8])
def test_copies_are_those_of_a_real_net(lora: int) -> None:
    """Of all layers in full training, of the adapters under LoRA; autocast's, in training alone."""
    net = llama("qwen3", lora, "bfloat16" if lora else "float32")
    copies = CopiedWeights(net, torch.bfloat16).copies.values()
    shape, chosen = Shape.of(net.module.config), settings(lora_rank=lora)
    plan = plan_memory(shape, chosen, 8 * GIB)
    cast = plan_memory(shape, evolve(chosen, weight_copies=False), 8 * GIB)

    assert plan.steady["bfloat16 copies"] == sum(copy.nbytes for copy in copies)
    assert cast.training["bfloat16 copies"] == plan.steady["bfloat16 copies"]
    assert "bfloat16 copies" not in {*plan.training, *cast.steady}


def test_a_reference_is_what_is_kept_of_it() -> None:
    """Its layers in bfloat16, the rest in float32."""
    net = small()
    plan = plan_memory(Shape.of(net.config), settings(has_reference=True), 8 * GIB)
    store_lower(net, torch.bfloat16)
    biases = sum(v.nbytes for v in net.parameters() if v.dim() == 1 and v.dtype == torch.bfloat16)

    # the plan counts biases of layers in float32
    assert plan.steady["reference"] - biases == sum(v.nbytes for v in net.parameters())


def test_hand_worked_numbers() -> None:
    """GPT-2 of two layers, width 64, 97 tokens: each part from its definition."""
    shape = Shape.of(small().config)
    chosen = Settings(dtype="bfloat16", microbatch_tokens=1000, logprob_chunk=100, decode_rows=8,
                      prompt=16, completion=24, group=4, copies_prompts=False)  # fmt: skip
    plan = plan_memory(shape, chosen, 8 * GIB)

    blocks = 2 * 12 * 64 * 64
    weights = blocks + 97 * 64 + 256 * 64 + 2 * (4 * 64 + 9 * 64) + 2 * 64
    assert shape.linear == blocks
    assert shape.weights == weights == sum(p.numel() for p in small().parameters())
    assert plan.steady == {
        "weights": 4 * weights, "bfloat16 copies": 2 * blocks, "optimiser": 8 * weights,
    }  # fmt: skip
    # two norms' inputs in float32; 2 + 5 widths and twice the MLP's 4 in bfloat16
    assert layer_bytes(shape, chosen) == 2 * 64 * 4 + (7 * 64 + 2 * 256) * 2
    assert plan.training["activations"] == 2 * 1000 * layer_bytes(shape, chosen)
    # logits in float32 and their gradient in bfloat16; the head's, and its copy in bfloat16
    assert plan.training["logits and head"] == 100 * 97 * 6 + 97 * 64 * 6
    assert plan.sampling["sampled logits"] == 2 * 8 * 97 * 4 + 97 * 64 * 2
    frozen = plan_memory(shape, evolve(chosen, lora_rank=4), 8 * GIB)
    assert frozen.training["logits and head"] == 100 * 97 * 6
    # keys and values of 2 prompts of 16, of 8 pages of 64 for 8 rows and two more, in bfloat16
    assert plan.sampling["KV cache"] == 2 * 2 * 64 * 2 * (2 * 16 + 10 * 64)
    # 10 pages were 6, of one layer's keys
    assert plan.sampling["growing KV cache"] == 64 * 2 * 6 * 64
    # pages (9 rows of 2) and the slots of prompts are rounded up to powers of two
    uneven = plan_memory(shape, evolve(chosen, decode_rows=9, prompt=33, completion=65), 8 * GIB)
    assert uneven.sampling["KV cache"] == 2 * 2 * 64 * 2 * (3 * 64 + 34 * 64)
    assert uneven.sampling["sampled logits"] == 2 * 16 * 97 * 4 + 97 * 64 * 2
    kept_by_layer = 1000 * 2 * 64 * 4 + 1000 * layer_bytes(shape, chosen)
    assert activations(shape, evolve(chosen, checkpointing="layers")) == kept_by_layer
    assert usable(10 * GIB) == int(10 * GIB * 0.94) - CONTEXT
    assert plan.peak == sum(plan.steady.values()) + sum(plan.training.values())


@pytest.mark.parametrize(("rows", "completion"), [(8, 24), (6, 66)])
def test_the_kv_cache_is_an_engines(rows: int, completion: int) -> None:
    """Once all its rows have grown to their full length."""
    net, chosen = small(layers=1), settings(dtype="float32", decode_rows=rows, group=rows // 2)
    chosen = evolve(chosen, prompt=64, completion=completion)
    engine = CapturedEngine(net, CharTokenizer(), rows=rows, ends=frozenset())
    params = SamplingParams(max_tokens=completion)
    prompts = [np.full(64, 1 + seed % 2) for seed in range(rows)]
    engine.generate([GenerateRequest(prompt=p, params=params, seed=0) for p in prompts])
    assert engine._memory is not None
    plan = plan_memory(Shape.of(net.config), chosen, 8 * GIB)
    assert plan.sampling["KV cache"] == engine._memory.cache.size


def test_a_small_cache_is_there_in_training_too() -> None:
    """A card's engine keeps it up to half of what is free beside it; states it never keeps."""
    shape, chosen = Shape.of(small().config), settings(dtype="float32")
    plan = plan_memory(shape, chosen, 8 * GIB)
    cache = plan.sampling["KV cache"]
    least = math.ceil((sum(plan.steady.values()) + 3 * cache + CONTEXT) / 0.94)

    assert plan.training["kept KV cache"] == cache
    assert "kept KV cache" in plan_memory(shape, chosen, least + 2).training
    assert "kept KV cache" not in plan_memory(shape, chosen, least - 2).training
    assert "kept KV cache" not in plan_memory(evolve(shape, stateful=1), chosen, 8 * GIB).training


def test_what_does_not_fit_is_changed_in_order_of_cost() -> None:
    """Smaller batches first, then checkpointing, adapters, checkpointing of them, 4 bits."""
    shape = Shape(name="", layers=28, width=2048, heads=16, key_heads=8, head_width=128,
                  inner=6144, vocabulary=151936, has_head_norms=True)  # fmt: skip
    plans = [fit(shape, Settings(), int(gib * GIB)) for gib in (160, 48, 40, 32, 24, 12, 6, 3)]
    costs = [len(plan.tried) for plan in plans]

    assert costs == sorted(costs)
    assert costs[0] == 0
    assert all(plan.fits for plan in plans[:-1])
    assert not plans[-1].fits
    assert plans[-1].settings.quantize == "4bit"
    for plan in plans:
        assert plan.settings.microbatch_tokens >= plan.settings.longest
        assert plan.settings.decode_rows >= plan.settings.group


def test_what_a_person_gave_stays() -> None:
    """A fixed setting is in no plan changed, even where nothing fits then."""
    shape = Shape.of(small().config)
    given = Settings(microbatch_tokens=4096, decode_rows=64)
    names = frozenset({"lora_rank", "microbatch_tokens", "decode_rows", "checkpointing"})
    plan = fit(shape, given, CONTEXT, fixed=names)

    assert not plan.fits
    for name in names:
        assert getattr(plan.settings, name) == getattr(given, name)


@pytest.mark.parametrize("shape", MODELS[1:], ids=lambda shape: shape.name)
def test_the_public_configurations_have_the_weights_of_transformers(shape: Shape) -> None:
    """As numbers written here, and as transformers builds them: equally many weights."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen3Config(
        vocab_size=shape.vocabulary, hidden_size=shape.width, intermediate_size=shape.inner,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads, head_dim=shape.head_width,
        tie_word_embeddings=shape.is_tied,
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)

    assert shape.weights == sum(value.numel() for value in model.parameters())
    assert Shape.of(config, shape.name) == shape


def test_the_page_holds_the_table_that_the_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """docs/gpu.md is what `rlvr torch memory --table` prints."""
    assert main(["--table"]) == 0
    page = Path(__file__).parents[3] / "docs" / "gpu.md"

    assert capsys.readouterr().out in page.read_text(encoding="utf-8")


def test_the_command_tells_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0 where it fits; 4 where it does not, with what to try."""
    model = "gpt2:new?layers=12&heads=12&width=768&positions=1024"
    assert main(["--model", model, "--gib", "24"]) == 0
    assert "fits" in capsys.readouterr().out
    assert main(["--model", model, "--gib", "1", "--lora-rank", "0"]) == 4
    assert "DOES NOT FIT" in (text := capsys.readouterr().out)
    assert "try: " in text


def test_the_plan_is_printed_before_a_run_on_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part by name, of the options as they stand; nothing on a CPU."""
    monkeypatch.setattr(memory_table, "memory_of", lambda device: 24 * GIB)
    sampling = SamplingParams(max_tokens=100, group_size=4)
    context = BuildContext(model="gpt2:new?layers=2&heads=2&width=64", sampling=sampling)
    config = TorchConfig(microbatch_tokens=3000, decode_rows=16)
    memory_table.say_plan(context, config, torch.device("cuda"))
    text = capsys.readouterr().err

    for part in ("weights", "optimiser", "gradients", "activations", "KV cache", "fits"):
        assert part in text
    assert "torch.microbatch_tokens=3000 torch.decode_rows=16" in text
    memory_table.say_plan(context, config, torch.device("cpu"))
    assert capsys.readouterr().err == ""
    for wants in (False, True):
        plan = memory_table.planned(
            context.model, config, GIB, completion=9, group=1, has_reference=wants
        )
        assert ("reference" in plan.steady) == wants


def test_states_of_linear_attention():
    """The plan counts what the engine holds of rows and prompts; such layers have no keys."""
    transformers = pytest.importorskip("transformers")
    from rlvr.testing.fakes import CharTokenizer
    from rlvr_torch.generation.engine import Engine
    from rlvr_torch.models.hf.net import HFNet

    config = transformers.AutoConfig.for_model(
        "qwen3_5_text", vocab_size=V, hidden_size=64, intermediate_size=160, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=256,
        linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=8,
        linear_value_head_dim=12, eos_token_id=0, pad_token_id=None,
    )  # fmt: skip
    shape = Shape.of(config)
    assert (shape.stateful, shape.state) == (3, 3 * ((2 * 2 * 8 + 4 * 12) * 4 + 4 * 8 * 12))
    torch.manual_seed(1)  # a completion that ends would leave its row
    net = HFNet(transformers.AutoModelForCausalLM.from_config(config))
    engine = Engine(net, CharTokenizer())
    request = GenerateRequest(prompt=np.arange(9), params=SamplingParams(max_tokens=9), seed=0)
    batch = engine.start()
    batch.add([engine.sequence(request)])
    with batch.at_work():
        for _ in range(2):
            batch.step()
    states = batch._cache.states
    held = [*states._rows.values(), *states._prompts[0].values()]
    settings = Settings(decode_rows=2, group=2, prompt=9, completion=9)
    plan = plan_memory(shape, settings, GIB)
    assert sum(v.nbytes for state in held for v in state.values()) == plan.sampling["states"]
    dense = plan_memory(evolve(shape, stateful=0, state=0), settings, GIB)
    assert plan.sampling["KV cache"] * 4 == dense.sampling["KV cache"]
    assert "states" not in dense.sampling
