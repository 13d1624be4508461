"""vLLM in this process: what is called, in which order, and what is made of its answers.

vLLM is not installed here and there is no GPU: a stand-in notes the calls.
"""

from __future__ import annotations

import asyncio
import importlib.util
import pathlib
import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import pytest
import structlog
import torch
from safetensors.torch import load_file

from rlvr import (
    BackendError,
    ConfigError,
    Datum,
    GenerateRequest,
    PrerequisiteError,
    SamplingParams,
)
from rlvr.testing.fakes import CharTokenizer
from rlvr_torch.config import TorchConfig
from rlvr_torch.generation.inbox import Inbox
from rlvr_torch.generation.vllm import VLLMEngine
from rlvr_torch.generation.vllm_weights import handover_of, vllm_weights
from rlvr_torch.models.hf.file_weights import file_weights
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.models.lora.adapters import attach
from rlvr_torch.runtime.executor import Executor

transformers = pytest.importorskip("transformers")


class Letters(CharTokenizer):
    """Letters; tokens 0 and 1 end a text."""

    eos_id, stop_ids = 0, frozenset({0, 1})

    def decode(self, tokens):
        return "".join(chr(97 + token) for token in tokens)


class FakeModel(torch.nn.Module):
    """Keeps the weights it was given last."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def load_weights(self, weights):
        self.loaded = {name: value.clone() for name, value in weights}


class FakeLLM:
    """Notes what is called; draws the tokens 2, 3, 4, ... of which each has logprob -0.5."""

    refuses_lora = False

    def __init__(self, log, tokens):
        self.log, self.tokens = log, tokens
        self.prompts, self.params, self.adapters, self.running = [], [], [], {}
        self.model = FakeModel()
        runner = SimpleNamespace(get_model=lambda: self.model)
        worker = SimpleNamespace(model_runner=runner, reload_weights=self._load)
        self.llm_engine = SimpleNamespace(
            model_executor=SimpleNamespace(driver_worker=worker),
            add_lora=self._add_lora,
            remove_lora=lambda number: self.log.append(f"remove {number}"),
            add_request=self._add,
            step=self._step,
            abort_request=self._abort,
        )

    def _load(self, weights_iterator):
        self.model.load_weights(weights_iterator)
        self.log.append("load_weights")

    def _add_lora(self, request):
        if self.refuses_lora:
            raise ValueError("expected target modules in ...\nmore")
        folder = pathlib.Path(request.lora_path)
        self.adapter = load_file(folder / "adapter_model.safetensors")
        self.log.append(f"add {request.lora_int_id}")

    def sleep(self, level):
        self.log.append(f"sleep {level}")

    def wake_up(self, tags):
        self.log.append(f"wake {' '.join(tags)}")

    def reset_prefix_cache(self):
        self.log.append("reset_prefix_cache")

    def _add(self, name, prompt, params, lora_request):
        self.adapters.append(lora_request and lora_request.lora_int_id)
        self.prompts.append(prompt)
        self.params.append(params)
        self.running[name] = 0

    def _abort(self, names):
        self.log.append(f"abort {len(names)}")
        for name in names:
            self.running.pop(name, None)

    def _step(self):
        self.log.append("step")
        found = []
        for name, place in list(self.running.items()):
            token = self.tokens[place]
            told = {token: SimpleNamespace(logprob=-0.5, rank=1)}
            output = SimpleNamespace(token_ids=[token], logprobs=[told])
            found.append(SimpleNamespace(request_id=name, outputs=[output]))
            self.running[name] = place + 1
        return found

    def generate(self, prompts, params, use_tqdm, lora_request):
        assert not use_tqdm
        assert not self.running
        (prompt,) = prompts
        ids = prompt["prompt_token_ids"]
        rows = [{i: SimpleNamespace(logprob=-i / 10)} for i in ids]
        return [SimpleNamespace(prompt_logprobs=[None, *rows[1:]])]


@dataclass
class LoRARequest:
    """What vLLM calls an adapter."""

    lora_name: str
    lora_int_id: int
    lora_path: str


@pytest.fixture
def fake(monkeypatch):
    """A module `vllm` whose LLM is kept at hand, and a CUDA that is there."""
    module = ModuleType("vllm")
    state = SimpleNamespace(log=[], tokens=list(range(2, 20)), settings=None, llm=None, error="")
    state.fits = 40

    def build(**settings):
        if settings.get("enable_lora") and state.error:
            raise ValueError(state.error)
        state.settings, state.llm = settings, FakeLLM(state.log, state.tokens)
        engine, asked = state.llm.llm_engine, settings["max_model_len"]
        engine.model_config = SimpleNamespace(max_model_len=state.fits if asked == -1 else asked)
        engine.model_executor.driver_worker.model_runner.lora_manager = manager()
        return state.llm

    module.LLM = build
    module.SamplingParams = SimpleNamespace
    module.__version__ = "0.32.0+cu130"
    module.sampling_params = SimpleNamespace(RequestOutputKind=SimpleNamespace(DELTA="delta"))
    module.TokensPrompt = dict
    monkeypatch.setitem(sys.modules, "vllm", module)
    state.is_cpu, state.missed = False, set()
    reload = "vllm.model_executor.model_loader.reload"
    info = SimpleNamespace(can_load=lambda: True, load_numel=0)
    done = SimpleNamespace(can_load=lambda: False)
    parts = {
        "vllm.platforms": {"current_platform": SimpleNamespace(is_cpu=lambda: state.is_cpu)},
        "vllm.lora.request": {"LoRARequest": LoRARequest},
        "vllm.lora.utils": {"parse_fine_tuned_lora_name": lambda name, _: (name[17:-14], None)},
        f"{reload}.meta": {"SKIP_TENSORS": {"bias"}, "SKIP_LOAD_TENSORS": set()},
        f"{reload}.layerwise": {
            "get_layerwise_info": lambda layer: info if type(layer) in state.missed else done
        },
    }
    for name, members in parts.items():
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        vars(sys.modules[name]).update(members)
    if importlib.util.find_spec("peft"):  # bitsandbytes, which it imports, would believe it too
        importlib.import_module("peft")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: state.log.append("empty_cache"))
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    return state


def manager():
    """What vLLM makes of an adapter: of q, k and v, which it packs, it holds q alone."""
    weights = SimpleNamespace(lora_a=["a", None, None])
    at = "model.layers.0.self_attn."
    inner = SimpleNamespace(
        model=SimpleNamespace(),
        modules=[f"{at}qkv_proj", "model.layers.0.mlp.down_proj"],
        packed_modules={f"{at}qkv_proj": [f"{at}{name}_proj" for name in "qkv"]},
        get_adapter=lambda _number: SimpleNamespace(get_lora={f"{at}qkv_proj": weights}.get),
    )
    return SimpleNamespace(_adapter_manager=inner)


def tiny():
    """A Llama of a few thousand weights."""
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=40,
        )
    )


def net_of(model, adapted=None):
    from rlvr_torch.models.hf.net import HFNet

    return HFNet(model, adapted)


def request(length=3, **params):
    return GenerateRequest(
        prompt=range(2, 2 + length), params=SamplingParams(**{"max_tokens": 5, **params}), seed=9
    )


def test_it_sleeps_while_training_and_wakes_with_new_weights(fake):
    """Weights wake, then new ones are loaded, then the cache wakes; equal ones are not loaded."""
    version = [0]
    engine = VLLMEngine(
        net_of(tiny()), Letters(), model="DIR", read_version=lambda: version[0], memory=0.4
    )
    assert fake.settings["model"] == "DIR"
    assert fake.settings["enable_sleep_mode"] is True
    assert fake.settings["gpu_memory_utilization"] == 0.4
    assert fake.settings["dtype"] == "bfloat16"
    engine.generate([request(max_tokens=1)])
    assert fake.log == ["step", "abort 1"]  # awake, with the start weights
    fake.log.clear()
    engine.sleep()
    engine.sleep()
    version[0] = 1
    engine.generate([request(max_tokens=1)])
    engine.generate([request(max_tokens=1)])
    assert fake.log == [
        "sleep 2",
        "empty_cache",
        "wake weights",
        "load_weights",
        "wake kv_cache",
        "reset_prefix_cache",
        "step",
        "abort 1",
        "step",
        "abort 1",
    ]


def test_the_trained_weights_are_handed_over(fake):
    """Names and values are those of the model's own parameters."""
    net = net_of(tiny())
    version = [0]
    engine = VLLMEngine(net, Letters(), model="DIR", read_version=lambda: version[0])
    with torch.no_grad():
        for value in net.model.parameters():
            value += 1
    version[0] = 1
    engine.generate([request()])
    wanted = dict(net.model.named_parameters())
    assert fake.llm.model.loaded.keys() == wanted.keys()
    assert all(torch.equal(fake.llm.model.loaded[name], wanted[name]) for name in wanted)


