"""A task: gives the problems of a domain."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rlvr.parts.base import Part
from rlvr.parts.episode import Episode, SingleTurn
from rlvr.types import Metric, Probe, Problem, Trajectory

if TYPE_CHECKING:
    from rlvr.parts.backend import Policy
    from rlvr.parts.curriculum import Curriculum


class Task(Part):
    """
    Gives problems, episodes and references of a domain.

    Attributes:
        is_offline: Its trajectories exist already, and are learnt from as they are. An evaluation
            in a run then samples and judges nothing: the run's own sampler replays the held-out
            problems, and the backend tells the loss on them (`Backend.eval_loss`).
        discovers_problems: It finds further problems by what the policy does (`discover`).
        curriculum_option: The option `NAMESPACE.KEY=VALUE` that asks for the task's own
            curriculum; "" where nobody asked for it, None where the task cannot say.
    """

    kind: ClassVar[str] = "task"

    is_offline: bool = False
    discovers_problems: bool = False
    curriculum_option: str | None = None

    @abc.abstractmethod
    def problems(self, split: str) -> Iterable[Problem]:
        """Problems of one split ("train", "test", "all"), in a fixed order, ids unique."""

    def episode(self, problem: Problem) -> Episode:
        """A fresh episode of the problem; by default its prompt, and one answer to it."""
        return SingleTurn(problem.prompt)

    def reference(self, problem: Problem) -> Trajectory | None:
        """The ground-truth answer as a trajectory; None: the data set holds none."""
        return None

    def unsupported(self) -> Mapping[str, str]:
        """Rows of the data set that yield no problem: id (or `line N`) to the reason."""
        return {}

    def why_unanswerable(self, problem: Problem) -> str:
        """Why a policy cannot answer the problem; "": it can. Samplers leave such problems out."""
        return ""

    def warnings(self, split: str) -> Iterable[str]:
        """Warnings about the problems of a split, logged once at the start."""
        return ()

    def curriculum(self) -> Curriculum | None:
        """The task's own choice of the problems of each step; None: epochs of all."""
        return None

    def annotate(self, problem: Problem, trajectory: Trajectory) -> Mapping[str, Any]:
        """Numbers (T,) by name, aligned with `trajectory.tokens`; they join the datum's own."""
        return {}

    async def discover(
        self, policy: Policy, memory: Mapping[str, Any], *, seed: int, step: int
    ) -> Mapping[str, Any]:
        """
        The memory before the problems of a step (0-based) are chosen; {} at the start.

        JSON values only: it is kept in checkpoints. A function of its arguments, so that an
        interrupted run goes on exactly. Called where `discovers_problems`.
        """
        return memory

    def discovered(self, memory: Mapping[str, Any]) -> Sequence[Problem]:
        """The problems that the memory holds; their ids are never those of `problems`."""
        return ()

    async def measure(self, policy: Policy, *, split: str, seed: int) -> AsyncIterator[Metric]:
        """Further figures of `rlvr eval`, one after another, each shown when it is measured."""
        nothing: Iterable[Metric] = ()
        for figure in nothing:
            yield figure

    def probes(self, problem: Problem, *, count: int, seed: int) -> Iterable[Probe]:
        """
        Answers whose verdict is known, for `rlvr audit`: trivial ones, mutants of the reference.

        About `count` of them; a larger `count` gives the same ones and more. What does not even
        parse is left out.
        """
        return ()

    def prove(self, problem: Problem, probe: Probe) -> bool | None:
        """
        Whether an answer taken for wrong is right; None: not known. Called in a thread.

        True with a proof, False with a state and an input for which the two differ.
        """
        return None
