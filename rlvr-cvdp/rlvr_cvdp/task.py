"""The task: problems of a CVDP data set, or of the embedded starter set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from attrs import evolve

from rlvr.errors import PluginError, explain
from rlvr.parts import BuildContext
from rlvr.types import Message, Problem, Trajectory
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.prompts import brief_prompt, official_prompt
from rlvr_cvdp.rows import Unsupported, read_rows
from rlvr_cvdp.simulator import why_unreadable
from rlvr_cvdp.stacks import why_no_stack
from rlvr_cvdp.tools import find_tool, install_command

STARTER = Path(__file__).parent / "starter" / "problems.jsonl"


class CvdpEpisode:
    """One prompt, one completion."""

    def __init__(self, prompt: Sequence[Message]) -> None:
        self._prompt: Sequence[Message] | None = prompt

    def prompt(self) -> Sequence[Message] | None:
        """The whole prompt; None once it was answered."""
        return self._prompt

    async def take(self, completion: str) -> None:
        """The completion is the answer."""
        self._prompt = None


class CvdpTask:
    """
    Problems that this machine can verify; `unsupported` names the others with the reason.

    A row without a `split` belongs to every split.
    """

    def __init__(self, config: CvdpConfig, context: BuildContext) -> None:
        self._config = config
        self._path = context.dataset or STARTER
        self._is_starter = context.dataset is None

    def problems(self, split: str) -> Iterable[Problem]:
        """Problems of "train", "test" or "all", in the order of the file."""
        for record in self._records:
            if split == "all" or record.split in ("", split):
                yield self._problem(record, split)

    def episode(self, problem: Problem) -> CvdpEpisode:
        """A single turn."""
        return CvdpEpisode(problem.prompt)

    def reference(self, problem: Problem) -> Trajectory | None:
        """The solution that the data set holds, as files."""
        record = problem.payload
        if not isinstance(record, CvdpProblem) or not record.reference:
            return None
        return Trajectory(problem_id=problem.id, files=dict(record.reference))

    def unsupported(self) -> Mapping[str, str]:
        """Rows that yield no problem: id, or `line N`, to the reason."""
        return {row.id: row.reason for row in self._rows if isinstance(row, Unsupported)}

    @cached_property
    def _rows(self) -> list[CvdpProblem | Unsupported]:
        if self._is_starter and not self._path.is_file():
            raise PluginError(
                explain(
                    "the starter set of rlvr-cvdp is not installed.",
                    f"found: no {self._path}",
                    "try: pip install --force-reinstall rlvr-cvdp, or give --dataset",
                )
            )
        return [self._supported(row) for row in read_rows(self._path)]

    @cached_property
    def _records(self) -> list[CvdpProblem]:
        return [row for row in self._rows if isinstance(row, CvdpProblem)]

    def _supported(self, row: CvdpProblem | Unsupported) -> CvdpProblem | Unsupported:
        if isinstance(row, Unsupported):
            return row
        for service in row.services:
            if service.tool and find_tool(service.tool) is None:
                reason = f"needs {service.tool}: {install_command(service.tool)}"
                return Unsupported(id=row.id, reason=reason)
        reason = why_no_stack(row) or why_unreadable(row)
        if reason:
            return Unsupported(id=row.id, reason=reason)
        return evolve(row, is_starter=self._is_starter)

    def _problem(self, record: CvdpProblem, split: str) -> Problem:
        style = self._config.prompt
        is_brief = style == "brief" or (style == "auto" and record.is_starter)
        return Problem(
            id=record.id,
            prompt=brief_prompt(record) if is_brief else official_prompt(record),
            split=record.split or ("train" if split == "all" else split),
            labels={"category": record.category, "difficulty": record.difficulty},
            payload=record,
            digest=record.digest(),
        )