def adapted_net(**settings):
    """A Llama with adapters that change what it computes."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    model = tiny()
    given = {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "init_lora_weights": False}
    config = peft.LoraConfig(**{**given, **settings})
    return net_of(model, peft.get_peft_model(model, config))


def test_an_adapter_is_handed_over_by_itself(fake):
    """Each version has a number, and older ones go; the base sleeps on the host, and stays."""
    net, version = adapted_net(), [0]
    engine = VLLMEngine(net, Letters(), model="DIR", read_version=lambda: version[0])
    wanted = {"enable_lora": True, "max_loras": 1, "max_lora_rank": 8}
    assert {name: fake.settings[name] for name in wanted} == wanted
    engine.generate([request(max_tokens=1)])
    engine.sleep()
    engine.generate([request(max_tokens=1)])  # the same weights: nothing is given
    with torch.no_grad():
        net.model.model.layers[0].self_attn.q_proj.lora_B["default"].weight += 1
    version[0] = 1
    engine.generate([request(max_tokens=1)])
    told = [line for line in fake.log if line.startswith(("add", "remove", "sleep", "load"))]
    assert told == ["add 1", "sleep 1", "remove 1", "add 2"]
    assert fake.llm.adapters == [1, 1, 2]
    (name,) = (name for name in fake.llm.adapter if "lora_B" in name)
    assert name == "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"
    layer = net.model.model.layers[0].self_attn.q_proj
    assert torch.equal(fake.llm.adapter[name], layer.lora_B["default"].weight)


@pytest.mark.parametrize(
    ("settings", "error", "refuses", "reason"),
    [
        ({"use_dora": True}, "", False, "no DoRA"),
        ({"r": 513}, "", False, "end at 512, and this one is 513"),
        ({"rank_pattern": {"q_proj": 600}}, "", False, "this one is 600"),
        ({}, "FakeLM does not support LoRA yet.", False, "FakeLM does not support"),
        ({}, "", True, "expected target modules in ..."),
        (
            {"target_modules": ["q_proj", "k_proj"]},
            "",
            False,
            "leaves out model.layers.0.self_attn.k_proj",
        ),
        (
            {"target_modules": ["q_proj", "o_proj"]},
            "",
            False,
            "leaves out model.layers.0.self_attn",
        ),
    ],
)
def test_adapters_that_vllm_does_not_take_are_merged(fake, settings, error, refuses, reason):
    """All weights, under the base's names; it is said why, and training keeps base and adapter."""
    net = adapted_net(**settings)
    layer = net.model.model.layers[0].self_attn.q_proj
    before = layer.base_layer.weight.clone()
    fake.error = error
    with structlog.testing.capture_logs() as logs:
        engine = VLLMEngine(net, Letters(), model="DIR", read_version=lambda: 0)
        fake.llm.refuses_lora = refuses
        engine.generate([request()])
        engine.sleep()
        engine.generate([request()])
    assert [reason in line["found"] for line in logs] == [True]
    assert fake.llm.adapters == [None, None]
    assert fake.log.count("load_weights") == 2
    assert "sleep 2" in fake.log
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not any("lora" in name or "base_layer" in name for name in fake.llm.model.loaded)
    wanted = before + layer.get_delta_weight("default")
    if not settings.get("use_dora"):
        assert torch.allclose(fake.llm.model.loaded[name], wanted, atol=1e-6)
        assert not torch.equal(fake.llm.model.loaded[name], before)
    assert torch.equal(layer.base_layer.weight, before), "the base has drifted"


