"""Adapters: nothing at first, off means the base, saved ones are peft's, merged ones a model."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import warnings

import numpy as np
import pytest
import torch
import transformers
from rlvr_process import run_rlvr

from rlvr import BackendError, ConfigError, PrerequisiteError
from rlvr.records.manifest import seal
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.export import export, find_model
from rlvr_torch.models.gpt2 import GPT2
from rlvr_torch.models.lora.adapters import import_peft, without_adapter
from rlvr_torch.models.save import load_weights, save_net
from rlvr_torch.models.source import ModelSource
from rlvr_torch.training.packing.prefix_packing import supervised_hidden

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:fan_in_fan_out:UserWarning"),
]

KINDS = [
    ("llama", {"lora_rank": 4}),
    ("llama", {"lora_rank": 4, "dora": True}),
    ("qwen3", {"lora_rank": 2, "lora_alpha": 8.0, "lora_targets": "q_proj,v_proj"}),
    ("gemma3_text", {"lora_rank": 4}),
    ("gpt_oss", {"lora_rank": 4}),
    ("qwen3_5_text", {"lora_rank": 4}),
    ("qwen3_next", {"lora_rank": 2, "lora_targets": "in_proj_qkvz,out_proj"}),
    ("gpt2", {"lora_rank": 4}),
]


def source_of(directory, **options):
    """The source of `hf:directory` with these options."""
    return ModelSource.parse(f"hf:{directory}", seed=3, config=TorchConfig(**options))


def disturb(net):
    """Give trained weights values that adapters have after training."""
    random = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for value in net.module.parameters():
            if value.requires_grad:
                value += 0.1 * torch.randn(value.shape, generator=random)


def edit_adapter(directory, **changes):
    """Rewrite keys of adapter_config.json."""
    path = directory / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def logits_of(net, tokens):
    """Logits of a whole text, through our attention."""
    positions = torch.arange(tokens.shape[1])
    with torch.no_grad():
        return net.logits(net.hidden(tokens, positions, net.attend_causal))


TOKENS = torch.arange(20)[None] * 7 % 280


@pytest.mark.one_of(8, "options1", "options6", "options7")
@pytest.mark.parametrize(("family", "options"), KINDS)
def test_adapters_off_equals_the_base(family, options, make_hf):
    """Fresh adapters change nothing; trained ones do; without them the base is there, exactly."""
    directory = make_hf(family)
    base = logits_of(source_of(directory).net(0), TOKENS)
    net = source_of(directory, **options).net(0)
    assert (logits_of(net, TOKENS) - base).abs().max() < 1e-5  # DoRA divides by a norm
    disturb(net)
    assert (logits_of(net, TOKENS) - base).abs().max() > 1e-2
    with without_adapter(net):
        assert torch.equal(logits_of(net, TOKENS), base)
    assert (logits_of(net, TOKENS) - base).abs().max() > 1e-2


def test_only_adapters_are_trained(make_hf, make_datum):
    """The base has no gradient, not even through a shared prompt; every adapter has one."""
    net = source_of(make_hf("llama"), lora_rank=4).net(0)
    disturb(net)
    lead = make_datum(9, 20, 1)
    data = [lead, make_datum(9, 25, 2, tokens=[*lead.tokens[:9], *range(16)])]
    supervised_hidden(net, data).sum().backward()
    for name, value in net.module.named_parameters():
        assert value.requires_grad == ("lora_" in name)
        assert (value.grad is not None) == value.requires_grad, name


def test_equal_seeds_give_equal_adapters(make_hf):
    """Whatever torch's own generator did before, which is left alone."""
    source = source_of(make_hf("llama"), lora_rank=4)
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = source.net(0)
    assert torch.equal(state, torch.random.get_rng_state())
    torch.manual_seed(2)
    second = source.net(0)
    pairs = zip(first.module.parameters(), second.module.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_experts_have_no_adapters(make_hf):
    """In a mixture of experts the attention is adapted: experts are no linear layers."""
    net = source_of(make_hf("gpt_oss"), lora_rank=4).net(0)
    adapted = {
        n.split(".lora_")[0].rpartition(".")[2]
        for n, p in net.module.named_parameters()
        if p.requires_grad
    }
    assert adapted == {"q_proj", "k_proj", "v_proj", "o_proj"}


@pytest.mark.one_of(8, "options2", "options4", "options7")
@pytest.mark.parametrize(("family", "options"), KINDS)
def test_saved_adapters_load_in_peft(family, options, make_hf, tmp_path):
    """`PeftModel.from_pretrained` on the plain base gives our logits, within 1e-5."""
    directory = make_hf(family)
    source = source_of(directory, **options)
    net = source.net(0)
    disturb(net)
    save_net(net, source.tokenizer(), tmp_path)
    base = transformers.AutoModelForCausalLM.from_pretrained(directory)
    theirs = import_peft().PeftModel.from_pretrained(base, tmp_path).eval()
    with torch.no_grad():
        assert (theirs(TOKENS).logits - logits_of(net, TOKENS)).abs().max() < 1e-5


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("family", "options"), KINDS)
def test_a_merged_export_is_a_model_with_the_same_logits(family, options, make_hf, tmp_path):
    """`rlvr torch export --merge` loads in transformers, without peft, within 1e-5."""
    source = source_of(make_hf(family), **options)
    net = source.net(0)
    disturb(net)
    (tmp_path / "adapter").mkdir()
    save_net(net, source.tokenizer(), tmp_path / "adapter")
    (tmp_path / "adapter" / "trained-on.json").write_text("[]")
    found = export(tmp_path / "adapter", tmp_path / "out", merge=True)
    assert found["kind"] == "merged model"
    assert (tmp_path / "out" / "trained-on.json").read_text() == "[]"
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert not any("lora" in name for name in theirs.state_dict())
    with torch.no_grad():
        assert (theirs(TOKENS).logits - logits_of(net, TOKENS)).abs().max() < 1e-5
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "out").eos_token == "<|im_end|>"


