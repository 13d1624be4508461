"""Tokenizers of models as the line needs them: exact bytes, and the model's own chat template.

For backends that have a model's tokenizer in the form of the `tokenizers` library, as transformers
does; nothing of either is imported here.
"""

from __future__ import annotations

from rlvr.tokenization.chat import ChatTemplate, Piece
from rlvr.tokenization.fast import FastTokenizer
from rlvr.tokenization.fingerprint import fingerprint
from rlvr.tokenization.sight import Sight
from rlvr.tokenization.template_variables import check_known, parse_variables, variables_of
from rlvr.tokenization.token_bytes import ByteLevel, byte_table

__all__ = [
    "ByteLevel",
    "ChatTemplate",
    "FastTokenizer",
    "Piece",
    "Sight",
    "byte_table",
    "check_known",
    "fingerprint",
    "parse_variables",
    "variables_of",
]
