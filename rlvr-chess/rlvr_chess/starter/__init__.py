"""The starter: positions with tables, questions of rare kinds, and a small model."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

QUESTIONS = Path(__file__).parent / "questions.jsonl"
"""Environment questions, with their split, of the kinds that the positions hardly ask."""


def starter_model() -> str:
    """The starter model's spec: a GPT-2 directory that ships with this package."""
    return f"gpt2:{files('rlvr_chess.starter') / 'model'}"