def test_weights_go_into_a_net_that_is_there(make_hf, tmp_path):
    """`load_weights` restores adapters exactly; saved ones are also a start (`torch.adapter`)."""
    directory = make_hf("llama")
    source = source_of(directory, lora_rank=4)
    net = source.net(0)
    disturb(net)
    save_net(net, source.tokenizer(), tmp_path)
    fresh = source.net(0)
    load_weights(fresh, tmp_path)
    want = logits_of(net, TOKENS)
    assert torch.equal(logits_of(fresh, TOKENS), want)
    for again in (source_of(directory, adapter=str(tmp_path)), source_of(tmp_path)):
        found = again.net(0)
        assert torch.equal(logits_of(found, TOKENS), want)
        assert any(p.requires_grad for p in found.module.parameters())
        assert again.tokenizer().eos_id == source.tokenizer().eos_id
        assert (
            again.tokenizer().stop_ids == source.tokenizer().stop_ids != {source.tokenizer().eos_id}
        )


def test_an_adapter_of_other_shapes_is_refused_on_load(make_hf, tmp_path):
    """A checkpoint of rank 2 does not go into adapters of rank 4: tensor and shapes are named."""
    small = source_of(make_hf("llama"), lora_rank=2)
    save_net(small.net(0), small.tokenizer(), tmp_path)
    net = source_of(make_hf("llama"), lora_rank=4).net(0)
    with pytest.raises(BackendError, match=r"lora_A\.weight' has shape \(2, 32\).*\(4, 32\)"):
        load_weights(net, tmp_path)


