"""The task: problems of a CVDP data set, or of the embedded starter set."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve

from rlvr import (
    BuildContext,
    ConfigError,
    Episode,
    PluginError,
    Probe,
    Problem,
    SingleTurn,
    Task,
    Trajectory,
    pip_install,
)
from rlvr_cvdp.answers.official import official_text
from rlvr_cvdp.answers.text_scores import ANSWER_FILES
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.datasets.curriculum import TrainingOrder, option_of
from rlvr_cvdp.datasets.references import read_references
from rlvr_cvdp.datasets.rows import Unsupported, read_rows
from rlvr_cvdp.datasets.split import family_of, honesty_notices, splits_of
from rlvr_cvdp.datasets.strengths import is_doubtful, read_audit
from rlvr_cvdp.datasets.unreadable import why_unreadable
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.prompts.official import prompt_maker
from rlvr_cvdp.prompts.truncate import fit_prompt
from rlvr_cvdp.toolchain.cocotb_stacks import why_no_stack
from rlvr_cvdp.toolchain.tools import find_tool, install_command

if TYPE_CHECKING:
    from rlvr_cvdp.episodes.factory import EpisodeFactory

_NAMED = 3
STARTER = Path(__file__).parent / "starter" / "problems.jsonl"


class CvdpTask(Task):
    """
    Problems that this machine can verify; `unsupported` names the others with the reason.

    A row without a `split` belongs to every split.
    """

    def __init__(self, config: CvdpConfig, context: BuildContext) -> None:
        self.curriculum_option = option_of(config)
        self._config = config
        self._context = context
        self._path = context.dataset or STARTER
        self._is_starter = context.dataset is None
        self._audit = read_audit(Path(config.audit)) if config.audit else {}
        self._references = read_references(Path(config.references)) if config.references else {}

    def problems(self, split: str) -> Iterable[Problem]:
        """
        Problems of "train", "test" or "all", in the order of the file.

        `cvdp.holdout` splits off whole families; `cvdp.weak=drop` leaves doubtful problems out of
        "train".
        """
        for record in self._records:
            if split == "all" or self._splits[record.id] in ("", split):
                if split == "train" and record.id in self._dropped:
                    continue
                yield self._problem(record, split)

    def curriculum(self) -> TrainingOrder | None:
        """The order of training by `cvdp.curriculum` and `cvdp.weak`; None: epochs."""
        return TrainingOrder(self._config, self._audit) if self.curriculum_option else None

    def warnings(self, split: str) -> Iterable[str]:
        """Whether a score on these problems will be held-out, and which problems are left out."""
        yield from honesty_notices(self._records, self._splits)
        if self._config.holdout and "test" not in self._splits.values():
            yield (
                f"cvdp.holdout={self._config.holdout:g} holds none of these problems out: too "
                "few families, so nothing is left to evaluate on. Take a larger share or another "
                "cvdp.holdout_seed."
            )
        if split == "train" and self._dropped:
            audited = sum(record.id in self._audit for record in self._records)
            yield (
                f"{len(self._dropped)} of {len(self._records)} problems are left out of training: "
                "their harness is weak or flaky by the audit (cvdp.weak=drop), which has "
                f"{audited} of them."
            )

    async def __aenter__(self) -> CvdpTask:
        """Open what episodes of several turns need; a single turn needs nothing."""
        if self._has_turns:
            await self._episodes.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._has_turns:
            await self._episodes.__aexit__(*error)

    def episode(self, problem: Problem) -> Episode:
        """A single turn, or what `cvdp.turns` and `cvdp.mode` ask for; words need no tools."""
        if self._has_turns and not problem.payload.is_comprehension:
            return self._episodes.episode(problem)
        return SingleTurn(problem.prompt)

    @property
    def _has_turns(self) -> bool:
        return self._config.turns > 1 or self._config.mode == "agent"

    @cached_property
    def _episodes(self) -> EpisodeFactory:
        from rlvr_cvdp.episodes.factory import EpisodeFactory

        return EpisodeFactory(self._config, self._context)

    def reference(self, problem: Problem) -> Trajectory | None:
        """The solution that the data set holds, as files; as text too, but for an agent's work."""
        record = problem.payload
        if not isinstance(record, CvdpProblem) or not (record.response or record.reference):
            return None
        if record.is_comprehension:
            files = {ANSWER_FILES[0]: record.response}
            is_plain = len(record.targets) == 1
            text = record.response if is_plain else json.dumps({"response": record.response})
        else:
            files = dict(record.reference)
            text = "" if self._config.mode == "agent" else official_text(files)
        said = Trajectory.from_text(problem.id, text).segments if text else ()
        return Trajectory(problem_id=problem.id, files=files, segments=said)

    def probes(self, problem: Problem, *, count: int, seed: int) -> Iterable[Probe]:
        """Answers that the harness has to reject, for `rlvr audit`."""
        from rlvr_cvdp.audit.probes import probes

        return probes(problem, self._reference_files(problem), count=count, seed=seed)

    def prove(self, problem: Problem, probe: Probe) -> bool | None:
        """Whether yosys proves a mutant to be the same hardware as the reference."""
        from rlvr_cvdp.audit.probes import is_equivalent

        return is_equivalent(problem, self._reference_files(problem), probe)

    def _reference_files(self, problem: Problem) -> Mapping[str, str] | None:
        reference = self.reference(problem)
        return None if reference is None else reference.files

    def unsupported(self) -> Mapping[str, str]:
        """Rows that yield no problem: id, or `line N`, to the reason."""
        return {row.id: row.reason for row in self.left_out()}

    def left_out(self) -> list[Unsupported]:
        """The same rows in the order of the file, with the kind of each reason."""
        return [row for row in self._rows if isinstance(row, Unsupported)]

    @cached_property
    def _rows(self) -> list[CvdpProblem | Unsupported]:
        if self._is_starter and not self._path.is_file():
            raise PluginError(
                "the starter set of rlvr-cvdp is not installed.",
                f"found: no {self._path}",
                f"try: {pip_install('rlvr-cvdp', reinstall=True)}, or give --dataset",
            )
        rows = [self._supported(row) for row in read_rows(self._path)]
        if self._config.strict:
            _refuse([row for row in rows if isinstance(row, Unsupported)], self._path)
        return rows

    @cached_property
    def _records(self) -> list[CvdpProblem]:
        return [row for row in self._rows if isinstance(row, CvdpProblem)]

    @cached_property
    def _splits(self) -> Mapping[str, str]:
        return splits_of(self._records, self._config.holdout, self._config.holdout_seed)

    @cached_property
    def _dropped(self) -> frozenset[str]:
        if self._config.audit and not any(r.id in self._audit for r in self._records):
            raise ConfigError(
                f"training by the audit {self._config.audit} was asked for (cvdp.audit).",
                f"found: it has none of the {len(self._records)} problems of {self._path}",
                "make one with: rlvr audit --plugin cvdp --dataset FILE --out AUDIT.json",
            )
        if self._config.weak != "drop":
            return frozenset()
        return frozenset(r.id for r in self._records if is_doubtful(self._audit, r.id))

    def _supported(self, row: CvdpProblem | Unsupported) -> CvdpProblem | Unsupported:
        if isinstance(row, Unsupported):
            return row
        for service in row.services:
            if service.tool and find_tool(service.tool) is None:
                reason = f"needs {service.tool}: {install_command(service.tool)}"
                return Unsupported(id=row.id, reason=reason, kind="tool missing")
        reason = why_no_stack(row) or why_unreadable(row)
        if reason:
            return Unsupported(id=row.id, reason=reason, kind="harness")
        reference = row.reference or self._references.get(row.id, {})
        return evolve(row, is_starter=self._is_starter, reference=reference)

    def _problem(self, record: CvdpProblem, split: str) -> Problem:
        construct = prompt_maker(self._config, record)
        fitted = fit_prompt(record, construct, self._config.max_prompt_tokens)
        labels = {
            "category": record.category,
            "difficulty": record.difficulty,
            "family": family_of(record.id),
        }
        if record.source != "cvdp":
            labels["source"] = record.source
        return Problem(
            id=record.id,
            prompt=fitted.messages,
            split=self._splits[record.id] or ("train" if split == "all" else split),
            labels=labels,
            payload=record,
            digest=record.digest(),
            notes=fitted.notes,
        )


def _refuse(rows: Sequence[Unsupported], path: Path) -> None:
    if not rows:
        return
    first = "; ".join(f"{row.id}: {row.reason}" for row in rows[:_NAMED])
    more = f"; and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    raise ConfigError(
        f"every row of {path} was to be verifiable (cvdp.strict).",
        f"found: {len(rows)} that cannot be verified: {first}{more}",
        "try: rlvr cvdp list --dataset FILE for all of them, or leave cvdp.strict out",
    )
