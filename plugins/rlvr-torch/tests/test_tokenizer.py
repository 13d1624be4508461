"""Byte-level BPE: every text survives, no text spells a special token."""

from __future__ import annotations

import json

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from rlvr import BackendError, Message, Tokenizer
from rlvr_torch.models.bpe import END_OF_TEXT, BytePairTokenizer

from .conftest import TEXTS

BYTES = BytePairTokenizer.bytes_only()
MERGES = BytePairTokenizer.train(TEXTS, 300)


def test_fulfils_the_protocol(tokenizer):
    """The core can use it as a `Tokenizer`."""
    assert isinstance(tokenizer, Tokenizer)


@given(st.text(max_size=60))
def test_any_text_survives(text):
    """decode(encode(text)) == text for any Unicode, with no merges at all."""
    assert BYTES.decode(BYTES.encode(text)) == text


@given(st.text(alphabet="module ader(){};\n\té€😀", max_size=60))
def test_any_text_survives_merges(text):
    """The same with merges, and the tokens' bytes are the text's UTF-8."""
    ids = MERGES.encode(text)
    assert MERGES.decode(ids) == text
    assert b"".join(map(MERGES.bytes_of, ids)) == text.encode()


def test_training_is_repeatable_and_shortens(tokenizer):
    """Equal texts give equal merges, and frequent words become few tokens."""
    again = BytePairTokenizer.train(TEXTS, vocab_size=300)
    text = "module adder"
    assert tokenizer.encode(text) == again.encode(text)
    assert len(tokenizer.encode(text)) < len(text) / 2
    assert 257 < tokenizer.vocab_size <= 300


def test_a_text_cannot_spell_the_end(tokenizer):
    """A prompt that holds `<|endoftext|>` does not end the model's turn."""
    ids = tokenizer.encode(f"a{END_OF_TEXT}b")
    assert tokenizer.eos_id not in ids
    assert tokenizer.decode(ids) == f"a{END_OF_TEXT}b"


def test_bytes_only_has_257_tokens():
    """One token a byte and the end-of-text token."""
    assert BYTES.vocab_size == 257
    assert len(BYTES.encode("é")) == 2


def test_save_and_load(tokenizer, tmp_path):
    """tokenizer.json gives the same tokens back, also through transformers."""
    tokenizer.save(tmp_path)
    text = "module x; // é\n"
    assert BytePairTokenizer.load(tmp_path).encode(text) == tokenizer.encode(text)
    assert BytePairTokenizer.load(tmp_path / "tokenizer.json").eos_id == tokenizer.eos_id
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert fast.encode(text) == tokenizer.encode(text)


def test_gpt2_vocabulary_files(tokenizer, tmp_path):
    """vocab.json with merges.txt, the format GPT-2 was published in, gives the same tokens."""
    tokenizer.save(tmp_path)
    model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + merges + "\n")
    again = BytePairTokenizer.load(tmp_path)
    text = "module adder(input é);\n"
    assert again.encode(text) == tokenizer.encode(text)
    assert again.eos_id == tokenizer.eos_id


def test_render_joins_and_appends_nothing(tokenizer):
    """A first prompt is the contents joined by newlines; a later turn begins with a newline."""
    messages = [Message(role="system", content="a b"), Message(role="user", content="c")]
    assert tokenizer.decode(tokenizer.render(messages)) == "a b\nc"
    assert tokenizer.decode(tokenizer.render(messages[1:], first=False)) == "\nc"


def test_ids_outside_the_vocabulary_decode_to_nothing(tokenizer):
    """A model with a padded vocabulary may draw such ids."""
    assert tokenizer.decode([10_000, -1]) == ""


@pytest.mark.parametrize("content", ["{}", "not json", '{"model": {"type": "BPE"}}'])
def test_unreadable_files_are_backend_errors(tmp_path, content):
    """A damaged tokenizer.json is named."""
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(BackendError, match="not a readable tokenizer"):
        BytePairTokenizer.load(tmp_path)


def test_missing_files_are_named(tmp_path):
    """An empty directory says what was looked for."""
    with pytest.raises(BackendError, match=r"tokenizer\.json, or vocab\.json with merges\.txt"):
        BytePairTokenizer.load(tmp_path)


def test_other_kinds_of_tokenizer_are_refused(tmp_path):
    """A vocabulary that is not byte-level would break stop texts and decoding."""
    import tokenizers

    vocab = {"[UNK]": 0, "日": 1, END_OF_TEXT: 2}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="[UNK]"))
    inner.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(BackendError, match="not byte-level"):
        BytePairTokenizer.load(tmp_path)
