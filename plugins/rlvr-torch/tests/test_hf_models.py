"""Models of transformers: which are taken, with what attention, and what is said of the others."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from rlvr import BackendError, ConfigError, PrerequisiteError
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.hf import load, supported
from rlvr_torch.models.hf.load import load_config, load_net, load_tokenizer
from rlvr_torch.models.hf.net import HFNet
from rlvr_torch.models.interface import Heads
from rlvr_torch.models.lora.adapters import save_adapter
from rlvr_torch.models.source import ModelSource


@pytest.fixture
def editable(make_hf, tmp_path):
    """A copy of the tiny Llama's directory, to be damaged."""
    return shutil.copytree(make_hf("llama"), tmp_path / "model")


def edit_config(directory, **changes):
    """Rewrite keys of config.json."""
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_weights(directory, change):
    """Rewrite the stored tensors."""
    path = directory / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize("family", supported.FAMILIES)
def test_logits_are_the_models_own(family, make_hf):
    """Head, bias, scale and soft caps included, within 1e-5, for a batch of two rows."""
    directory = make_hf(family)
    net = load_net(str(directory))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        directory, attn_implementation="eager"
    ).eval()
    tokens = torch.randint(0, 304, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        hidden = net.hidden(tokens, torch.arange(40), net.attend_causal)
        assert (net.logits(hidden) - theirs(tokens).logits).abs().max() < 1e-5
    assert (net.positions, net.vocab_size, net.head.shape) == (96, 304, (304, 32))


def test_heads_are_what_the_layers_ask_for(make_hf):
    """Grouped heads, their scale, windows layer by layer, and the soft cap of scores."""
    window, full = load_net(str(make_hf("gemma2"))).heads[:2]
    assert window == Heads(queries=4, keys=2, width=16, scale=256**-0.5, window=8, softcap=50.0)
    assert full.window is None
    assert load_net(str(make_hf("gemma2"))).logit_softcap == 30.0


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("cohere", {"logit_scale": 0.25}),
        ("granite", {"logits_scaling": 4.0, "attention_multiplier": 0.3}),
        ("phi", {}),
        ("mixtral", {"num_key_value_heads": 2}),
    ],
)
def test_other_decoders_are_taken_when_their_logits_agree(kind, changes, make_hf, tmp_path):
    """A family without a test of its own: scaled logits, a head with a bias, experts."""
    shape = json.loads((make_hf("llama") / "config.json").read_text())
    kept = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "max_position_embeddings",
        "eos_token_id",
    )
    config = transformers.AutoConfig.for_model(
        kind, **{key: shape[key] for key in kept}, bos_token_id=None, pad_token_id=None, **changes
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for value in model.parameters():
            value += 0.1
    model.save_pretrained(tmp_path)
    net = load_net(str(tmp_path))
    assert net.logit_scale == 0.25 or kind not in ("cohere", "granite")
    assert (net.head_bias is not None) == (kind == "phi")


def refusal(directory):
    """What is said of a model that cannot be used."""
    with pytest.raises(BackendError) as error:
        load_net(str(directory))
    return str(error.value)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (transformers.MambaConfig(num_hidden_layers=1), "max_position_embeddings"),
        (transformers.BloomConfig(), "max_position_embeddings"),
        (transformers.T5Config(num_layers=1), "encoder-decoder"),
        (transformers.FalconH1Config(num_hidden_layers=1), "layers of hybrid, whose state"),
        (transformers.ViTConfig(), "no causal language model"),
    ],
)
def test_unsupported_architectures_are_named(config, reason, tmp_path):
    """Before any weight is read: the architecture, why not, and what is supported."""
    config.save_pretrained(tmp_path)
    said = refusal(tmp_path)
    assert f"architecture {config.model_type!r}" in said
    assert reason in said
    assert "supported: llama, mistral, qwen2, qwen3, gemma" in said


def test_an_architecture_nobody_knows(editable):
    """What transformers cannot read is not a traceback either."""
    edit_config(editable, model_type="nonsense")
    assert "model type `nonsense`" in refusal(editable)


def test_code_that_comes_with_a_model_is_not_run(editable):
    """Neither run nor asked about."""
    edit_config(editable, model_type="own", auto_map={"AutoConfig": "evil.EvilConfig"})
    (editable / "evil.py").write_text("raise SystemExit('was run')")
    assert "custom code" in refusal(editable)


def test_positions_that_depend_on_the_batch_are_refused(editable):
    """Dynamic RoPE: a token's logprob would depend on how long its neighbours are."""
    edit_config(
        editable, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    )
    assert "its dynamic positions" in refusal(editable)


