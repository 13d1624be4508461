"""Tokenizers of models: exact bytes, the model's own chat template, image processors.

For backends that have a model's tokenizer in the form of the `tokenizers` library, as transformers
does; nothing of either is imported here.
"""

from __future__ import annotations

from rlvr.tokenization.chat_template import ChatTemplate, Piece
from rlvr.tokenization.fingerprint import fingerprint
from rlvr.tokenization.image_processor import ImageProcessor
from rlvr.tokenization.load import (
    end_ids,
    listed,
    load_tokenizer,
    unreadable_tokenizer,
    wrapped_tokenizer,
)
from rlvr.tokenization.template_variables import check_known, parse_variables, variables_of
from rlvr.tokenization.token_bytes import ByteLevel, byte_table
from rlvr.tokenization.transformers import FastTokenizer

__all__ = [
    "ByteLevel",
    "ChatTemplate",
    "FastTokenizer",
    "ImageProcessor",
    "Piece",
    "byte_table",
    "check_known",
    "end_ids",
    "fingerprint",
    "listed",
    "load_tokenizer",
    "parse_variables",
    "unreadable_tokenizer",
    "variables_of",
    "wrapped_tokenizer",
]
