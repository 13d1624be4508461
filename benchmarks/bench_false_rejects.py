"""
False rejects: right answers written otherwise, and how many of them are refused or called wrong.

    python benchmarks/bench_false_rejects.py [--dataset FILE ...] [--references FILE]
        [--each 4] [--only ID ...] [--rewrites NAME ...] [--seed 1] [--workers 2] [--json]

Takes the references of the data sets (the embedded starter set where none is given), rewrites each
without changing its meaning (judging/rewrites.py), writes the answer as a chat model would, and
judges it in the sandbox of cvdp.sandbox=auto. Each rewrite is tried on `--each` references that it
changes, drawn by the seed; 0: on all. References that are not themselves right are left out and
named. Exits 1 when one was refused or wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from judging.answers import Answer, make_answers, read_references
from judging.ours import judge_with_ours, our_options
from judging.rewrites import NAMES, rewritten

from rlvr import Reward
from rlvr_cvdp.answers.parse import from_text


@frozen(kw_only=True)
class Case:
    """One rewrite of one reference, and what became of it."""

    rewrite: str
    answer: Answer
    found: str = ""


def message(files: Mapping[str, str]) -> str:
    """The files as a chat model would answer with them."""
    fence = "```"
    blocks = [
        f"**{path}**\n\n{fence}systemverilog\n{text.rstrip()}\n{fence}\n"
        for path, text in files.items()
    ]
    return "Here is the solution.\n\n" + "\n".join(blocks) + "\nLet me know if it helps.\n"


def cases(answers: Sequence[Answer], names: Sequence[str], each: int, seed: int) -> list[Case]:
    """The rewrites that are judged: each on some of the references that it changes."""
    found: list[Case] = []
    for name in names:
        draw = random.Random(f"{seed} {name}")
        shuffled = draw.sample(list(answers), len(answers))
        count = 0
        for answer in shuffled:
            if each and count >= each:
                break
            payload = answer.problem.payload
            kept = "\n".join([payload.prompt, *payload.harness.values(), *payload.context.values()])
            files = rewritten(name, answer.files, kept)
            if files is None:
                continue
            count += 1
            read = from_text(message(files), payload.targets)
            other = Answer(
                source=answer.source, row=answer.row, problem=answer.problem, kind="reference",
                files=read.files, note=name,
            )  # fmt: skip
            found.append(Case(rewrite=name, answer=other, found=_misread(files, read.files)))
    return found


def _misread(files: Mapping[str, str], read: Mapping[str, str]) -> str:
    same = {path: text.strip() for path, text in files.items()} == {
        path: text.strip() for path, text in read.items()
    }
    return "" if same else "misread"


def judge(answers: Sequence[Answer], workers: int) -> list[str]:
    """For each answer "" where it is right, else what happened to it."""
    options = {**our_options("auto"), "timeout_s": 600.0}
    run = asyncio.run(judge_with_ours(answers, workers=workers, options=options))
    said = []
    for outcome in run.outcomes:
        if not isinstance(outcome, Reward):
            said.append(f"not verified: {outcome}")
        elif outcome.score01 == 1.0:
            said.append("")
        else:
            kind = "refused" if outcome.evidence["refused"] else "wrong"
            said.append(f"{kind}: {outcome.evidence['why']}")
    return said


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Judge the references, then the rewrites of those that are right."""
    bank = make_answers(
        [Path(path) for path in options.dataset],
        references=read_references(Path(options.references) if options.references else None),
        kinds=["reference"],
        only=options.only,
    )
    plain = judge(bank.answers, options.workers)
    right = [answer for answer, said in zip(bank.answers, plain, strict=True) if not said]
    left_out = {a.problem.id: said for a, said in zip(bank.answers, plain, strict=True) if said}
    chosen = cases(right, options.rewrites or NAMES, options.each, options.seed)
    verdicts = judge([case.answer for case in chosen], options.workers)
    failed = [
        {"rewrite": case.rewrite, "problem": case.answer.problem.id, "found": said or case.found}
        for case, said in zip(chosen, verdicts, strict=True)
        if said or case.found
    ]
    return {
        "references": len(right),
        "left_out": left_out,
        "rewrites": len({case.rewrite for case in chosen}),
        "answers": len(chosen),
        "refused": sum(row["found"].startswith("refused") for row in failed),
        "misread": sum(row["found"] == "misread" for row in failed),
        "wrong": sum(row["found"].startswith("wrong") for row in failed),
        "failed": failed,
    }


def main() -> int:
    """Print the figures; 1 where an honest answer earned nothing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--dataset", nargs="*", default=[])
    parser.add_argument("--references")
    parser.add_argument("--each", type=int, default=4, help="references a rewrite; 0: all")
    parser.add_argument("--only", nargs="*", default=[], help="ids of problems")
    parser.add_argument("--rewrites", nargs="*", default=[], choices=NAMES, metavar="NAME")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(
            f"{found['answers']} answers: {found['rewrites']} rewrites of {found['references']} "
            f"references; {found['refused']} refused, {found['misread']} misread, "
            f"{found['wrong']} wrong"
        )
        for name, said in found["left_out"].items():
            print(f"  left out, its reference is not right here: {name}: {said}")
        for row in found["failed"]:
            print(f"  {row['rewrite']}, {row['problem']}: {row['found']}")
    return int(bool(found["failed"]))


if __name__ == "__main__":
    sys.exit(main())
