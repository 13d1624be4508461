"""The values that travel along the line: frozen records of plain data, no tensors, no behaviour.

Shapes: P problems, G group, D data, T tokens. Logprobs are natural logarithms (nats) of the
sampled tokens. Arrays are read-only NumPy, so a record pickles, prints, compares and goes to JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import attrs
import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

IntArray: TypeAlias = NDArray[np.int32]
FloatArray: TypeAlias = NDArray[np.float32]
BoolArray: TypeAlias = NDArray[np.bool_]

Author = Literal["prompt", "policy", "env"]
Finish = Literal["stop", "length", "error"]

_EQUAL = attrs.cmp_using(eq=np.array_equal)


# Converters are named functions, one a type: mypy reads a field's accepted types from them.


def _frozen_array(values: ArrayLike, dtype: Any) -> NDArray[Any]:
    array = np.array(values, dtype=dtype)
    array.flags.writeable = False
    return array


def _ints(values: ArrayLike) -> IntArray:
    return _frozen_array(values, np.int32)


def _floats(values: ArrayLike) -> FloatArray:
    return _frozen_array(values, np.float32)


def _optional_floats(values: ArrayLike | None) -> FloatArray | None:
    return None if values is None else _floats(values)


def _bools(values: ArrayLike) -> BoolArray:
    return _frozen_array(values, np.bool_)


def _tuple(values: Iterable[Any]) -> tuple[Any, ...]:
    # `converter=tuple` itself leaves mypy an unbound type variable at every caller
    return tuple(values)


def _frozen_map(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return FrozenMap(values)


class FrozenMap(dict[str, Any]):
    """A mapping that cannot be changed after it was made (a dict, so it pickles and prints)."""

    def _refuse(self, *_args: Any, **_kwargs: Any) -> Any:
        raise TypeError("records are frozen: make a new one with attrs.evolve")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = _refuse
    __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # frozen, so hashable by identity of keys
        return hash(tuple(sorted(self)))

    def __reduce__(self) -> tuple[type[FrozenMap], tuple[dict[str, Any]]]:
        return FrozenMap, (dict(self),)


EMPTY: Mapping[str, Any] = MappingProxyType({})


@frozen(kw_only=True)
class Message:
    """One message of a prompt. `role` is system, user, assistant or tool."""

    role: str
    content: str


@frozen(kw_only=True)
class Problem:
    """
    One prompt with its ground truth.

    `payload` is the domain's own frozen record (a harness, a position); the core never looks
    inside. `digest` is a sha256 over everything that decides a verdict, for the verdict store.
    `notes` say what was done to the prompt, such as what was cut from it (JSON values only).
    """

    id: str
    prompt: tuple[Message, ...] = field(converter=_tuple)
    split: str = "train"
    labels: Mapping[str, str] = field(factory=dict, converter=_frozen_map)
    payload: Any = field(default=None, repr=False)
    digest: str = ""
    notes: Mapping[str, Any] = field(factory=dict, converter=_frozen_map)


@frozen(kw_only=True)
class Segment:
    """
    Contiguous tokens by one author.

    `logprobs` has the shape of `tokens` (T,), in nats, and is present for the policy's tokens
    only: they come from the sampler that drew them and are never computed from text again.
    """

    author: Author
    tokens: IntArray = field(converter=_ints, eq=_EQUAL)
    logprobs: FloatArray | None = field(
        default=None,
        converter=_optional_floats,
        eq=_EQUAL,
    )
    text: str = ""

    def __attrs_post_init__(self) -> None:
        if (self.author == "policy") != (self.logprobs is not None):
            raise ValueError("logprobs belong to the policy's segments, and only to them")
        if self.logprobs is not None and self.logprobs.shape != self.tokens.shape:
            raise ValueError("logprobs and tokens of a segment differ in shape")


@frozen(kw_only=True)
class Trajectory:
    """
    What one rollout left behind: segments in order, and who sampled them.

    `policy_version` and `policy_digest` name the weights that sampled it, the oldest ones where
    they changed on the way; `policy_versions` are then all of them, in order. `files` holds an
    answer that was given as files rather than text (`rlvr score` with `{"id", "files"}`), or the
    files that its episode left behind (`episode.LeavesFiles`). `notes` are what the episode noted
    about its turns (`episode.LeavesNotes`; JSON values only). `prompt_cut` counts prompt tokens
    that did not fit the model's context. `error` says why a rollout broke off (`finish` is then
    "error"). `pictures` (`pictures.Picture`) are those that tokens of it stand for, in order; the
    core only carries them.
    """

    problem_id: str
    segments: tuple[Segment, ...] = field(default=(), converter=_tuple)
    finish: Finish = "stop"
    seed: int = 0
    temperature: float = 1.0
    policy_version: int = 0
    policy_digest: str = ""
    policy_versions: tuple[int, ...] = field(default=(), converter=_tuple)
    files: Mapping[str, str] | None = None
    prompt_cut: int = 0
    error: str = ""
    notes: Mapping[str, Any] = field(factory=dict, converter=_frozen_map)
    pictures: tuple[Any, ...] = field(default=(), converter=_tuple, repr=False)

    @classmethod
    def from_text(cls, problem_id: str, completion: str) -> Trajectory:
        """A trajectory that holds raw model text only (no tokens): what `rlvr score` reads."""
        segment = Segment(author="policy", tokens=[], logprobs=[], text=completion)
        return cls(problem_id=problem_id, segments=(segment,))

    @property
    def completions(self) -> tuple[str, ...]:
        """The policy's texts, one a turn."""
        return tuple(s.text for s in self.segments if s.author == "policy")

    @property
    def completion(self) -> str:
        """The policy's last text: the answer of a single-turn problem."""
        texts = self.completions
        return texts[-1] if texts else ""

    @property
    def tokens(self) -> IntArray:
        """All token ids in order, shape (T,)."""
        return _join([s.tokens for s in self.segments], np.int32)

    @property
    def mask(self) -> BoolArray:
        """True where the policy wrote the token, shape (T,)."""
        parts = [np.full(len(s.tokens), s.author == "policy") for s in self.segments]
        return _join(parts, np.bool_)

    @property
    def logprobs(self) -> FloatArray:
        """Sampler's logprobs, shape (T,), nats; 0 where the policy did not write the token."""
        parts = [
            np.zeros(len(s.tokens), np.float32) if s.logprobs is None else s.logprobs
            for s in self.segments
        ]
        return _join(parts, np.float32)


