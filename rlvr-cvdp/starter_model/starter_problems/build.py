"""
Writes the starter problems, the same each time.

    PYTHONPATH=rlvr-cvdp/starter_model python -m starter_problems.build [PATH]
"""

from __future__ import annotations

import functools
import json
import random
import sys
from pathlib import Path
from typing import Any

import rlvr_cvdp

from .draft import Draft
from .families import FAMILIES

Row = dict[str, Any]  # one JSON object of the data set

SEED = 20
PROBLEMS = Path(rlvr_cvdp.__file__).parent / "starter" / "problems.jsonl"
TRAIN_PER_FAMILY = 3
TEST_PER_FAMILY = 1
EXTRA_EASY_TESTS = 1


@functools.cache
def drafts() -> tuple[tuple[str, str, Draft], ...]:
    """Id, split and draft of every problem; no behaviour occurs twice."""
    drawn = []
    for family, draw in FAMILIES.items():
        rng = random.Random(f"{SEED} {family}")
        kept: dict[str, Draft] = {}
        wanted = TRAIN_PER_FAMILY + TEST_PER_FAMILY
        while len(kept) < wanted:
            draft = draw(rng)
            if not kept and draft.difficulty == "easy":
                wanted += EXTRA_EASY_TESTS
            kept.setdefault(draft.key, draft)
        for number, draft in enumerate(kept.values()):
            split = "train" if number < TRAIN_PER_FAMILY else "test"
            drawn.append((f"cvdp_starter_{family}_{number + 1:04d}", split, draft))
    return tuple(drawn)


@functools.cache
def held_out_keys() -> frozenset[str]:
    """Behaviours of the test problems, which no training may see."""
    return frozenset(draft.key for _, split, draft in drafts() if split == "test")


def row(problem_id: str, split: str, draft: Draft) -> Row:
    """A problem in CVDP's non-agentic form, with its split."""
    return {
        "id": problem_id,
        "categories": ["cid003", draft.difficulty],
        "split": split,
        "input": {"prompt": draft.spec, "context": {}},
        "output": {"response": "", "context": {draft.target: draft.solution}},
        "harness": {"files": draft.harness()},
    }


def text() -> str:
    """The whole file of problems, one JSON object a line."""
    return "".join(json.dumps(row(*drawn)) + "\n" for drawn in drafts())


def main(arguments: list[str]) -> int:
    """Write the file and say what is in it."""
    path = Path(arguments[0]) if arguments else PROBLEMS
    path.write_text(text(), encoding="utf-8")
    tests = len(held_out_keys())
    print(f"{path}: {len(drafts())} problems, {tests} of them test, {len(FAMILIES)} families")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
