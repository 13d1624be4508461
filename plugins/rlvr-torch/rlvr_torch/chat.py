"""Chat templates: `rlvr.tokenization.chat`, under the name it had here."""

from rlvr.tokenization.chat import ChatTemplate, Piece

__all__ = ["ChatTemplate", "Piece"]