def test_a_full_card_is_no_refusal_of_an_adapter(fake):
    """The error of vLLM stays what it is; nothing is merged."""
    fake.error = "No available memory for the cache blocks"
    with structlog.testing.capture_logs() as logs, pytest.raises(ValueError, match="No available"):
        VLLMEngine(adapted_net(), Letters(), model="DIR", read_version=lambda: 0)
    assert logs == []


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
@pytest.mark.parametrize(
    ("targets", "is_cpu", "level"), [("q_proj", False, 1), ("q_proj", True, 2), ("", False, 0)]
)
def test_adapters_of_a_mixture(fake, make_hf, targets, is_cpu, level):
    """On attention they go by themselves, where vLLM has kernels; on experts they are refused."""
    pytest.importorskip("peft", reason="peft is not installed")
    net, fake.is_cpu = load_net(str(make_hf("mixtral"))), is_cpu
    attach(net, TorchConfig(lora_rank=2, lora_targets=targets or "all-linear"), 0)
    if level:
        assert handover_of(net).sleep_level == level
    else:
        with pytest.raises(ConfigError, match=r"experts[\s\S]*adapt attention alone"):
            handover_of(net)


def test_weights_that_do_not_arrive_end_the_run(fake):
    """A model of vLLM's that writes past its loaders loses them there without a word."""
    version = [0]
    engine = VLLMEngine(net_of(tiny()), Letters(), model="DIR", read_version=lambda: version[0])
    fake.missed, version[0] = {torch.nn.Linear}, 1
    with pytest.raises(BackendError, match=r"did not arrive\n  found: none for layer.weight\n"):
        engine.generate([request()])


