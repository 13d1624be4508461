"""The path of the starter model."""

from __future__ import annotations

from importlib.resources import files


def starter_model() -> str:
    """The starter model's spec: a GPT-2 directory that ships with this package."""
    return f"gpt2:{files('rlvr_cvdp.starter') / 'model'}"
