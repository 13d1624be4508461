"""vLLM in this process: what is called, in which order, and what is made of its answers.

vLLM is not installed here and there is no GPU: a stand-in notes the calls.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from rlvr import (
    BackendError,
    ConfigError,
    Datum,
    GenerateRequest,
    PrerequisiteError,
    SamplingParams,
)
from rlvr.testing.fakes import CharTokenizer
from rlvr_torch.generation.inbox import Inbox
from rlvr_torch.generation.vllm import VLLMEngine, room_for
from rlvr_torch.runtime.executor import Executor

transformers = pytest.importorskip("transformers")


class Letters(CharTokenizer):
    """Letters; tokens 0 and 1 end a text."""

    eos_id, stop_ids = 0, frozenset({0, 1})

    def decode(self, tokens):
        return "".join(chr(97 + token) for token in tokens)


class FakeLLM:
    """Notes what is called; draws the tokens 2, 3, 4, ... of which each has logprob -0.5."""

    def __init__(self, log, tokens):
        self.log, self.tokens = log, tokens
        self.prompts, self.params, self.running = [], [], {}
        runner = SimpleNamespace(model_runner=SimpleNamespace(reload_weights=self._load))
        self.llm_engine = SimpleNamespace(
            model_executor=SimpleNamespace(driver_worker=runner),
            add_request=self._add,
            step=self._step,
            abort_request=self._abort,
        )

    def _load(self, weights_iterator):
        self.loaded = {name: value.clone() for name, value in weights_iterator}
        self.log.append("load_weights")

    def sleep(self, level):
        self.log.append(f"sleep {level}")

    def wake_up(self, tags):
        self.log.append(f"wake {' '.join(tags)}")

    def reset_prefix_cache(self):
        self.log.append("reset_prefix_cache")

    def _add(self, name, prompt, params):
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

    def generate(self, prompts, params, use_tqdm):
        assert not use_tqdm
        assert not self.running
        (prompt,) = prompts
        ids = prompt["prompt_token_ids"]
        rows = [{i: SimpleNamespace(logprob=-i / 10)} for i in ids]
        return [SimpleNamespace(prompt_logprobs=[None, *rows[1:]])]


@pytest.fixture
def fake(monkeypatch):
    """A module `vllm` whose LLM is kept at hand, and a CUDA that is there."""
    module = ModuleType("vllm")
    state = SimpleNamespace(log=[], tokens=list(range(2, 20)), settings=None, llm=None)

    def build(**settings):
        state.settings, state.llm = settings, FakeLLM(state.log, state.tokens)
        return state.llm

    module.LLM = build
    module.SamplingParams = SimpleNamespace
    module.__version__ = "0.32.0+cu130"
    module.sampling_params = SimpleNamespace(RequestOutputKind=SimpleNamespace(DELTA="delta"))
    module.TokensPrompt = dict
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: state.log.append("empty_cache"))
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    return state


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
    assert fake.llm.loaded.keys() == wanted.keys()
    assert all(torch.equal(fake.llm.loaded[name], wanted[name]) for name in wanted)


def test_adapters_are_merged_for_the_handover_only(fake):
    """VLLM gets base plus adapter under the base's names, from the start; training keeps both."""
    peft = pytest.importorskip("peft")
    model = tiny()
    plain = {name: value.clone() for name, value in model.named_parameters()}
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(model, config)
    engine = VLLMEngine(net_of(model, adapted), Letters(), model="DIR", read_version=lambda: 0)
    engine.generate([request()])
    assert fake.llm.loaded.keys() == plain.keys()
    changed = [n for n, value in plain.items() if not torch.equal(value, fake.llm.loaded[n])]
    assert changed == ["model.layers.0.self_attn.q_proj.weight"]
    layer = model.model.layers[0].self_attn.q_proj
    product = layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    assert torch.allclose(fake.llm.loaded[changed[0]], plain[changed[0]] + 2 * product, atol=1e-6)
    assert torch.equal(layer.base_layer.weight, plain[changed[0]]), "the base has drifted"


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


def test_room_is_made_for_what_a_run_needs():
    """A context of 262,144 is not reserved; a longer completion or the option is."""
    assert room_for(262_144, 1024) == 8192
    assert room_for(262_144, 16_384) == 32_768
    assert room_for(262_144, 1024, 2000) == 2000
    assert room_for(2048, 1024) == 2048


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
