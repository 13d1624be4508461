"""The starter model's tokenizer: byte-level BPE whose pieces are those of chess lines.

A board is cut into its letters and digits; a square of a move is one token, and so are clocks,
castling rights, the two halves of an evaluation, and the flags after a transition.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from rlvr_torch.models.bpe import END_OF_TEXT, BytePairTokenizer

ENDS = r"[qrbn]?(?:[ +]|$)"  # what follows a move: a row of a board such as "b3b3" is none
PIECES = "|".join(
    (
        r"[PA]: ",
        r" [MEB]:",
        rf" [a-h][1-8](?=[a-h][1-8]{ENDS})",
        rf"(?<=\+)[a-h][1-8](?=[a-h][1-8]{ENDS})",
        rf"(?<=[ +][a-h][1-8])[a-h][1-8](?={ENDS})",
        r" (?:w|b)(?= )",
        r" K?Q?k?q?-?(?= (?:-|[a-h][36]) )",
        r" (?:-|[a-h][36])(?= \d)",
        r" -?\d{1,2}(?!\d)",  # a clock, or the pawns of an evaluation
        r"\.\d\d(?!\d)",
        r" -?#\d{1,2}",
        r"\+(?:1\.0|0\.5|0\.001|-1\.0)\+[01]\+[01]",
        r"[\s\S]",
    )
)
SQUARES = [file + rank for file in "abcdefgh" for rank in "12345678"]
REPEATS = 3  # the trainer learns only what it meets more than once


def whole_pieces() -> Iterator[str]:
    """Texts, each of which should be one token."""
    yield from ("P: ", "A: ", " M:", " E:", " B:", " w", " b", " -")
    for square in SQUARES:
        yield from (square, f" {square}")
    for rights in itertools.product(("K", ""), ("Q", ""), ("k", ""), ("q", "")):
        yield " " + "".join(rights)
    for number in range(100):
        yield from (f" {number}", f".{number:02d}")
    for pawns in range(40):
        yield f" -{pawns}"
    for mate in range(1, 21):
        yield from (f" #{mate}", f" -#{mate}")
    for ends in ("1.0+1+0", "0.5+1+0", "0.001+0+0", "-1.0+0+1"):
        yield f"+{ends}"


def make_tokenizer() -> BytePairTokenizer:
    """A tokenizer that has each of `whole_pieces` as a token, and cuts texts by `PIECES`."""
    inner = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.pre_tokenizer = bytes_only
    inner.decoder = decoders.ByteLevel()
    inner.train_from_iterator(
        itertools.chain.from_iterable([piece] * REPEATS for piece in whole_pieces()), trainer
    )
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(PIECES), behavior="isolated"), bytes_only]
    )
    return BytePairTokenizer(inner)
