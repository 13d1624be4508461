"""The parts that do the work, one base class a kind; a plugin's part derives from one of them.

A part is built by calling the `target` of its spec with `(config, context)`: `config` is an
instance of the spec's own attrs class (or None), `context` a `BuildContext`. `rlvr.parts.base` says
what all of them have in common.
"""

from __future__ import annotations

from rlvr.parts.advantage import Advantage
from rlvr.parts.backend import Backend, Capabilities, Policy, SampledBackend
from rlvr.parts.base import NearMissWarning, Part
from rlvr.parts.build_context import BuildContext
from rlvr.parts.callback import Callback
from rlvr.parts.checkpointer import Checkpointer
from rlvr.parts.curriculum import Curriculum
from rlvr.parts.episode import Episode, EpisodeResult, SingleTurn
from rlvr.parts.loss import Loss, NamedForm, compilable, compiling
from rlvr.parts.needs import LearningPart, Needs
from rlvr.parts.reward import RewardFn, RewardWrapper
from rlvr.parts.sampler import Sampler
from rlvr.parts.task import Task
from rlvr.parts.teacher import Teacher, TeacherCapabilities
from rlvr.parts.tokenizer import Tokenizer

__all__ = [
    "Advantage",
    "Backend",
    "BuildContext",
    "Callback",
    "Capabilities",
    "Checkpointer",
    "Curriculum",
    "Episode",
    "EpisodeResult",
    "LearningPart",
    "Loss",
    "NamedForm",
    "NearMissWarning",
    "Needs",
    "Part",
    "Policy",
    "RewardFn",
    "RewardWrapper",
    "SampledBackend",
    "Sampler",
    "SingleTurn",
    "Task",
    "Teacher",
    "TeacherCapabilities",
    "Tokenizer",
    "compilable",
    "compiling",
]
