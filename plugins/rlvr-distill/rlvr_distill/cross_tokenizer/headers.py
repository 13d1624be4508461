"""Text of a policy that belongs to its chat template: the header of a turn or of a channel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlvr import IntArray
from rlvr_distill.cross_tokenizer.token_bytes import TokenBytes

_HEADERS = {
    b"<|start|>": b"<|message|>",
    b"<|channel|>": b"<|message|>",
    b"<|constrain|>": b"<|message|>",
    b"<|start_header_id|>": b"<|end_header_id|>",
    b"<|im_start|>": b"\n",
    b"<start_of_turn>": b"\n",
}
"""Control tokens that open a header, and what closes it (Harmony, Llama 3, ChatML, Gemma)."""


def in_headers(tokens: IntArray, spelling: TokenBytes) -> NDArray[np.bool_]:
    """(T,) True at text tokens that name a role or a channel: `analysis` after `<|channel|>`."""
    found = np.zeros(len(tokens), bool)
    closer = b""
    is_control = spelling.lengths_of(tokens) == 0
    if not is_control.any():
        return found
    for at, token in enumerate(tokens.tolist()):
        spelled = spelling.bytes_of(token)
        if is_control[at]:
            closer = _HEADERS.get(spelled, b"")
        elif closer:
            found[at] = True
            if closer in spelled:
                closer = b""
    return found
