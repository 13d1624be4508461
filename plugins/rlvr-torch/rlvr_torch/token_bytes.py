"""The bytes of token ids: `rlvr.tokenization.token_bytes`, under the name it had here."""

from rlvr.tokenization.token_bytes import ByteLevel, byte_of_character, byte_table

__all__ = ["ByteLevel", "byte_of_character", "byte_table"]
