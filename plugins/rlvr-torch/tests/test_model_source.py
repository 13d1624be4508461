"""Model specs: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlvr import BackendError, ConfigError
from rlvr_torch.models.gpt2_files import save_gpt2
from rlvr_torch.models.source import ModelSource


def test_a_directory(model, tokenizer, tmp_path):
    """`gpt2:PATH` reads a directory, each time anew."""
    save_gpt2(model, tmp_path)
    tokenizer.save(tmp_path)
    source = ModelSource.parse(f"gpt2:{tmp_path}")
    assert source.tokenizer().vocab_size == tokenizer.vocab_size
    first, second = (source.model(tokenizer.vocab_size) for _ in range(2))
    assert first is not second
    assert torch.equal(first.head, model.head)


def test_from_scratch(tokenizer, tmp_path):
    """`gpt2:new?...` makes a model of that shape with the named tokenizer."""
    tokenizer.save(tmp_path)
    spec = f"gpt2:new?layers=3&heads=4&width=48&positions=77&seed=9&tokenizer={tmp_path}"
    source = ModelSource.parse(spec, seed=1)
    config = source.model(source.tokenizer().vocab_size).config
    assert (config.n_layer, config.n_head, config.n_embd, config.n_positions) == (3, 4, 48, 77)
    assert config.vocab_size == tokenizer.vocab_size
    assert source.seed == 9


def test_from_scratch_by_default_reads_bytes_and_takes_the_runs_seed():
    """`gpt2:new` needs nothing else."""
    source = ModelSource.parse("gpt2:new", seed=5)
    assert source.tokenizer().vocab_size == 257
    assert source.seed == 5
    assert torch.equal(source.model(257).head, source.model(257).head)


def test_a_tokenizer_path_is_taken_as_it_is(tokenizer, tmp_path):
    """Characters that URLs would decode stay what they are."""
    odd = tmp_path / "a+b %41 c"
    odd.mkdir()
    tokenizer.save(odd)
    source = ModelSource.parse(f"gpt2:new?tokenizer={odd}&width=32")
    assert source.tokenizer().vocab_size == tokenizer.vocab_size


def test_a_directory_named_new(tmp_path, monkeypatch):
    """Only the word itself is special."""
    monkeypatch.chdir(tmp_path)
    for name in ("new", "newest"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()

    assert ModelSource.parse("gpt2:./new").directory == Path("new")
    assert ModelSource.parse("gpt2:newest").directory == Path("newest")


def test_a_model_that_does_not_exist(tmp_path):
    """A person's mistake: the folder and what belongs into it are named."""
    with pytest.raises(ConfigError, match=r"no such folder\n.*config\.json"):
        ModelSource.parse(f"gpt2:{tmp_path / 'nothing'}")


@pytest.mark.parametrize("kind", ["gpt2", "hf"])
def test_a_folder_without_a_model_is_refused_as_one(kind, tmp_path):
    """Before its tokenizer is missed; the folder of a run is named without a kind."""
    with pytest.raises(ConfigError, match=r"found: a folder without config\.json"):
        ModelSource.parse(f"{kind}:{tmp_path}")
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ConfigError, match=rf"found: the folder of a run.*--model {tmp_path}"):
        ModelSource.parse(f"{kind}:{tmp_path}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "cannot use the model ''"),
        ("gpt2:", "cannot use the model"),
        ("gpt2", r"hf:PATH_OR_ID \(such as hf:gpt2\), gpt2:PATH"),
        ("gpt2:gpt2", "a model of Hugging Face's hub is hf:gpt2"),
        ("hf:", "cannot use the model 'hf:'"),
        (f"hf:{'h' * 300}", "found: File name too long"),
        (f"hf:{'h' * 97}", "found: no such folder\n.* at most 96 characters"),
        (f"gpt2:{'g' * 300}", "found: File name too long"),
        ("llama:x", "it takes hf:PATH_OR_ID, gpt2:PATH"),
        ("gpt2:new?depth=3", "unknown key 'depth'"),
        ("gpt2:new?layers=many", "layers must be a whole number, got 'many'"),
        ("gpt2:new?width=0", "width must be"),
        ("gpt2:new?width=-4", "width must be"),
    ],
)
def test_specs_that_mean_nothing(spec, message):
    """What was given is named, with what would be right."""
    with pytest.raises(ConfigError, match=message):
        ModelSource.parse(spec)


def test_a_tokenizer_whose_name_is_too_long():
    """It is told as one that cannot be read, not as the backend's fault."""
    with pytest.raises(BackendError, match=r"no.* readable tokenizer: .*too long"):
        ModelSource.parse(f"gpt2:new?tokenizer={'t' * 300}").tokenizer()


def test_model_and_tokenizer_must_belong_together(model, tmp_path):
    """More tokens than the model has embeddings is refused at the start, not at sampling."""
    save_gpt2(model, tmp_path)
    with pytest.raises(BackendError, match="do not belong together"):
        ModelSource.parse(f"gpt2:{tmp_path}").model(5000)
