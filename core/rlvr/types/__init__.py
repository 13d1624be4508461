"""The values that travel from part to part: frozen records of plain data, no tensors, no behaviour.

Shapes: P problems, G group, D data, T tokens. Logprobs are natural logarithms (nats) of the
sampled tokens. Arrays are read-only NumPy, so a record pickles, prints, compares and goes to JSON.
"""

from rlvr.types.datum import (
    Datum,
    Distribution,
    DistributionRequest,
    HiddenStates,
    TeacherRequest,
    TopK,
)
from rlvr.types.frozen import EMPTY, BoolArray, FloatArray, FrozenMap, IntArray, as_tuple
from rlvr.types.problem import Message, Problem
from rlvr.types.reward import Failed, Group, Outcome, Probe, Reward, ScoredGroup, Unscorable
from rlvr.types.run import Checkpoint, EvalReport, Metric, PassRate, RunInfo
from rlvr.types.sampling import Completion, GenerateRequest, SamplingParams
from rlvr.types.trajectory import Author, Finish, Image, Segment, Trajectory

__all__ = ["EMPTY", "Author", "BoolArray", "Checkpoint", "Completion", "Datum", "Distribution"]
__all__ += ["DistributionRequest", "EvalReport", "Failed", "Finish", "FloatArray", "FrozenMap"]
__all__ += ["GenerateRequest", "Group", "HiddenStates", "Image", "IntArray", "Message", "Metric"]
__all__ += ["Outcome", "PassRate", "Probe", "Problem", "Reward", "RunInfo", "SamplingParams"]
__all__ += [
    "ScoredGroup",
    "Segment",
    "TeacherRequest",
    "TopK",
    "Trajectory",
    "Unscorable",
    "as_tuple",
]
