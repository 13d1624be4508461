"""
Real tokenizers: Qwen's and gpt-oss's, where their files are, and two trained here in any case.

The files come inside two packages of PyPI and are read out of them, unpacked or not:

    pip download --no-deps --dest DIR dashscope llama-index-core
    RLVR_TOKENIZERS=DIR python -m pytest tests/tokenization/test_align_public.py

`scripts/setup.sh dev` fetches them into the environment, where they are found without the variable.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import sys
import zipfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlvr import Datum, Message, Tokenizer
from rlvr.testing import shared_data
from rlvr_distill.cross_tokenizer.sequence import Reader, TeacherSequence
from rlvr_distill.cross_tokenizer.token_bytes import TokenBytes
from rlvr_distill.cross_tokenizer.vocabulary_map import VocabularyMap

QWEN = (
    "dashscope",
    "resources/qwen.tiktoken",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
)
O200K = (
    "llama_index/core",
    "_static/tiktoken_cache/fb374d419588a4632f3f557e76b4b70aebbca790",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve"
    r"|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ["<|return|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>"],
)
TEXTS = [
    "Thought 1: I need 1234 units, 56.78 %.\nAction: search[Größe 雪 \U0001f469\u200d\U0001f467]",
    '{"name": "get_user", "arguments": {"id": "mei_9183", "zip": 76165}}\n\n    def f(x):\n\t  x',
    "module top #(parameter N = 8)(input wire [N-1:0] a, output reg q); endmodule // don't",
]


class Ranks(Tokenizer):
    """A tokenizer of tiktoken's file format: a rank for each byte string, a pattern of words."""

    has_bytes = True

    def __init__(self, lines: Sequence[str], pattern: str, controls: Sequence[str]) -> None:
        regex = pytest.importorskip("regex", reason="regex is not installed: pip install regex")
        self.pattern = regex.compile(pattern)
        pairs = (line.split() for line in lines if line.strip())
        self.ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
        size = max(self.ranks.values()) + 1
        self.table = [b""] * size + [name.encode() for name in controls]
        for spelled, rank in self.ranks.items():
            self.table[rank] = spelled
        self.vocab_size, self.eos_id = len(self.table), size
        self.control_ids = frozenset(range(size, len(self.table)))
        self.named = {name: size + i for i, name in enumerate(controls)}
        self.words: dict[bytes, list[int]] = {}

    def bytes_of(self, token: int) -> bytes:
        return self.table[token]

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(self.table[t] for t in tokens).decode(errors="replace")

    def encode(self, text: str) -> list[int]:
        return [t for word in self.pattern.findall(text) for t in self._word(word.encode())]

    def _word(self, raw: bytes) -> list[int]:
        if raw not in self.words:
            parts = [raw[i : i + 1] for i in range(len(raw))]
            while len(parts) > 1:
                pairs = [self.ranks.get(a + b, 1 << 30) for a, b in pairwise(parts)]
                at = min(range(len(pairs)), key=pairs.__getitem__)
                if pairs[at] == 1 << 30:
                    break
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
            self.words[raw] = [self.ranks[part] for part in parts]
        return self.words[raw]

    def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
        return self.encode("\n".join(m.content for m in messages))


def file_of(package: str, path: str) -> list[str]:
    """Lines of a file of a package: installed, or in a wheel of RLVR_TOKENIZERS."""
    name = f"{package}/{path}"
    wheels = Path(os.environ.get("RLVR_TOKENIZERS", Path(sys.prefix, "tokenizers")))
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            if name in archive.namelist():
                return archive.read(name).decode().splitlines()
    top, _, rest = package.partition("/")
    spec = importlib.util.find_spec(top)
    for folder in spec.submodule_search_locations or () if spec else ():
        if (file := Path(folder) / rest / path).is_file():
            return file.read_text().splitlines()
    pytest.skip(f"no {name}: see the head of this file for the two commands")


@pytest.fixture(scope="module")
def qwen() -> Ranks:
    """Qwen's, 151,643 byte strings."""
    package, path, pattern, controls = QWEN
    return Ranks(file_of(package, path), pattern, controls)


@pytest.fixture(scope="module")
def o200k() -> Ranks:
    """gpt-oss's, 199,998 byte strings, with Harmony's control tokens."""
    package, path, pattern, controls = O200K
    return Ranks(file_of(package, path), pattern, controls)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Agents' transcripts, some of each source."""
    lines = (shared_data("trajectories") / "gold_spans.jsonl").read_text().splitlines()
    found: dict[str, list[str]] = {}
    for line in lines:
        record = json.loads(line)
        found.setdefault(record["source"], []).append(record["text"][:3000])
    return [text for own in found.values() for text in own[:2]]


