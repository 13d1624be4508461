"""The starter: positions with tables, questions of rare kinds, and a small model."""

from __future__ import annotations

from pathlib import Path

QUESTIONS = Path(__file__).parent / "questions.jsonl"
"""Environment questions, with their split, of the kinds that the positions hardly ask."""
