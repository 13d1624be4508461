"""Seeds: numbers that follow from names, equal on every machine."""

from __future__ import annotations

import hashlib

__all__ = ["seed_of"]


def seed_of(*parts: object) -> int:
    """A 63-bit seed that depends on every part, equal on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
