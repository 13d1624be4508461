"""The tokenizer of the house: byte-level BPE with a token for every word of its language."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from rlvr_household.layout import CHANGES, FURNITURE, MOVABLE, THINGS
from rlvr_household.state import VERBS
from rlvr_torch.models.bpe import END_OF_TEXT, BytePairTokenizer

MARKS = ("Thought:", "Action:", "Observation:", "Task:", "Rooms:")
PLAIN = "need try look in is it take here dirty wrong down closed empty Nothing happens. You hold"
PIECES = r"(?:Thought|Action|Observation|Task|Rooms):| ?[A-Za-z]+\.?|[\s\S]"
REPEATS = 3  # the trainer learns only what it meets more than once


def words() -> list[str]:
    """Every word there is."""
    rooms, things = list(FURNITURE), list(THINGS)
    pieces = [piece for own in FURNITURE.values() for piece in own]
    found = [*rooms, *things, *pieces, *MOVABLE, *VERBS, *CHANGES, *PLAIN.split()]
    return sorted(set(found))


def whole_pieces() -> Iterator[str]:
    """Texts, each of which should be one token."""
    yield from MARKS
    for word in words():
        yield from (word, f" {word}")


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
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"[\s\S]+"), behavior="isolated"), bytes_only]
    )
    inner.decoder = decoders.ByteLevel()
    pieces = itertools.chain.from_iterable([piece] * REPEATS for piece in whole_pieces())
    inner.train_from_iterator(pieces, trainer)
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(PIECES), behavior="isolated"), bytes_only]
    )
    return BytePairTokenizer(inner)
