"""The starter model's tokenizer: byte-level BPE whose pieces are those of short Verilog."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from rlvr_torch.models.bpe import END_OF_TEXT, BytePairTokenizer

PIECES = "|".join(
    (
        r" ?\d+'d",  # the width of a literal
        r":0\]",  # the end of most ranges
        r"\d+",  # a number is the same piece in prose and in code, so that it can be copied
        r" ?\p{L}+",
        r" ?[^\s\p{L}\p{N}]+(?:\n *(?= \S)|\n)?",  # signs, with the line's end and indentation
        r"\n *(?= \S)|\n",
        r"\s",
    )
)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> BytePairTokenizer:
    """
    Learn merges inside the pieces that `PIECES` cuts.

    Signs that end a line keep its newline and the next line's indentation, which makes answers a
    fifth shorter than GPT-2's cut does.
    """
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    return BytePairTokenizer(inner)