def test_an_adapter_for_another_base_is_refused(make_hf, tmp_path):
    """By its base's weights, else by its name, else by its shapes: all are told."""
    source = source_of(make_hf("llama"), lora_rank=4)
    save_net(source.net(0), source.tokenizer(), tmp_path)
    other = make_hf("qwen3")
    with pytest.raises(ConfigError) as error:
        source_of(other, adapter=str(tmp_path)).net(0)
    assert str(other) in str(error.value)
    assert f"it was trained on {make_hf('llama')}" in str(error.value)
    (tmp_path / "adapter-base.json").unlink()
    with pytest.raises(ConfigError, match=f"found: it was trained on {make_hf('llama')}\n"):
        source_of(other, adapter=str(tmp_path)).net(0)
    edit_adapter(tmp_path, base_model_name_or_path=None)
    with pytest.raises(ConfigError, match=r"does not fit"):
        source_of(make_hf("gpt2"), adapter=str(tmp_path)).net(0)


def test_a_copy_of_the_base_elsewhere_is_the_same_base(make_hf, tmp_path):
    """Its weights say so, whatever it is called now, and in whatever type they are stored."""
    source = source_of(make_hf("llama"), lora_rank=4, dtype="bfloat16")
    save_net(source.net(0), source.tokenizer(), tmp_path)
    moved = shutil.copytree(make_hf("llama"), tmp_path / "moved")
    source_of(moved, adapter=str(tmp_path)).net(0)


def test_two_checkpoints_are_two_bases(make_hf, tmp_path):
    """All of them are called `model`: weights tell them apart, and without those the path does."""
    for run in ("one", "two"):
        net = source_of(make_hf("llama")).net(0)
        if run == "two":
            disturb(net)
        (tmp_path / run / "model").mkdir(parents=True)
        save_net(net, source_of(make_hf("llama")).tokenizer(), tmp_path / run / "model")
    source = source_of(tmp_path / "one" / "model", lora_rank=2)
    saved = tmp_path / "adapter"
    saved.mkdir()
    save_net(source.net(0), source.tokenizer(), saved)
    other = source_of(tmp_path / "two" / "model", adapter=str(saved))
    with pytest.raises(ConfigError, match=r"trained on .*one/model, whose weights were others"):
        other.net(0)
    (saved / "adapter-base.json").unlink()
    with pytest.raises(ConfigError, match=r"trained on .*one/model\n"):
        other.net(0)
    edit_adapter(saved, base_model_name_or_path="/elsewhere/model")
    with pytest.raises(ConfigError, match=r"trained on /elsewhere/model\n"):
        other.net(0)


def test_without_a_record_a_base_is_known_by_its_name(make_hf, tmp_path):
    """An adapter that peft wrote: a hub's model, downloaded; but not one of two folders here."""
    source = source_of(make_hf("llama"), lora_rank=4)
    save_net(source.net(0), source.tokenizer(), tmp_path)
    (tmp_path / "adapter-base.json").unlink()
    moved = shutil.copytree(make_hf("llama"), tmp_path / "moved" / make_hf("llama").name)
    again = source_of(moved, adapter=str(tmp_path))
    with pytest.raises(ConfigError, match="it was trained on"):
        again.net(0)
    edit_adapter(tmp_path, base_model_name_or_path=f"owner/{moved.name}")
    assert again.net(0).adapted


def test_a_base_that_changed_in_its_place_is_another(make_hf, tmp_path):
    """The same path with other weights."""
    base = shutil.copytree(make_hf("llama"), tmp_path / "base")
    source = source_of(base, lora_rank=4)
    (tmp_path / "adapter").mkdir()
    save_net(source.net(0), source.tokenizer(), tmp_path / "adapter")
    net = source_of(base).net(0)
    disturb(net)
    save_net(net, source.tokenizer(), base)
    with pytest.raises(ConfigError, match="whose weights were others"):
        source_of(tmp_path / "adapter").net(0)