def test_experts_of_gpt_oss_come_one_by_one(make_hf):
    """In the one of the forms that vLLM reads through its loaders; all else as in the file."""
    net = load_net(str(make_hf("gpt_oss")))
    whole, found = dict(file_weights(net)), dict(vllm_weights(net))
    for part in ("gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias"):
        values = whole.pop(f"model.layers.1.mlp.experts.{part}")
        for expert in range(4):
            assert torch.equal(
                found.pop(f"model.layers.1.mlp.experts.{expert}.{part}"), values[expert]
            )
    rest = {name for name in whole if ".experts." not in name}
    assert {name for name in found if ".experts." not in name} == rest
    other = load_net(str(make_hf("mixtral")))
    assert dict(vllm_weights(other)).keys() == dict(file_weights(other)).keys()


def test_on_a_cpu_it_never_sleeps_and_experts_are_packed_anew(fake, monkeypatch):
    """A vLLM built for the CPU packs experts where it makes their kernel: it makes a new one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    fake.is_cpu, version = True, [0]
    engine = VLLMEngine(net_of(tiny()), Letters(), model="DIR", read_version=lambda: version[0])
    assert fake.settings["enable_sleep_mode"] is False
    method = SimpleNamespace(moe_kernel="packs", process_weights_after_loading=fake.log.append)
    tied = torch.nn.Linear(2, 2)
    tied.weight, tied.quant_method = fake.llm.model.layer.weight, method
    fake.llm.model.head = tied
    engine.sleep()
    version[0] = 1
    engine.generate([request(max_tokens=1)])
    assert fake.log == ["load_weights", tied, "reset_prefix_cache", "step", "abort 1"]
    assert method.moe_kernel is None


def test_requests_and_answers_are_translated(fake):
    """Prompts are token ids; a completion keeps its stop token, and its text does not."""
    engine = VLLMEngine(net_of(tiny()), Letters(), model="DIR", read_version=lambda: 0)
    fake.tokens[:] = [5, 6, 1, 7]
    done, stopped, full = engine.generate(
        [request(), request(stop=("g",), top_k=3, temperature=0.7), request(length=40)]
    )
    assert (done.tokens.tolist(), done.text, done.finish) == ([5, 6, 1], "fg", "stop")
    assert done.logprobs.tolist() == [-0.5] * 3
    assert (stopped.tokens.tolist(), stopped.text, stopped.finish) == ([5, 6], "f", "stop")
    assert (len(full.tokens), full.finish) == (0, "length")
    assert [p["prompt_token_ids"] for p in fake.llm.prompts] == [[2, 3, 4], [2, 3, 4]]
    first, second = fake.llm.params
    assert (first.max_tokens, first.top_k, first.logprobs) == (5, -1, 0)
    assert first.stop_token_ids == [0, 1]
    assert not hasattr(first, "seed"), "a request's own seed is drawn from row by row"
    assert torch.initial_seed() == 9, "it is that of all draws"
    assert (second.top_k, second.temperature) == (3, 0.7)


def test_completions_go_on_while_weights_change(fake):
    """Sleeping ends vLLM's requests; what was drawn is read again, and the versions are named."""
    version = [0]
    engine = VLLMEngine(net_of(tiny()), Letters(), model="DIR", read_version=lambda: version[0])
    batch, sequence = engine.start(), engine.sequence(request(max_tokens=5))
    batch.add([sequence])
    with batch.at_work(0):
        batch.step(0)
        batch.step(0)
    engine.sleep()
    assert not fake.llm.running
    version[0] = 1
    with batch.at_work(1):
        while not batch.is_done:
            batch.step(1)
    assert fake.llm.prompts[1]["prompt_token_ids"] == [2, 3, 4, 2, 3]
    assert fake.llm.params[1].max_tokens == 3
    assert sequence.completion.versions == (0, 1)
    assert len(sequence.completion.tokens) == 5


