"""What a loss, an advantage, a backend or a task may be able to do besides (optional Protocols).

The line asks `isinstance` and goes the simple way where a part does not have the ability. All of
them are pure functions of their arguments, so that an interrupted run goes on exactly.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from attrs import field, frozen

from rlvr.parts import Policy
from rlvr.types import Datum, Figure, Probe, Problem, Reward, ScoredGroup, Trajectory


@runtime_checkable
class TokenCredit(Protocol):
    """
    An advantage that has the last word token by token, once other models were heard.

    `needs` names annotations, as `Loss.needs` does: "reference", "teacher", "value" (the critic's
    estimate before each token), "policy" (the trainer's own logprobs before the step).
    """

    needs: frozenset[str]

    def refine(self, data: Sequence[Datum]) -> list[Datum]:
        """
        The data of one step with the `advantages` (T,) to train on; order and number are kept.

        They come with the annotations that were asked for; more may be added for the loss
        ("return", say). Each datum's advantages hold the trajectory's, on every policy token.
        """


@runtime_checkable
class Taught(Protocol):
    """
    An advantage or a loss that asks other models what they think of the policy's tokens.

    `teachers` are their model specs by the name of the annotation: {"teacher": "gpt2:PATH"}. The
    run opens each through the plugin that takes its scheme (`rlvr.parts.Teacher`), and asks it,
    not the backend, for the annotation of that name wherever a part `needs` it. The options that
    the model specs come from stand in the part's spec (`AdvantageSpec.teachers`).
    """

    teachers: Mapping[str, str]


@frozen(kw_only=True)
class NamedForm:
    """
    A service's built-in loss, by its name there, that is the same formula as a loss of ours.

    The service's sum over tokens equals the loss, and so does its gradient, where the advantages
    (for `cross_entropy` its weights) that are sent are `datum.advantages * datum.weights`.

    Attributes:
        name: As Tinker calls it: cross_entropy, importance_sampling, ppo, cispo, gspo.
        config: Settings by the service's names, such as "clip_low_threshold".
        masks: Further inputs of each datum that are its `mask` as 0 and 1.
    """

    name: str
    config: Mapping[str, float] = field(factory=dict)
    masks: tuple[str, ...] = ()


@runtime_checkable
class NamedLoss(Protocol):
    """A loss that a service may know by a name, and then computes without asking us."""

    def named(self) -> NamedForm | None:
        """The built-in loss that it equals with its present settings; None where none does."""


@runtime_checkable
class Selective(Protocol):
    """An advantage that learns nothing from some groups: others take their place."""

    refills: int
    """Bound of the further groups of a step, as a multiple of `train.problems`."""

    def keeps(self, group: ScoredGroup) -> bool:
        """Whether training should see the group (all its trajectories have a reward)."""


@runtime_checkable
class Telling(Protocol):
    """An advantage that has numbers of its own to tell of a step."""

    def numbers(self, data: Sequence[Datum]) -> Mapping[str, float]:
        """Metrics by path, of the data as they are trained on; never of an empty step."""


@runtime_checkable
class Adaptive(Protocol):
    """A loss or an advantage with a setting that follows the training (an adaptive KL weight)."""

    def adapted(
        self, memory: Mapping[str, float], metrics: Mapping[str, float]
    ) -> Mapping[str, float]:
        """The memory after a step that gave `metrics`; {} at the start. Kept in checkpoints."""

    def recalled(self, memory: Mapping[str, float]) -> Self:
        """The same part with the settings that the memory says."""


@runtime_checkable
class Watchful(Protocol):
    """A loss or an advantage that sees in a step's metrics when something is wrong."""

    def notices(self, metrics: Mapping[str, float]) -> Iterable[str]:
        """What a person should know; logged as warnings."""


@runtime_checkable
class Opinionated(Protocol):
    """A task that chooses problems (`Chooser`) and says whether anybody asked for that."""

    chooses_by: str
    """The option that asks for its choice, `NAMESPACE.KEY=VALUE`; "" where it gives epochs."""


@runtime_checkable
class ForwardLoss(Protocol):
    """
    A loss that needs more of the forward pass than logprobs.

    `outputs` names what: "entropy" (of the distribution a token was drawn from, nats, at the
    datum's temperature), "value" (the critic's estimate before the token). It is then called as
    `loss(data, logprobs, outputs)`; `outputs[name]` is a list of tensors like `logprobs`, with
    gradients. Where `outputs` is empty it is called like any other. A backend that cannot give an
    output refuses the loss.

    Two come together, for losses over whole distributions. "hidden": the states before the output
    head at each datum's n supervised tokens, (n, C). "head": a list of one object with `weights`
    (V, C), `bias` (V,) or None, `scale` and `softcap` (0: none); logits are
    `cap(scale * (W h + b))`, weights and bias are leaves that need a gradient unless frozen. A
    loss may then say `uses_logprobs = False`: its `logprobs` are zeros, and cost nothing.
    """

    outputs: frozenset[str]

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Any],
        outputs: Mapping[str, Sequence[Any]] | None = None,
    ) -> tuple[Any, dict[str, float]]: ...


