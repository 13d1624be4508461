"""A hash of a tokenizer's content, as names and sizes say little."""

from __future__ import annotations

import hashlib

import numpy as np

from rlvr.parts import Tokenizer

_SAMPLE = (
    'The  quick\n\tbrown fox\'s 12345 jumps... Größe 雪 def f(x): <tool_call>{"a": [1, 2]}\r\n'
)


def fingerprint(tokenizer: Tokenizer) -> str:
    """
    sha256 over all tokens' bytes (their texts, where they have none) and how a text is cut.

    Equal fingerprints mean that ids of one are ids of the other.
    """
    digest = hashlib.sha256()
    for token in range(tokenizer.vocab_size):
        spelled = tokenizer.bytes_of(token)
        digest.update(len(spelled).to_bytes(4, "little") + spelled)
    try:
        cut = list(tokenizer.encode(_SAMPLE))
    except ValueError:  # a tokenizer of few characters
        cut = []
    digest.update(np.asarray(cut, dtype=np.int64).tobytes())
    return digest.hexdigest()
