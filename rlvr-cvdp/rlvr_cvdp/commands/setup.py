"""The subcommands `rlvr cvdp setup` and `rlvr cvdp list`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from rlvr import BuildContext
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.task import CvdpTask
from rlvr_cvdp.toolchain.cocotb_stacks import PINS, provision_stack, running_stack


def setup(argv: list[str]) -> int:
    """Make the managed stacks; says what each holds."""
    parser = argparse.ArgumentParser(
        prog="rlvr cvdp setup",
        description="Make the cocotb stacks that harnesses need (a minute, needs a package index).",
        epilog="examples:\n  rlvr cvdp setup\n  rlvr cvdp setup --generation 1\n"
        "  rlvr cvdp setup --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--generation", type=int, choices=sorted(PINS), help="only this one")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
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
    parser = argparse.ArgumentParser(
        prog="rlvr cvdp list",
        description="Problems of a data set: category, difficulty, cocotb generation, or why not.",
        epilog="examples:\n  rlvr cvdp list\n  rlvr cvdp list --dataset cvdp.jsonl\n"
        "  rlvr cvdp list --dataset cvdp.jsonl --json\n"
        "  rlvr cvdp list --dataset cvdp.jsonl --strict",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dataset", type=Path, help="JSON Lines file; default: the starter set")
    parser.add_argument("--json", action="store_true", help="one JSON object a line on stdout")
    parser.add_argument(
        "--strict", action="store_true", help="refuse a file with a row that cannot be verified"
    )
    options = parser.parse_args(argv)
    task = CvdpTask(CvdpConfig(strict=options.strict), BuildContext(dataset=options.dataset))
    rows: list[dict[str, object]] = [
        {
            "id": problem.id,
            "supported": True,
            "category": problem.payload.category,
            "difficulty": problem.payload.difficulty,
            "generation": problem.payload.generation,
            "split": problem.payload.split,
            "targets": list(problem.payload.targets),
            "has_reference": bool(problem.payload.reference),
            "source": problem.payload.source,
            "reason": "",
            "kind": "",
        }
        for problem in task.problems("all")
    ]
    count = len(rows)
    left_out = task.left_out()
    rows += [
        {"id": row.id, "supported": False, "reason": row.reason, "kind": row.kind}
        for row in left_out
    ]
    for row in rows:
        if options.json:
            print(json.dumps(row))
        elif row["supported"]:
            how = f"cocotb {row['generation']}" if row["targets"] else "ROUGE and BLEU"
            what = f"{row['category']}  {row['difficulty']:8} {how}"
            print(f"{row['id']:56} {what}")
        else:
            print(f"{row['id']:56} not verifiable: {row['reason']}")
    if not options.json:
        kinds = Counter(row.kind for row in left_out)
        by_kind = ", ".join(f"{kind} {number}" for kind, number in kinds.most_common())
        print(
            f"{count} problems, {len(left_out)} rows not verifiable"
            + (f" ({by_kind})" if by_kind else ""),
            file=sys.stderr,
        )
    return 0