def test_adapters_name_their_base_from_anywhere(make_hf, tmp_path, monkeypatch):
    """A relative path would be another folder's elsewhere, or be looked for on the hub."""
    shutil.copytree(make_hf("llama"), tmp_path / "small")
    monkeypatch.chdir(tmp_path)
    source = source_of("small", lora_rank=4)
    (tmp_path / "adapter").mkdir()
    save_net(source.net(0), source.tokenizer(), tmp_path / "adapter")
    monkeypatch.chdir("/")
    again = source_of(tmp_path / "adapter")
    assert again.hf.where == str(tmp_path / "small")
    assert again.net(0).adapted
    monkeypatch.chdir(tmp_path)
    edit_adapter(tmp_path / "adapter", base_model_name_or_path="small")
    assert source_of("adapter").hf.where == str(tmp_path / "small")


def test_adapters_for_our_gpt2_are_refused(model, tokenizer, tmp_path):
    """With the fix: the same folder through transformers."""
    save_net(model, tokenizer, tmp_path)
    with pytest.raises(ConfigError, match=r"torch.lora_rank=4 .*\n.*\n.*--model hf:PATH"):
        ModelSource.parse(f"gpt2:{tmp_path}", config=TorchConfig(lora_rank=4))
    assert ModelSource.parse(f"hf:{tmp_path}", config=TorchConfig(lora_rank=4)).net(0).adapted


@pytest.mark.parametrize(
    "options",
    [
        {"dora": True},
        {"lora_alpha": 4.0},
        {"lora_targets": "q_proj"},
        {"quantize": "4bit"},
        {"reference": "adapter-off"},
    ],
)
def test_options_without_adapters_are_refused(make_hf, options):
    """An option that would be ignored is refused by its name, for every kind of model."""
    name = f"torch.{next(iter(options))}"
    for spec in (f"hf:{make_hf('llama')}", "gpt2:new"):
        with pytest.raises(ConfigError, match=name):
            ModelSource.parse(spec, config=TorchConfig(**options))


def test_a_saved_adapters_own_settings_hold(make_hf, tmp_path):
    """Another rank than the adapter has is a contradiction."""
    source = source_of(make_hf("llama"), lora_rank=4)
    save_net(source.net(0), source.tokenizer(), tmp_path)
    with pytest.raises(ConfigError, match=r"torch.lora_rank=8 .*\n  found: the adapter has 4"):
        source_of(make_hf("llama"), adapter=str(tmp_path), lora_rank=8)


def test_a_saved_adapters_own_layers_hold(make_hf, tmp_path):
    """Other layers than it has are a contradiction; the same ones are none."""
    source = source_of(make_hf("llama"), lora_rank=4, lora_targets="v_proj,q_proj")
    save_net(source.net(0), source.tokenizer(), tmp_path)
    with pytest.raises(
        ConfigError, match=r"torch.lora_targets=v_proj .*\n  found: the adapter has q_proj,v_proj"
    ):
        source_of(make_hf("llama"), adapter=str(tmp_path), lora_targets="v_proj")
    source_of(make_hf("llama"), adapter=str(tmp_path), lora_targets="q_proj, v_proj")
    edit_adapter(tmp_path, target_modules=[f"model.layers.{i}.q_proj" for i in range(3)])
    with pytest.raises(ConfigError, match=r"found: the adapter has q_proj\n"):
        source_of(make_hf("llama"), adapter=str(tmp_path), lora_targets="v_proj")


def test_targets_that_do_not_exist_are_refused(make_hf):
    """What was asked for, and the names of the layers that are there."""
    with pytest.raises(ConfigError, match=r"lora_targets=query(.|\n)*q_proj"):
        source_of(make_hf("llama"), lora_rank=4, lora_targets="query").net(0)


def test_adapters_on_the_output_head_are_refused(make_hf, tmp_path):
    """Losses multiply by the head's own weights, so its adapters would be ignored."""
    with pytest.raises(ConfigError, match="adapters on the output head"):
        source_of(make_hf("llama"), lora_rank=4, lora_targets="q_proj,lm_head").net(0)
    config = import_peft().LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["lm_head"])
    config.save_pretrained(str(tmp_path))
    with pytest.raises(ConfigError, match=r"modules_to_save is \['lm_head'\]"):
        source_of(make_hf("llama"), adapter=str(tmp_path))