def test_attention_of_its_own_is_refused(make_hf, monkeypatch):
    """A layer that does not ask our attention would see a whole packed row."""
    model = transformers.AutoModelForCausalLM.from_pretrained(make_hf("llama"))
    layer = model.model.layers[1]
    monkeypatch.setattr(layer.self_attn, "forward", lambda hidden_states, **_: (hidden_states, 0))
    with pytest.raises(BackendError, match=r"2 of 3 layers attend"):
        supported.build_net(model, "somewhere")


def test_logits_that_differ_are_refused(make_hf, monkeypatch):
    """A cap that our attention did not apply is seen in the logits, and the model not used."""
    forgetful = HFNet.attend_causal

    def attend(self, layer, q, k, v, sinks=None):
        return forgetful(self, layer, 1.1 * q, k, v, sinks)

    monkeypatch.setattr(HFNet, "attend_causal", attend)
    assert "its logits differ by" in refusal(make_hf("gemma2"))


def test_a_window_that_is_ignored_is_seen(make_hf, monkeypatch):
    """The check's text is longer than short windows."""
    monkeypatch.setattr(
        "rlvr_torch.models.hf.net.causal",
        lambda n, device, window: torch.ones(1, 1, n, n, dtype=torch.bool).tril(),
    )
    assert "its logits differ by" in refusal(make_hf("mistral"))


