"""The files of a problem that a policy may see."""

from __future__ import annotations

from rlvr_cvdp.problem import CvdpProblem


def visible_files(problem: CvdpProblem) -> dict[str, str]:
    """The files that a policy is given; nothing of the harness, and nothing below `src`."""
    return {
        path: text
        for path, text in problem.context.items()
        if path not in problem.harness and not path.startswith("src/")
    }
