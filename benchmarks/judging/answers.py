"""Answers to CVDP problems: reference, initial state, mutants, broken syntax."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from rlvr import BuildContext, Problem
from rlvr_cvdp.audit.edits import edits
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.task import STARTER, CvdpTask

KINDS = ("reference", "initial", "mutant", "broken")


@frozen(kw_only=True, eq=False)
class Answer:
    """
    The files of one answer to one problem.

    Attributes:
        source: Data set file of the problem.
        row: Its row there, as it stands.
        kind: One of `KINDS`.
        note: What was changed, for a mutant.
    """

    source: Path
    row: Mapping[str, Any] = field(repr=False)
    problem: Problem = field(repr=False)
    kind: str
    files: Mapping[str, str] = field(repr=False)
    note: str = ""

    @property
    def name(self) -> str:
        """`id kind`."""
        return f"{self.problem.id} {self.kind}{f' ({self.note})' if self.note else ''}"


@frozen(kw_only=True)
class Bank:
    """Answers of each kind to the problems of some data sets, and the rows that yield none."""

    answers: tuple[Answer, ...]
    skipped: Mapping[str, str]


def make_answers(
    sources: Sequence[Path] = (),
    *,
    references: Mapping[str, Mapping[str, str]] | None = None,
    kinds: Sequence[str] = KINDS,
    mutant_count: int = 3,
    only: Sequence[str] = (),
    seed: int = 1,
) -> Bank:
    """
    The answers to the problems of the data sets; the embedded starter set where none is given.

    A problem without a reference gets the kinds that need none.
    """
    found: list[Answer] = []
    skipped: dict[str, str] = {}
    for source in sources or (None,):
        task = CvdpTask(CvdpConfig(), BuildContext(dataset=source))
        path = source or STARTER
        rows = {row["id"]: row for row in read_rows(path)}
        for name, reason in task.unsupported().items():
            if not only or name in only:
                skipped[f"{path.stem}: {name}"] = reason
        for problem in task.problems("all"):
            if only and problem.id not in only:
                continue
            if problem.id not in rows or not problem.payload.services:
                skipped[f"{path.stem}: {problem.id}"] = "the official runner has no harness for it"
                continue
            given = dict(problem.payload.reference) or dict((references or {}).get(problem.id, {}))
            given = {p: t for p, t in given.items() if p in problem.payload.targets}
            rng = random.Random(f"{seed} {path.name} {problem.id}")
            for kind, note, files in _of(problem, given, kinds, mutant_count, rng):
                found.append(
                    Answer(
                        source=path,
                        row=rows[problem.id],
                        problem=problem,
                        kind=kind,
                        files=files,
                        note=note,
                    )
                )
    return Bank(answers=tuple(found), skipped=skipped)


def read_references(path: Path | None) -> dict[str, dict[str, str]]:
    """`{"id", "files"}` lines, id to files."""
    if path is None:
        return {}
    return {row["id"]: dict(row["files"]) for row in read_rows(path)}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The records with an id of a JSON Lines file."""
    rows = []
    with path.open(encoding="utf-8-sig", errors="replace") as handle:
        for line in handle:
            try:
                row = json.loads(line)
            except ValueError:
                continue  # the task says why such a line yields no problem
            if isinstance(row, dict) and isinstance(row.get("id"), str):
                rows.append(row)
    return rows


def _of(
    problem: Problem,
    reference: Mapping[str, str],
    kinds: Sequence[str],
    count: int,
    rng: random.Random,
) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    record = problem.payload
    initial = {t: record.context[t] for t in record.targets if t in record.context}
    if "reference" in kinds and reference:
        yield "reference", "", reference
    if "initial" in kinds:
        yield "initial", "", initial
    if "mutant" in kinds and reference:
        changed = [(p, e) for p, text in sorted(reference.items()) for e in edits(text)]
        for path, edit in rng.sample(changed, min(count, len(changed))):
            text = reference[path]
            yield "mutant", edit.note(text), {**reference, path: edit.apply(text)}
    if "broken" in kinds:
        path, text = next(iter((reference or initial).items()), (record.targets[0], ""))
        yield "broken", "", {**(reference or initial), path: break_syntax(text)}


def break_syntax(text: str) -> str:
    """The text without its last `endmodule`; a module header alone where there is none."""
    head, found, tail = text.rpartition("endmodule")
    return head + tail if found else "module broken (\n"
