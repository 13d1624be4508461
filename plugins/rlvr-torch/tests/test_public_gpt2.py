"""
Directories laid out as public GPT-2 weights are (gpt2, jrahn/RookWorld-LM-124M) load and generate.

config.json, model.safetensors with Conv1D weights (inputs by outputs) under `transformer.`, the
tied head stored or not, GPT-2's tokenizer as vocab.json with merges.txt, `<|endoftext|>` last.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import decoders, models, pre_tokenizers, trainers

from rlvr import GenerateRequest, SamplingParams
from rlvr_torch.generation.engine import Engine
from rlvr_torch.models.gpt2 import GPT2, GPT2Config
from rlvr_torch.models.source import ModelSource

POLICY = "2b3k1/Q4rqn/p2p4/4p3/p6p/2PP3P/BP3PP1/R5K1 b - - 0 34"
PROMPTS = [  # as RookWorld's generators write them: the fields are padded with spaces
    f"P: {POLICY:90}M:",
    "P: 8/2k2b2/R1p4r/3p1p2/P7/2P2B1P/5PPK/4R3 w - - 1 31    M:",
    "A: 8/2k2b2/R1p4r/3p1p2/P7/2P2B1P/5PPK/4R3 w - - 1 31+a6a5+",
    "P: 8/8 M:",
]
ROW = (
    f"P: {POLICY:90}M: a4a3 c8f5 h7f6 h7g5 h7f8      "
    "E: -3.06 -2.82 -3.21 -3.16 -2.3            B: h7f6"
)
"""A whole row; its padding are tokens too."""


def write_tokenizer(directory: Path) -> int:
    """GPT-2's two files, of a small vocabulary; gives its size."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=alphabet, show_progress=False, min_frequency=1
    )
    inner.train_from_iterator([*PROMPTS, ROW] * 4, trainer)
    inner.model.save(str(directory))
    path = directory / "vocab.json"
    vocab = json.loads(path.read_text(encoding="utf-8"))
    vocab["<|endoftext|>"] = len(vocab)
    path.write_text(json.dumps(vocab), encoding="utf-8")
    return len(vocab)


def rename(directory: Path, *, prefix: str, head: bool) -> None:
    """The tensors under another prefix, with or without a copy of the embedding as the head."""
    path = directory / "model.safetensors"
    bare = {
        name.removeprefix("transformer."): value
        for name, value in load_file(path).items()
        if name != "lm_head.weight"
    }
    tensors = {prefix + name: value for name, value in bare.items()}
    if head:
        tensors["lm_head.weight"] = bare["wte.weight"].clone()
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.fixture(params=[("transformer.", False), ("transformer.", True), ("", False), ("", True)])
def public(request, tmp_path):
    """The directory, and transformers' model of the same weights."""
    vocab = write_tokenizer(tmp_path)
    config = transformers.GPT2Config(
        vocab_size=vocab,
        n_positions=160,
        n_embd=48,
        n_layer=3,
        n_head=4,
        bos_token_id=vocab - 1,
        eos_token_id=vocab - 1,
    )
    torch.manual_seed(3)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for value in theirs.parameters():
            value.add_(0.1 * torch.randn_like(value))
    theirs.save_pretrained(tmp_path)
    prefix, head = request.param
    rename(tmp_path, prefix=prefix, head=head)
    return tmp_path, theirs


def test_logits_and_greedy_text_are_transformers(public):
    """
    Through `gpt2:PATH`: logits within 1e-4, and the same greedy tokens for prompts of mixed length.

    Transformers pads them on the left; ours must give what it gives, and what it gives each alone.
    """
    directory, theirs = public
    source = ModelSource.parse(f"gpt2:{directory}")
    tokenizer = source.tokenizer()
    net = source.net(tokenizer.vocab_size)
    tokens = torch.randint(0, net.vocab_size, (3, 90), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert (net.module(tokens) - theirs(tokens).logits).abs().max() < 1e-4

    ids = [tokenizer.encode(prompt) for prompt in PROMPTS]
    longest = max(map(len, ids))
    assert min(map(len, ids)) < longest - 20
    pad = net.vocab_size - 1
    padded = torch.tensor([[pad] * (longest - len(row)) + row for row in ids])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in ids])
    drawn = theirs.generate(
        padded, attention_mask=mask, max_new_tokens=24, do_sample=False, pad_token_id=pad
    )
    params = SamplingParams(max_tokens=24, temperature=0.0)
    requests = [GenerateRequest(prompt=row, params=params, seed=0) for row in ids]
    engine = Engine(net, tokenizer)
    together = engine.generate(requests)
    for request, found, wanted in zip(requests, together, drawn[:, longest:], strict=True):
        assert found.tokens.tolist() == wanted.tolist()[: len(found.tokens)]
        assert len(found.tokens) == 24 or found.tokens[-1] == tokenizer.eos_id
        (alone,) = engine.generate([request])
        assert alone.tokens.tolist() == found.tokens.tolist()
        assert alone.logprobs == pytest.approx(found.logprobs, abs=1e-5)


def test_rookworlds_rows_survive_its_tokenizer(tmp_path):
    """
    Text to tokens and back is exact, padding included, as transformers' tokenizer has it.

    A prompt that ends after `M:` is a prefix of its row in tokens too, so the model goes on as it
    was trained. `<|endoftext|>` is the last id, and a text that spells it has not that id.
    """
    vocab = write_tokenizer(tmp_path)
    tokenizer = ModelSource.parse(f"gpt2:{_with_config(tmp_path, vocab)}").tokenizer()
    assert tokenizer.eos_id == vocab - 1 == tokenizer.vocab_size - 1
    row = tokenizer.encode(ROW)
    assert tokenizer.decode(row) == ROW
    prompt = tokenizer.encode(PROMPTS[0])
    assert row[: len(prompt)] == prompt
    assert tokenizer.eos_id not in tokenizer.encode("B: h7f6<|endoftext|>")
    peer = transformers.GPT2Tokenizer.from_pretrained(tmp_path)
    assert peer.encode(ROW) == row


def _with_config(directory: Path, vocab: int) -> Path:
    (directory / "config.json").write_text(
        json.dumps({"model_type": "gpt2", "vocab_size": vocab, "n_embd": 8, "n_head": 1})
    )
    return directory


def test_the_published_names_and_shapes_at_124m():
    """Every tensor of transformers' 124M GPT-2 has its place in ours, Conv1D transposed."""
    with torch.device("meta"):
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config())
        ours = GPT2(GPT2Config())
    conv1d = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    stored = {
        name.removeprefix("transformer."): tuple(value.shape)
        for name, value in theirs.named_parameters()  # a tied head is listed once
    }
    expected = {
        name: tuple(value.t().shape) if name.endswith(conv1d) else tuple(value.shape)
        for name, value in ours.named_parameters()
    }
    assert stored == expected
