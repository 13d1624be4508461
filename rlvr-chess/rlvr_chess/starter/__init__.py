"""The starter: positions with tables, questions of rare kinds, and a small model."""

from __future__ import annotations

from pathlib import Path

QUESTIONS = Path(__file__).parent / "questions.jsonl"
"""Held-out environment questions of the kinds that the positions by themselves hardly ask."""