@runtime_checkable
class Appraising(Protocol):
    """A backend that can say what a loss comes to, and leave its weights alone."""

    async def appraise(self, data: Sequence[Datum], loss: Any) -> dict[str, float]:
        """`loss` and the loss's metrics on the data, as `Backend.step` would give them."""


@runtime_checkable
class Recorded(Protocol):
    """
    A task whose trajectories exist already, and are learnt from as they are.

    Where `is_recorded`, an evaluation in a run samples nothing and judges nothing: the run's own
    sampler replays the held-out problems, the backend appraises the loss on them (`Appraising`),
    and `EvalReport.measures` tells what it came to.
    """

    is_recorded: bool


@runtime_checkable
class Annotating(Protocol):
    """A task that knows more of each token of a trajectory: what kind of span it stands in, say."""

    def annotations(self, problem: Problem, trajectory: Trajectory) -> Mapping[str, Any]:
        """Numbers (T,) by name, aligned with `trajectory.tokens`; they join the datum's own."""


@runtime_checkable
class Sparing(Protocol):
    """A checkpointer that keeps the newest few, and can be told of one that is not to go."""

    def spare(self, step: int | None) -> None:
        """The checkpoint of this step stays until another one is named; None: only the newest."""


@runtime_checkable
class Imprecise(Protocol):
    """A backend whose sampler and trainer round differently, by up to `parity_threshold` nats."""

    parity_threshold: float


@runtime_checkable
class ClosesTurns(Protocol):
    """A tokenizer whose chat template closes the policy's turn before the next one begins."""

    def closing(self, tokens: Sequence[int]) -> list[int]:
        """What comes after `tokens` when the policy broke off; [] where it ended its turn."""


@runtime_checkable
class Portable(Protocol):
    """A policy whose weights another program can be given."""

    async def write(self, directory: Path) -> None:
        """Write its weights, as a model or an adapter; `BackendError` where they changed since."""


@runtime_checkable
class Continuing(Protocol):
    """A backend whose sampling goes on while its weights change: partial rollouts."""

    async def live_policy(self) -> Policy:
        """It draws each token with the newest weights; `version` and `digest` are those of now."""


@runtime_checkable
class Noticing(Protocol):
    """A task that has something to say before a model is trained on it."""

    def notices(self, split: str) -> Iterable[str]:
        """What a person should know about the problems of a split; said once at the start."""


@runtime_checkable
class Auditable(Protocol):
    """A task that knows which answers its verifier has to reject (optional), for `rlvr audit`."""

    def probes(self, problem: Problem, *, count: int, seed: int) -> Iterable[Probe]:
        """
        Answers whose verdict is known: trivial ones, and about `count` mutants of the reference.

        A larger `count` gives the same ones and more; what does not even parse is left out.
        """


@runtime_checkable
class Proving(Protocol):
    """A task that can prove that a wrong-looking answer is right after all (optional)."""

    def is_equivalent(self, problem: Problem, probe: Probe) -> bool | None:
        """True with a proof, False with a state and input that differ, else None. In a thread."""


@runtime_checkable
class Costed(Protocol):
    """A reward that can tell which verifications take long (optional): those begin first."""

    def expected_s(self, problem: Problem, trajectory: Trajectory) -> float:
        """About how long it takes, seconds; 0 where nobody knows."""


@runtime_checkable
class Rechecking(Protocol):
    """
    A reward with a slower, stricter judge of the same answers (docs/second-opinion.md).

    A run asks the reward itself, never what `scheduled` gave. Wrappers of rewards forward it.
    """

    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Reward | None:
        """
        The stricter verdict: `score01` is 1 where the answer is right; None: no opinion on it.

        Raises `VerifierError` where it could not run: counted apart, not as a rejection.
        """


@runtime_checkable
class Growing(Protocol):
    """A task that finds further problems by what the policy does: self-play, exploration."""

    async def grow(
        self, policy: Policy, memory: Mapping[str, Any], *, seed: int, step: int
    ) -> Mapping[str, Any]:
        """
        The memory before the problems of a step (0-based) are chosen; {} at the start.

        JSON values only: it is kept in checkpoints. A function of its arguments, so that an
        interrupted run goes on exactly.
        """

    def grown(self, memory: Mapping[str, Any]) -> Sequence[Problem]:
        """The problems that the memory holds; their ids are never those of `problems`."""


@runtime_checkable
class Measuring(Protocol):
    """A task that knows more to measure of a policy than how often it is right."""

    def measure(self, policy: Policy, *, split: str, seed: int) -> AsyncIterator[Figure]:
        """Numbers of `rlvr eval`, one after another, each shown when it is there."""