def test_a_sequence_that_nobody_waits_for_is_cut(fake):
    """Dropped between two tokens; the others go on."""
    engine = VLLMEngine(net_of(tiny()), Letters(), model="DIR", read_version=lambda: 0)
    batch, one, two = engine.start(), engine.sequence(request()), engine.sequence(request())
    batch.add([one, two])
    batch.step(0)
    batch.drop(one)
    assert len(fake.llm.running) == 1
    while not batch.is_done:
        batch.step(0)
    assert (len(one.completion.tokens), len(two.completion.tokens)) == (1, 5)


def test_given_tokens_are_scored(fake):
    """The check of weight syncs asks vLLM what it makes of tokens that it did not draw."""
    engine = VLLMEngine(net_of(tiny()), Letters(), model="DIR", read_version=lambda: 0)
    mask = [False, True, True]
    zeros = [0.0] * 3
    datum = Datum(tokens=[4, 5, 6], mask=mask, logprobs=zeros, advantages=zeros, weights=zeros)
    batch, sequence = engine.start(), engine.sequence(request())
    batch.add([sequence])
    batch.step(0)
    (found,) = engine.score([datum], 0)
    assert found.tolist() == pytest.approx([0, -0.5, -0.6])
    while not batch.is_done:
        batch.step(0)
    assert sequence.completion.tokens.tolist() == [2, 2, 3, 4, 5]  # read again, then drawn on


@pytest.mark.parametrize(
    ("asked", "told", "fits", "length"), [(0, -1, 9, 9), (0, -1, 90, 40), (30, 30, 9, 30)]
)
def test_the_context_is_what_fits(fake, asked, told, fits, length):
    """Nothing is guessed or reserved: vLLM finds out what it holds, up to the model's 40 tokens."""
    fake.fits = fits
    net = net_of(tiny())
    engine = VLLMEngine(net, Letters(), model="DIR", read_version=lambda: 0, tokens=asked)
    assert (fake.settings["max_model_len"], engine.context_length) == (told, length)


def test_a_context_that_was_cut_bounds_completions(fake):
    """`torch.vllm_tokens`: vLLM is told, and policies see it as the length of the context."""
    engine = VLLMEngine(net_of(tiny()), Letters(), model="DIR", read_version=lambda: 0, tokens=6)
    assert (fake.settings["max_model_len"], engine.context_length) == (6, 6)
    (one,) = engine.generate([request()])
    assert (len(one.tokens), one.finish) == (3, "length")


@pytest.mark.parametrize("version", ["0.29.1", "0.34.0", "1.0", ""])
def test_another_version_is_refused(fake, version):
    """Exit 4 names the range and what is there, before a model is loaded."""
    sys.modules["vllm"].__version__ = version
    with pytest.raises(PrerequisiteError, match=r"vLLM 0\.30[\s\S]*vllm>=0\.30,<0\.34"):
        VLLMEngine(net_of(tiny()), Letters(), model="DIR", read_version=lambda: 0)


def test_a_completion_without_a_stop_is_cut_by_length(fake):
    """As many tokens as there is room for, which the model's positions bound."""
    engine = VLLMEngine(net_of(tiny()), Letters(), model="DIR", read_version=lambda: 0)
    one, two = engine.generate([request(max_tokens=4), request(length=37, max_tokens=10)])
    assert (one.tokens.tolist(), one.finish) == ([2, 3, 4, 5], "length")
    assert (len(two.tokens), two.finish) == (3, "length")


