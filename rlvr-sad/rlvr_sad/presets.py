"""Sets of options for `--preset`: a quick look, everyday training, research."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FAST: Mapping[str, Any] = {
    "distill.loss": "forward_kl",
    "distill.weighting": "uniform",
    "distill.top_k": 20,
    "distill.temperature": 1.0,
    "distill.span_metrics": False,
    "eval.every": 0,
}
"""Forward KL on the teacher's 20 likeliest tokens and the rest; no metrics by span."""

PRODUCTION: Mapping[str, Any] = {
    "distill.loss": "jsd",
    "distill.beta": 0.5,
    "distill.weighting": "uniform",
    "distill.reduction": "token",
    "distill.reasoning_weight": 1.0,
    "distill.action_weight": 1.0,
    "distill.top_k": 64,
    "distill.span_metrics": True,
    "train.decay": "cosine",
    "train.warmup": 10,
    "eval.every": 20,
    "checkpoint.keep": 3,
}
"""JSD on the 64 likeliest and the rest; evaluated every 20 steps, three checkpoints."""

RESEARCH: Mapping[str, Any] = {
    "run.curriculum": "complexity",
    "distill.loss": "akl",
    "distill.weighting": "adaptive",
    "distill.reduction": "token",
    "distill.top_k": 0,
    "distill.span_metrics": True,
    "train.decay": "cosine",
    "train.warmup": 10,
    "eval.every": 10,
    "checkpoint.keep": 3,
}
"""Adaptive KL over whole distributions, adaptive span weights, easy trajectories first."""

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "fast": FAST,
    "production": PRODUCTION,
    "research": RESEARCH,
}
