"""Find the ids behind the texts that a server writes for tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlvr import Tokenizer

_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")
_LOST = "\N{REPLACEMENT CHARACTER}"


class TokenTexts:
    r"""
    A tokenizer's ids by what they are written as: texts, `bytes:\xe2\x80`, `token_id:5`.

    Args:
        tokenizer: With exact bytes, or a `decode` that is right for single ids.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._spell = dict(enumerate(map(tokenizer.bytes_of, range(tokenizer.vocab_size))))
        self._ids: dict[bytes, list[int]] = {}
        for token, spelled in self._spell.items():
            self._ids.setdefault(spelled, []).append(token)
        self._ends = tokenizer.ends

    def id_of(self, text: str) -> int | None:
        """The only id with this text; None if there is none, or several."""
        if text.startswith("token_id:") and text[9:].isdecimal():
            return int(text[9:])
        found = self._ids.get(_raw(text), []) if text else []
        return found[0] if len(found) == 1 else None

    def may_be(self, text: str, token: int) -> bool:
        """Whether a server that scored the id could have written this text for it."""
        if text.startswith("token_id:") and text[9:].isdecimal():
            return int(text[9:]) == token
        spelled = self._spell.get(token, b"")
        if _raw(text) == spelled:
            return True
        if token in self._ends:  # often left out of a text
            return text == ""
        # part of a character: servers drop it, or write U+FFFD
        return not _is_text(spelled) and not text.replace(_LOST, "").strip()

    def text(self, ids: Sequence[int]) -> str | None:
        """The text of the ids; None if their bytes are not UTF-8."""
        whole = b"".join(self._spell.get(int(i), b"\xff") for i in ids)
        return whole.decode() if _is_text(whole) else None

    def shown(self, token: int) -> str:
        """An id for an error."""
        spelled = self._spell.get(token, b"")
        return f"id {token} ({spelled!r})"


def _raw(text: str) -> bytes:
    if text.startswith("bytes:"):
        return bytes(int(found, 16) for found in _ESCAPED.findall(text))
    return text.encode("utf-8", "surrogatepass")


def _is_text(spelled: bytes) -> bool:
    try:
        spelled.decode()
    except UnicodeDecodeError:
        return False
    return True
