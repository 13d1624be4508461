"""Small working parts for tests: they keep the promises of `rlvr.parts` on a tiny scale."""

from __future__ import annotations

from rlvr.testing.fakes.data import random_data
from rlvr.testing.fakes.policy import ScriptedPolicy
from rlvr.testing.fakes.teacher import TinyRevealer, TinyTeacher
from rlvr.testing.fakes.tiny import TinyBackend
from rlvr.testing.fakes.tokenizer import CharTokenizer
from rlvr.testing.fakes.toy import CentredAdvantage, ReinforceLoss, ToyReward, ToyTask

__all__ = [
    "CentredAdvantage",
    "CharTokenizer",
    "ReinforceLoss",
    "ScriptedPolicy",
    "TinyBackend",
    "TinyRevealer",
    "TinyTeacher",
    "ToyReward",
    "ToyTask",
    "random_data",
]