def read(ours: Any, theirs: Any, text: str) -> tuple[Datum, TeacherSequence]:
    """A policy's text as a teacher with another tokenizer reads it."""
    ids = [*ours.encode("Hi\n"), *ours.encode(text)]
    mask = np.arange(len(ids)) >= len(ours.encode("Hi\n"))
    datum = Datum(tokens=ids, mask=mask, logprobs=-1.0 * mask, advantages=0.0 * mask, weights=mask)
    reader = Reader(spelling(ours), spelling(theirs), lambda _: None)
    return datum, reader.read(datum)


_SPELLINGS: dict[int, tuple[Any, TokenBytes]] = {}


def spelling(tokenizer: Any) -> TokenBytes:
    """Made once; the tokenizer is kept beside it, so that no other one gets its id."""
    if id(tokenizer) not in _SPELLINGS:
        _SPELLINGS[id(tokenizer)] = tokenizer, TokenBytes(tokenizer)
    return _SPELLINGS[id(tokenizer)][1]


def spelt(tokenizer: Any, tokens: Any, groups: Any) -> dict[int, bytes]:
    """What the tokens of each group spell together."""
    found: dict[int, bytes] = {}
    for token, group in zip(tokens.tolist(), groups.tolist(), strict=True):
        if group >= 0:
            found[group] = found.get(group, b"") + tokenizer.bytes_of(token)
    return found


def check(ours: Any, theirs: Any, text: str) -> tuple[int, int]:
    """That both tokens of each group spell the same; how many of ours are 1-1, and how many."""
    datum, found = read(ours, theirs, text)
    assert theirs.decode(found.tokens) == f"Hi\n{text}"
    assert spelt(ours, datum.tokens, found.alignment.ours) == spelt(
        theirs, found.tokens, found.alignment.theirs
    )
    assert (found.alignment.ours[datum.mask] >= 0).all()
    return int(found.alignment.is_single.sum()), int(datum.mask.sum())


def test_qwen_and_gpt_oss_share_what_they_are_known_to(qwen: Ranks, o200k: Ranks) -> None:
    """98,863 byte strings: 65.2 % of Qwen's, 49.4 % of gpt-oss's."""
    ours, theirs = spelling(qwen).texts, spelling(o200k).texts

    assert (len(ours), len(theirs), len(ours & theirs)) == (151_643, 199_998, 98_863)


def test_qwen_cuts_digits_singly_and_gpt_oss_by_three(qwen: Ranks, o200k: Ranks) -> None:
    """`1234` is four tokens here and two there: one group of 3-1, one of 1-1."""
    _, found = read(qwen, o200k, "1234")

    assert found.alignment.ours_in.tolist() == [3, 1]
    assert found.alignment.theirs_in.tolist() == [1, 1]
    assert found.alignment.is_single.tolist() == [False, True]


@pytest.mark.parametrize("text", TEXTS)
def test_every_byte_is_in_a_group(qwen: Ranks, o200k: Ranks, text: str) -> None:
    """Both ways, in code, JSON, scripts, and characters cut in half."""
    check(qwen, o200k, text)
    check(o200k, qwen, text)


def test_most_tokens_of_agents_texts_are_one_to_one(
    qwen: Ranks, o200k: Ranks, texts: list[str]
) -> None:
    """At least 85 % of the student's tokens, whichever of the two is the student."""
    for ours, theirs in ((qwen, o200k), (o200k, qwen)):
        counts = np.array([check(ours, theirs, text) for text in texts])
        single, whole = counts.sum(0)
        assert single / whole >= 0.85


def test_likely_tokens_are_projected(qwen: Ranks, o200k: Ranks) -> None:
    """An equal byte string is itself; a longer one its first token; a turn's end the answer's."""
    projection = VocabularyMap(spelling(o200k), spelling(qwen))

    def seen(raw: bytes) -> tuple[bytes, bool]:
        index, is_equal = projection.id_of(o200k.ranks[raw])
        return qwen.bytes_of(index), is_equal

    assert seen(b" the") == (b" the", True)
    assert seen(b"123") == (b"1", False)
    assert projection.id_of(o200k.named["<|return|>"]) == (qwen.eos_id, True)
    assert projection.id_of(o200k.named["<|channel|>"]) == (-1, False)


def test_two_tokenizers_trained_here() -> None:
    """Of small and large vocabularies, on these tests' own sources: every byte is in a group."""
    torch_tokenizer = pytest.importorskip("rlvr_torch.models.bpe", reason="needs rlvr-torch")
    train = torch_tokenizer.BytePairTokenizer.train
    sources = [file.read_text() for file in sorted(Path(__file__).parent.glob("*.py"))]
    small, large = train(sources[:2], 400), train(sources[1:], 1500)

    for text in [*TEXTS, *sources]:
        for ours, theirs in ((small, large), (large, small)):
            single, whole = check(ours, theirs, text)
            assert 0 < single < whole or len(text) < 200