@pytest.mark.parametrize("kind", ["qwen2_moe", "phimoe"])
def test_a_window_that_only_a_mask_has_is_refused(kind, tmp_path):
    """The check's text is shorter than long windows; one as long as the context changes nothing."""
    experts = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
    shape = {
        "vocab_size": 99,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        "eos_token_id": 0,
        **experts,
    }
    if kind == "qwen2_moe":
        shape |= {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
        shape |= {"use_sliding_window": True}
        shape |= {"layer_types": ["full_attention", "sliding_attention"]}
    config = transformers.AutoConfig.for_model(kind, **shape, sliding_window=200)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    layer = 1 if kind == "qwen2_moe" else 0
    said = refusal(tmp_path)
    assert f"architecture {kind!r}" in said
    assert f"layer {layer} sees 200 tokens by its configuration (sliding_window)" in said
    edit_config(tmp_path, sliding_window=512)
    assert [heads.window for heads in load_net(str(tmp_path)).heads] == [None, None]


def test_a_model_and_an_adapter_in_one_folder(editable):
    """Loaded together by transformers, they would freeze the model: nothing is trained."""
    net = ModelSource.parse(f"hf:{editable}", config=TorchConfig(lora_rank=2)).net(0)
    save_adapter(net, editable)
    said = refusal(editable)
    assert f"the model {editable} was asked for" in said
    assert "config.json and adapter_config.json" in said
    assert "torch.adapter=" in said


def test_a_directory_without_tokenizer(editable):
    """The file that is missing, and where to get it."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (editable / name).unlink()
    with pytest.raises(BackendError, match=r"no tokenizer in .*tokenizer\.json is missing"):
        ModelSource.parse(f"hf:{editable}").tokenizer()


def test_a_directory_without_weights(editable):
    """Pickled weights do not count: only safetensors are read."""
    (editable / "model.safetensors").rename(editable / "pytorch_model.bin")
    assert "its weights (model.safetensors) cannot be read" in refusal(editable)


def test_a_directory_without_config(editable):
    """The file is named."""
    (editable / "config.json").unlink()
    assert "config.json is missing" in refusal(editable)


def test_damaged_files(editable):
    """A truncated download is not a traceback."""
    path = editable / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    assert "its weights (model.safetensors) cannot be read" in refusal(editable)
    (editable / "tokenizer.json").write_text("{")
    with pytest.raises(BackendError, match="its tokenizer cannot be read"):
        load_tokenizer(str(editable))
    (editable / "config.json").write_text("{")
    with pytest.raises(BackendError, match=r"its config\.json cannot be read"):
        load_config(str(editable))


def test_a_missing_tensor_is_named(editable):
    """Where transformers would start it at random and go on."""
    edit_weights(editable, lambda t: t.pop("model.layers.1.mlp.up_proj.weight"))
    assert "'model.layers.1.mlp.up_proj.weight' is missing (1 in all)" in refusal(editable)


def test_a_tensor_of_the_wrong_shape_is_named(editable):
    """With what was found and what config.json promises."""
    edit_weights(editable, lambda t: t.update({"model.norm.weight": torch.ones(5)}))
    assert "'model.norm.weight' has shape (5,), expected (32,)" in refusal(editable)


def test_a_tokenizer_of_another_model(editable):
    """More tokens than the model has rows is refused at the start."""
    with pytest.raises(BackendError, match="tokenizer has 5000 tokens, the model only 304"):
        ModelSource.parse(f"hf:{editable}").net(5000)


def test_the_hub_cannot_be_reached(monkeypatch):
    """No network, or no such model: what to check, and how to fetch it elsewhere."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    source = ModelSource.parse("hf:nobody/no-such-model")
    with pytest.raises(BackendError) as error:
        source.net(0)
    said = str(error.value)
    assert "nobody/no-such-model cannot be had from the hub" in said
    assert "hf download nobody/no-such-model" in said
    with pytest.raises(BackendError, match="from the hub"):
        source.tokenizer()


@pytest.mark.parametrize("spec", ["hf:/no/such/folder", "hf:./model", "hf:a/b/c", "hf:~/x"])
def test_a_path_that_does_not_exist(spec):
    """What looks like a path is not looked for on the hub."""
    with pytest.raises(ConfigError, match="no such folder"):
        ModelSource.parse(spec)


def test_without_transformers(make_hf, monkeypatch):
    """The pip command, as a missing prerequisite (exit 4)."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    source = ModelSource.parse(f"hf:{make_hf('llama')}")
    for ask in (source.tokenizer, lambda: source.net(0)):
        with pytest.raises(PrerequisiteError, match=r"pip install .*rlvr-torch\[hf\]") as error:
            ask()
        assert error.value.exit_code == 4


def test_gpt2_through_transformers_is_our_gpt2(model, tokenizer, tmp_path):
    """One directory, two ways in: the same hidden states within 1e-4."""
    from rlvr_torch.models.save import save_net

    save_net(model, tokenizer, tmp_path)
    net = ModelSource.parse(f"hf:{tmp_path}").net(tokenizer.vocab_size)
    tokens = torch.arange(30)[None]
    with torch.no_grad():
        ours = model.hidden(tokens)
        theirs = net.hidden(tokens, torch.arange(30)[None], net.attend_causal)
    assert (ours - theirs).abs().max() < 1e-4


def test_weights_that_cannot_be_trained_are_refused(editable):
    """A model that was quantised by others: the kind is named."""
    edit_config(editable, quantization_config={"quant_method": "gptq", "bits": 4})
    assert "its weights are stored as gptq" in refusal(editable)


def test_values_of_another_width_are_refused(tmp_path):
    """Latent attention (DeepSeek) has keys that the caches would not fit."""
    transformers.DeepseekV3Config(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=48,
        moe_intermediate_size=16,
        max_position_embeddings=64,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        first_k_dense_replace=1,
        bos_token_id=None,
        eos_token_id=0,
    ).save_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_config(load_config(str(tmp_path)))
    model.save_pretrained(tmp_path)
    said = refusal(tmp_path)
    assert "architecture 'deepseek_v3'" in said
    assert "its keys are 16 wide, its values 8" in said


@pytest.mark.parametrize("kind", ["fits", "is refused"])
def test_the_check_of_a_small_model_takes_one_core(kind, make_hf, monkeypatch):
    """And leaves torch's threads as they were, whatever comes of it."""
    seen = []

    def difference(net):
        seen.append(torch.get_num_threads())
        return 0.0 if kind == "fits" else 1.0

    monkeypatch.setattr(supported, "_difference", difference)
    torch.set_num_threads(3)
    with contextlib.nullcontext() if kind == "fits" else pytest.raises(BackendError):
        load_net(str(make_hf("llama")))
    assert seen == [1]
    assert torch.get_num_threads() == 3


def test_a_check_that_does_not_fit_is_not_the_architectures_fault(make_hf, monkeypatch):
    """It runs on the device: what `rlvr` says of its memory is told, not that of a model."""

    def full(net):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(supported, "_difference", full)
    with pytest.raises(torch.OutOfMemoryError):
        load_net(str(make_hf("llama")))


@pytest.mark.parametrize("kind", ["fits", "is refused"])
def test_the_check_is_of_exact_products(kind, make_hf, monkeypatch):
    """Where a card may round inputs of products to TF32 (`torch.tf32`), and only in the check."""
    seen, before = [], torch.get_float32_matmul_precision()

    def difference(net):
        seen.append(torch.get_float32_matmul_precision())
        return 0.0 if kind == "fits" else 1.0

    monkeypatch.setattr(supported, "_difference", difference)
    try:
        torch.set_float32_matmul_precision("high")
        with contextlib.nullcontext() if kind == "fits" else pytest.raises(BackendError):
            load_net(str(make_hf("llama")))
        assert seen == ["highest"]
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_model_is_checked_where_it_computes(make_hf, monkeypatch):
    """Its weights are moved before: logits on a GPU take no time, on a CPU they do."""
    monkeypatch.setattr(load, "build_net", lambda model, where, processor: model)
    model = load_net(str(make_hf("llama")), device=torch.device("meta"))
    assert {value.device.type for value in model.parameters()} == {"meta"}
