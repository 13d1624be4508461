"""Writes a problem's tree for one verification: context, then the answer, then the harness."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlvr_cvdp.problem import CvdpProblem

_PLUSARGS = "$test$plusargs $value$plusargs"


def write_tree(folder: Path, problem: CvdpProblem, files: Mapping[str, str]) -> None:
    """
    Fill a slot's folder (see `sandbox.folders`): `tree` and the scan's lists.

    `files` holds declared targets only (see `answers`). The harness comes last, so that nothing
    of an answer can stand in its place. The reference is not written.
    """
    tree = folder / "tree"
    for group in (problem.context, files, problem.harness):
        for path, text in group.items():
            place = tree / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8", errors="replace")
    (folder / "answer").write_text("".join(f"/code/{path}\n" for path in files))
    (folder / "allowed").write_text(_PLUSARGS if _asks_for_plusargs(problem) else "")


def _asks_for_plusargs(problem: CvdpProblem) -> bool:
    return any("plusargs" in text for text in (problem.prompt, *problem.context.values()))
