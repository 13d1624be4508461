"""The values that travel from part to part: frozen records of plain data, no tensors, no behaviour.

Shapes: P problems, G group, D data, T tokens. Logprobs are natural logarithms (nats) of the
sampled tokens. Arrays are read-only NumPy, so a record pickles, prints, compares and goes to JSON.
"""

from rlvr.types.datum import Ask, Datum, Distribution, Question, States, TopK
from rlvr.types.frozen import EMPTY, BoolArray, FloatArray, FrozenMap, IntArray, as_tuple
from rlvr.types.problem import Message, Problem
from rlvr.types.reward import Failed, Group, Outcome, Probe, Reward, ScoredGroup, Unscorable
from rlvr.types.run import Checkpoint, EvalReport, Figure, PassRate, RunInfo
from rlvr.types.sampling import Completion, GenerateRequest, SamplingParams
from rlvr.types.trajectory import Author, Finish, Image, Segment, Trajectory

__all__ = ["EMPTY", "Ask", "Author", "BoolArray", "Checkpoint", "Completion", "Datum"]
__all__ += ["Distribution", "EvalReport", "Failed", "Figure", "Finish", "FloatArray", "FrozenMap"]
__all__ += ["GenerateRequest", "Group", "Image", "IntArray", "Message", "Outcome", "PassRate"]
__all__ += ["Probe", "Problem", "Question", "Reward", "RunInfo", "SamplingParams", "ScoredGroup"]
__all__ += ["Segment", "States", "TopK", "Trajectory", "Unscorable", "as_tuple"]