def _join(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    joined = np.concatenate(parts).astype(dtype) if parts else np.zeros(0, dtype)
    joined.flags.writeable = False
    return joined


@frozen(kw_only=True)
class Probe:
    """
    An answer whose verdict is known beforehand: what `rlvr audit` puts to a verifier.

    Attributes:
        kind: What sort of answer it is: "empty", "operator"; "initial" is what the policy was
            given, unchanged.
        is_right: Whether a verifier has to accept it.
        note: What a person needs to find the place.
        is_mutant: Made of the reference by one small change; counts for a verifier's strength.
    """

    kind: str
    trajectory: Trajectory
    is_right: bool = False
    note: str = ""
    is_mutant: bool = False


@frozen(kw_only=True)
class Reward:
    """
    A verdict. `value` feeds the advantage; `score01` feeds filters, pass@k and curves.

    `score01` is 1.0 exactly when the answer is right. `components` are the named parts of
    `value`; `evidence` is what a person needs to believe it (JSON values only). `cost_s` is what
    the verification took, in seconds; 0 where `cached`. `is_proxy` marks the verdict of a cheaper
    stand-in (`Scheduled`), which never knows that an answer is right: pass rates leave it out.
    """

    value: float
    score01: float
    components: Mapping[str, float] = field(factory=dict, converter=_frozen_map)
    tests_passed: int | None = None
    tests_total: int | None = None
    evidence: Mapping[str, Any] = field(factory=dict, converter=_frozen_map, repr=False)
    cost_s: float = 0.0
    cached: bool = False
    is_proxy: bool = False

    def __attrs_post_init__(self) -> None:
        if self.is_proxy and self.score01 != 0.0:
            raise ValueError(f"a proxy cannot say how right an answer is: score01={self.score01}")
        if not (np.isfinite(self.value) and 0.0 <= self.score01 <= 1.0):
            raise ValueError(
                f"a reward needs a finite value and a score01 in 0..1, "
                f"got value={self.value}, score01={self.score01}"
            )


@frozen(kw_only=True)
class Unscorable:
    """The verifier ran but no verdict exists for this answer. Not a reward: leaves the baseline."""

    reason: str
    evidence: Mapping[str, Any] = field(factory=dict, converter=_frozen_map, repr=False)


@frozen(kw_only=True)
class Failed:
    """The verifier could not run (infrastructure). Not a reward: leaves the baseline, counted."""

    reason: str


Outcome: TypeAlias = Reward | Unscorable | Failed


@frozen(kw_only=True)
class Group:
    """G trajectories of one problem."""

    problem: Problem
    trajectories: tuple[Trajectory, ...] = field(converter=_tuple)


@frozen(kw_only=True)
class ScoredGroup:
    """A group with one outcome for each trajectory."""

    problem: Problem
    trajectories: tuple[Trajectory, ...] = field(converter=_tuple)
    outcomes: tuple[Outcome, ...] = field(converter=_tuple)

    def __attrs_post_init__(self) -> None:
        if len(self.trajectories) != len(self.outcomes):
            raise ValueError("a scored group needs one outcome for each trajectory")

    @property
    def rewards(self) -> tuple[Reward, ...]:
        """The outcomes that are rewards, in order."""
        return tuple(o for o in self.outcomes if isinstance(o, Reward))

    def scored_only(self) -> ScoredGroup:
        """The same group without the trajectories that have no reward."""
        kept = [
            (t, o)
            for t, o in zip(self.trajectories, self.outcomes, strict=True)
            if isinstance(o, Reward)
        ]
        return attrs.evolve(
            self, trajectories=tuple(t for t, _ in kept), outcomes=tuple(o for _, o in kept)
        )


@frozen(kw_only=True)
class TopK:
    """
    The likeliest tokens at n positions, and the one that stands there.

    Attributes:
        ids: (n, k), each at most once a row, in any order; -1: none.
        logprobs: (n, k) nats, at the temperature asked for; -inf where `ids` is -1.
        actual: (n,) nats, of the token that stands at the position.
        is_whole: Whether nothing is left over: k is the vocabulary.
    """

    ids: IntArray = field(converter=_ints, eq=_EQUAL)
    logprobs: FloatArray = field(converter=_floats, eq=_EQUAL)
    actual: FloatArray = field(converter=_floats, eq=_EQUAL)
    is_whole: bool = False

    def rows(self, chosen: Any) -> TopK:
        """The same at some of the positions."""
        return attrs.evolve(
            self,
            ids=self.ids[chosen],
            logprobs=self.logprobs[chosen],
            actual=self.actual[chosen],
        )


@frozen(kw_only=True)
class States:
    """A model's states before its output head at n positions, (n, C)."""

    states: FloatArray = field(converter=_floats, eq=_EQUAL)


Distribution: TypeAlias = TopK | States


@frozen(kw_only=True)
class Datum:
    """
    One training sequence; every array has shape (T,).

    `logprobs[t]` is the sampler's logprob of `tokens[t]` given `tokens[:t]`. `mask[t]` is True
    where the policy wrote `tokens[t]`; elsewhere logprobs, advantages and weights are 0.
    `weights` carry the normalisation (they sum to 1 over the batch of an optimiser step), so that
    every loss is a plain weighted *sum* and splits exactly over micro-batches.
    `temperature` is the one it was sampled at: the trainer divides its logits by it.
    `annotations` hold per-token numbers by name: logprobs by other models ("reference",
    "teacher"), by the trainer before the step ("policy"), a critic's estimates ("value").
    `distributions` hold what teachers think of the next token, by annotation: rows are the
    supervised tokens (`mask`) in order. `labels` and `prompt` (its messages) are the problem's,
    `pictures` the trajectory's.
    """

    tokens: IntArray = field(converter=_ints, eq=_EQUAL)
    mask: BoolArray = field(converter=_bools, eq=_EQUAL)
    logprobs: FloatArray = field(converter=_floats, eq=_EQUAL)
    advantages: FloatArray = field(converter=_floats, eq=_EQUAL)
    weights: FloatArray = field(converter=_floats, eq=_EQUAL)
    temperature: float = 1.0
    problem_id: str = ""
    annotations: Mapping[str, FloatArray] = field(factory=dict, converter=_frozen_map, eq=False)
    distributions: Mapping[str, Distribution] = field(
        factory=dict, converter=_frozen_map, eq=False, repr=False
    )
    labels: Mapping[str, str] = field(factory=dict, converter=_frozen_map)
    prompt: tuple[Message, ...] = field(default=(), converter=_tuple, eq=False, repr=False)
    pictures: tuple[Any, ...] = field(default=(), converter=_tuple, repr=False)


@frozen(kw_only=True)
class SamplingParams:
    """
    How tokens are drawn. `temperature` 0 is greedy. `stop` are texts that end a completion.

    `top_p` 1.0 and `top_k` 0 mean the whole distribution (no truncation). `group_size` is the
    number of trajectories a problem (G); `seed` the root of the seeds of all of them.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = field(default=(), converter=_tuple)
    group_size: int = 1
    seed: int = 0

    @property
    def is_truncated(self) -> bool:
        """True when top-p or top-k cuts the distribution (which biases importance ratios)."""
        return self.top_p < 1.0 or self.top_k > 0


@frozen(kw_only=True)
class Question:
    """
    One sequence that a teacher is to score.

    Attributes:
        ids: (S,) token ids.
        start: First position wanted, at least 1: the answer has rows for `start` to S - 1. The row
            of position t is the distribution that `ids[t]` was drawn from, given `ids[:t]`.
        k: Likeliest tokens a position, at least 1.
        temperature: That the logits are divided by.
        pictures: As `Trajectory.pictures`.
    """

    ids: IntArray = field(converter=_ints, eq=_EQUAL)
    start: int
    k: int
    temperature: float = 1.0
    pictures: tuple[Any, ...] = field(default=(), converter=_tuple, repr=False)


@frozen(kw_only=True)
class GenerateRequest:
    """One completion to sample. Equal `seed`, prompt, weights and params give equal tokens."""

    prompt: IntArray = field(converter=_ints, eq=_EQUAL)
    params: SamplingParams
    seed: int


@frozen(kw_only=True)
class Completion:
    """
    Sampled tokens (T,) with their logprobs (T,), nats, at the temperature they were drawn with.

    Includes the end-of-text token when it was drawn. `text` leaves it, and stop texts, out.
    `versions` are the policy versions that drew it, in order, where a live policy did; else ().
    `error` says why there is none, where `finish` is "error": that rollout fails, and no other.
    """

    tokens: IntArray = field(converter=_ints, eq=_EQUAL)
    logprobs: FloatArray = field(converter=_floats, eq=_EQUAL)
    text: str
    finish: Finish
    versions: tuple[int, ...] = field(default=(), converter=_tuple)
    error: str = ""


@frozen(kw_only=True)
class Checkpoint:
    """A saved state on disk: where, at which step, and the sha256 of its manifest."""

    path: Path
    step: int
    digest: str = ""


@frozen(kw_only=True)
class RunInfo:
    """Identity of a run, for observers. `config` is the resolved configuration, dotted keys."""

    id: str
    directory: Path
    plugin: str
    algo: str
    model: str
    steps: int
    seed: int
    config: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen(kw_only=True)
class PassRate:
    """
    How often a problem was solved lately, for choosing what to train on.

    Attributes:
        rate: Running mean of its groups' mean `score01`: of all groups at first, later an
            exponential moving average.
        count: Groups that made it.
        step: Step (0-based) of the last one.
    """

    rate: float
    count: int
    step: int


@frozen(kw_only=True)
class EvalReport:
    """
    How well a policy solves one split.

    `scores` holds score01 of each sample, by problem id. `pass_at` maps k to the unbiased
    estimate 1 - C(n-c, k)/C(n, k), averaged over problems. `low` and `high` bound pass@1 at 95 %
    (bootstrap over problems). `failed` counts samples whose verification could not run.
    `seen` are the problems of families that the model was trained on; `held_out` is True where
    there are none, None where the problems name no family. `measures` are what the loss came to
    on recorded trajectories (`abilities.Recorded`), by path ("eval/loss"): there is no pass rate
    then, and `scores` hold no samples.
    """

    split: str
    scores: Mapping[str, tuple[float, ...]]
    pass_at: Mapping[int, float]
    low: float
    high: float
    reward_mean: float
    samples: int
    failed: int = 0
    seconds: float = 0.0
    seen: tuple[str, ...] = field(default=(), converter=_tuple)
    held_out: bool | None = None
    measures: Mapping[str, float] = field(factory=dict, converter=_frozen_map)

    @property
    def pass1(self) -> float:
        """Share of samples that are right, averaged over problems."""
        return self.pass_at.get(1, 0.0)


@frozen(kw_only=True)
class Figure:
    """
    One measured number of an evaluation (`abilities.Measuring`).

    `low` and `high` bound it at 95 % (NaN where too little was measured to say); `n` counts what it
    was measured on. `name` is a path ("policy/regret"), `note` what a reader must know to trust it.
    What could not be measured has the value NaN, n = 0 and the reason as its note.
    """

    name: str
    value: float = field(converter=float)
    low: float = field(converter=float)
    high: float = field(converter=float)
    n: int = field(converter=int)
    note: str = ""
