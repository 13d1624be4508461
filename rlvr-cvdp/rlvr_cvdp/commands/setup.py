"""The subcommands `rlvr cvdp setup` and `rlvr cvdp list`."""

from __future__ import annotations

import json
import sys
from collections import Counter

from rlvr import BuildContext, counted
from rlvr_cvdp.commands.arguments import parser_of
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.task import CvdpTask
from rlvr_cvdp.toolchain.cocotb_stacks import PINS, provision_stack, running_stack


def setup(argv: list[str]) -> int:
    """Make the managed stacks and print their contents."""
    parser = parser_of(
        "setup",
        "Make the cocotb stacks that harnesses need (a minute, needs a package index).",
        *("setup", "setup --generation 1", "setup --json"),
        has_dataset=False,
    )
    parser.add_argument("--generation", type=int, choices=sorted(PINS), help="only this one")
    options = parser.parse_args(argv)
    made = {}
    for generation in [options.generation] if options.generation else sorted(PINS):
        stack = provision_stack(generation)
        made[generation] = {"python": str(stack.python), **stack.versions}
        if not options.json:
            print(f"generation {generation}: {stack.name} in {stack.python.parent.parent}")
    running = running_stack()
    if options.json:
        print(json.dumps({"stacks": made, "running": dict(running.versions) if running else None}))
    elif running:
        print(f"this environment itself: {running.name}")
    return 0


def list_problems(argv: list[str]) -> int:
    """List the problems of a data set; those that cannot be verified come with the reason."""
    parser = parser_of(
        "list",
        "Problems of a data set: category, difficulty, cocotb generation, or why not.",
        *("list", "list --dataset cvdp.jsonl", "list --dataset cvdp.jsonl --json"),
        "list --dataset cvdp.jsonl --strict",
        has_json=False,
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    parser.add_argument(
        "--strict", action="store_true", help="refuse a file with a row that cannot be verified"
    )
    options = parser.parse_args(argv)
    task = CvdpTask(CvdpConfig(strict=options.strict), BuildContext(dataset=options.dataset))
    records = [problem.payload for problem in task.problems("all")]
    left_out = task.left_out()
    for record in records:
        how = f"cocotb {record.generation}" if record.targets else "ROUGE and BLEU"
        line = f"{record.id:56} {record.category}  {record.difficulty:8} {how}"
        print(json.dumps(_facts(record)) if options.json else line)
    for row in left_out:
        facts = {"id": row.id, "supported": False, "reason": row.reason, "kind": row.kind}
        line = f"{row.id:56} not verifiable: {row.reason}"
        print(json.dumps(facts) if options.json else line)
    if not options.json:
        kinds = Counter(row.kind for row in left_out)
        by_kind = ", ".join(f"{kind} {number}" for kind, number in kinds.most_common())
        what = f"{counted(len(records), 'problem')}, {counted(len(left_out), 'row')} not verifiable"
        print(what + (f" ({by_kind})" if by_kind else ""), file=sys.stderr)
    return 0


def _facts(record: CvdpProblem) -> dict[str, object]:
    return {
        "id": record.id,
        "supported": True,
        "category": record.category,
        "difficulty": record.difficulty,
        "generation": record.generation,
        "split": record.split,
        "targets": list(record.targets),
        "has_reference": bool(record.reference),
        "source": record.source,
        "reason": "",
        "kind": "",
    }