@pytest.mark.filterwarnings("ignore:.*tie_word_embeddings.*:UserWarning")
def test_adapters_on_tied_embeddings_are_refused(make_hf, tmp_path):
    """Merged, they would change the output head, which had none; embeddings of their own may."""
    assert source_of(make_hf("llama"), lora_rank=2, lora_targets="embed_tokens").net(0).adapted
    base = transformers.AutoModelForCausalLM.from_pretrained(make_hf("gemma2"))
    config = import_peft().LoraConfig(r=2, target_modules=["embed_tokens"], task_type="CAUSAL_LM")
    adapted = import_peft().get_peft_model(base, config)
    adapted.save_pretrained(str(tmp_path), save_embedding_layers=False)
    for options in ({"lora_rank": 2, "lora_targets": "embed_tokens"}, {"adapter": str(tmp_path)}):
        source = source_of(make_hf("gemma2"), **options)
        with (
            warnings.catch_warnings(action="error"),
            pytest.raises(ConfigError, match="found: adapters on the embeddings"),
        ):
            source.net(0)


def test_adapters_with_biases_are_refused(make_hf, tmp_path):
    """Trained biases are the model's own: they would stay on with the adapters off."""
    config = import_peft().LoraConfig(r=4, target_modules=["q_proj"], bias="lora_only")
    config.save_pretrained(str(tmp_path))
    with pytest.raises(ConfigError, match="bias is 'lora_only'"):
        source_of(make_hf("llama"), adapter=str(tmp_path))


def test_a_merge_into_another_base_is_told(make_hf, tmp_path, capsys):
    """A base that was moved is the same; one with other weights is merged, with a warning."""
    source = source_of(make_hf("llama"), lora_rank=4)
    (tmp_path / "adapter").mkdir()
    save_net(source.net(0), source.tokenizer(), tmp_path / "adapter")
    moved = shutil.copytree(make_hf("llama"), tmp_path / "moved")
    export(tmp_path / "adapter", tmp_path / "a", merge=True, base=str(moved))
    assert "warning" not in capsys.readouterr().err
    net = source_of(moved).net(0)
    disturb(net)
    save_net(net, source.tokenizer(), moved)
    export(tmp_path / "adapter", tmp_path / "b", merge=True, base=str(moved))
    said = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert said == [
        f"warning: the adapter {tmp_path / 'adapter'}: it was trained on {make_hf('llama')}, "
        "whose weights were others (adapter-base.json)"
    ]