def test_cancelling_and_empty_prompts(fake):
    """Cancelling is asked before each token, and ends vLLM's requests."""
    engine = VLLMEngine(net_of(tiny()), Letters(), model="DIR", read_version=lambda: 0)
    asked = []
    with pytest.raises(BackendError, match="cancelled"):
        engine.generate([request()], lambda: asked.append(1) or len(asked) > 2)
    assert fake.log == ["step", "step", "abort 1"]
    with pytest.raises(BackendError, match="empty prompt"):
        engine.generate([request(length=0)])


def test_calls_that_wait_are_one_batch(fake):
    """Three coroutines in one tick are drawn together; a fault fails its own call."""
    engine = VLLMEngine(net_of(tiny()), Letters(), model="DIR", read_version=lambda: 0)
    executor = Executor()
    inbox = Inbox(engine, executor, lambda: 7, 1)

    async def main():
        calls = [inbox.generate(request(length)) for length in (3, 0, 2, 4)]
        return await asyncio.gather(*calls, return_exceptions=True)

    one, empty, *others = asyncio.run(main())
    executor.close()
    assert isinstance(empty, BackendError)
    assert [c.versions for c in (one, *others)] == [(7,)] * 3
    assert fake.log.count("step") == 5
    assert len(fake.llm.prompts) == 3


def test_only_hf_models(fake, model):
    """Our GPT-2 is refused, with what to do."""
    with pytest.raises(ConfigError, match=r"hf: model[\s\S]*torch.engine=own"):
        VLLMEngine(model, Letters(), model="DIR", read_version=lambda: 0)


def test_without_vllm_or_cuda_it_says_what_to_install(monkeypatch, fake):
    """Each missing piece is named before anything is loaded."""
    net = net_of(tiny())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(PrerequisiteError, match="needs a CUDA GPU"):
        VLLMEngine(net, Letters(), model="DIR", read_version=lambda: 0)
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(PrerequisiteError, match="pip install 'vllm>="):
        VLLMEngine(net, Letters(), model="DIR", read_version=lambda: 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.parametrize("family", ["llama", "mixtral"])
def test_on_a_gpu_the_sampler_is_the_trainer(make_hf, tmp_path, family):
    """Real vLLM, asleep and awake around an update: logprobs of what it draws are the trainer's."""
    from rlvr import BuildContext
    from rlvr.testing.backend import LikelihoodLoss
    from rlvr_torch.backend import TorchBackend
    from rlvr_torch.config import TorchConfig
    from rlvr_torch.training.optimizer import OptimSettings

    shape = transformers.AutoConfig.from_pretrained(make_hf(family))
    shape.hidden_size, shape.head_dim, shape.intermediate_size = 256, 64, 256  # kernels want these
    transformers.AutoModelForCausalLM.from_config(shape).save_pretrained(tmp_path)
    for file in make_hf(family).glob("token*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = TorchConfig(device="cuda", engine="vllm", vllm_memory=0.1)
    train = OptimSettings(lr=1e-2)
    context = BuildContext(model=f"hf:{tmp_path}", train=train, seed=3)

    async def main():
        gaps = []
        async with TorchBackend(config, context) as backend:
            for _ in range(3):
                policy = await backend.policy()
                done = await policy.generate_many([request(12, max_tokens=8)] * 4)
                data = []
                for one in done:
                    mask = [False] * 12 + [True] * len(one.tokens)
                    told = [0.0] * 12 + one.logprobs.tolist()
                    data.append(
                        Datum(
                            tokens=[*range(2, 14), *one.tokens],
                            mask=mask,
                            logprobs=told,
                            advantages=[1.0 * m for m in mask],
                            weights=[0.1 * m for m in mask],
                        )
                    )
                trained = await backend.logprobs(data, "policy")
                pairs = zip(data, trained, strict=True)
                gaps += [float(abs(t - d.logprobs)[d.mask].max()) for d, t in pairs]
                await backend.update(data, LikelihoodLoss())
        return gaps

    assert max(asyncio.run(main())) < 0.2