def test_four_bits_need_a_gpu(make_hf, monkeypatch):
    """A prerequisite, with what to do."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(PrerequisiteError, match=r"4bit(.|\n)*without a CUDA device"):
        source_of(make_hf("llama"), lora_rank=4, quantize="4bit").net(0)


def test_without_peft(make_hf, monkeypatch):
    """The pip command, as a missing prerequisite (exit 4)."""
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(PrerequisiteError, match=r"pip install .*rlvr-torch\[hf\]"):
        source_of(make_hf("llama"), lora_rank=4).net(0)


def test_there_is_no_adapter_to_switch_off(make_hf):
    """A fully trained model has no other self."""
    with (
        pytest.raises(BackendError, match="no adapter to switch off"),
        without_adapter(source_of(make_hf("llama")).net(0)),
    ):
        pass


def test_export_of_a_run(model, tokenizer, tmp_path):
    """The last checkpoint's model, without the optimiser; it is read by transformers."""
    for step in (999_999, 1_000_000):
        folder = tmp_path / "run" / "checkpoints" / f"step-{step:06d}" / "model"
        folder.mkdir(parents=True)
        with torch.no_grad():
            model.ln_f.bias.fill_(step)
        save_net(model, tokenizer, folder)
        (folder / "training.pt").write_bytes(b"state")
        seal(folder.parent, step, {})
    (tmp_path / "run" / "run.json").write_text('{"config": {"run.model": "gpt2:new"}}')
    words = ("torch", "export", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--json")
    done = run_rlvr(*words, timeout_s=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kind"] == "model"
    assert not (tmp_path / "out" / "training.pt").exists()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokens = torch.from_numpy(np.arange(12))[None]
    with torch.no_grad():
        assert (theirs(tokens).logits - model(tokens)).abs().max() < 1e-4
    assert find_model(tmp_path / "run" / "checkpoints" / "step-999999").parent.name == "step-999999"


@pytest.mark.parametrize("was_there", [True, False])
def test_an_export_that_fails_leaves_no_half_model(
    was_there, model, tokenizer, tmp_path, monkeypatch
):
    """Of a disk that is full after one file, nothing stays but what is not the export's."""
    (tmp_path / "whole").mkdir()
    save_net(model, tokenizer, tmp_path / "whole")
    out = tmp_path / "out"
    if was_there:
        out.mkdir()
    copy = shutil.copy2

    def full_disk(source, target):
        if any(target.parent.iterdir()):
            (out / "notes.txt").touch()  # a person's, meanwhile
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        copy(source, target)

    monkeypatch.setattr(shutil, "copy2", full_disk)
    with pytest.raises(OSError, match="No space"):
        export(tmp_path / "whole", out)
    assert [path.name for path in out.iterdir()] == ["notes.txt"]
    (out / "notes.txt").unlink()
    monkeypatch.undo()
    export(tmp_path / "whole", out)
    assert {*os.listdir(out)} == {*os.listdir(tmp_path / "whole")}


def test_export_refuses_what_it_would_overwrite(model, tokenizer, tmp_path):
    """A folder with files in it is left alone; a place without a model is named."""
    save_net(model, tokenizer, tmp_path)
    with pytest.raises(ConfigError, match="files in it"):
        export(tmp_path, tmp_path)
    with pytest.raises(ConfigError, match="no such folder"):
        export(tmp_path / "nothing", tmp_path / "out")


def test_our_gpt2_and_whole_models_are_saved_too(make_hf, model, tokenizer, tmp_path):
    """`save_net` and `load_weights` are exact for every kind of net, and refuse each other's."""
    source = source_of(make_hf("gemma2"))
    net = source.net(0)
    disturb(net)
    for folder, one, words in (("hf", net, source.tokenizer()), ("own", model, tokenizer)):
        (tmp_path / folder).mkdir()
        save_net(one, words, tmp_path / folder)
    fresh = source.net(0)
    load_weights(fresh, tmp_path / "hf")
    assert torch.equal(logits_of(fresh, TOKENS), logits_of(net, TOKENS))
    assert torch.equal(logits_of(source_of(tmp_path / "hf").net(0), TOKENS), logits_of(net, TOKENS))
    blank = GPT2.new(model.config)
    load_weights(blank, tmp_path / "own")
    assert torch.equal(blank.head, model.head)
    for one, folder in ((fresh, "own"), (blank, "hf")):
        with pytest.raises(BackendError):
            load_weights(one, tmp_path / folder)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss"])
def test_frozen_weights_are_stored_short_where_asked(family, make_hf, make_datum):
    """With bfloat16 the base takes half the memory; adapters, and their gradients, stay float32."""
    net = source_of(make_hf(family), lora_rank=4, dtype="bfloat16").net(0)
    for name, value in net.module.named_parameters():
        assert value.dtype == (torch.float32 if "lora_" in name else torch.bfloat16), name
    exact = source_of(make_hf(family), lora_rank=4).net(0)
    data = [make_datum(9, 20, 1)]
    with torch.autocast("cpu", torch.bfloat16):
        rough = supervised_hidden(net, data)
    fine = supervised_hidden(exact, data)
    assert (rough - fine).abs().mean() < 0.05 * fine.abs().mean()
    rough.float().sum().backward()
    assert all(p.grad.isfinite().all() for p in net.module.parameters() if p.requires_grad)
