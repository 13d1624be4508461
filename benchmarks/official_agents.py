"""
An agent's image under the official runner and under ours: the same scores?

    python benchmarks/official_agents.py --official CHECKOUT --official-python PYTHON --agent IMAGE
        --dataset FILE [--only ID ...] [--first N] [--sandbox bubblewrap|docker] [--image TAG]
        [--threads N] [--json] [--out FILE]

CHECKOUT is a clone of NVlabs/cvdp_benchmark, PYTHON an interpreter with its requirements. The
official runner is run unchanged (`run_benchmark.py -l -g IMAGE`), ours is
`rlvr eval --model agent:IMAGE`. Where they differ, the official runner is asked once more with an
image in which cocotb 1 comes first: many harnesses of v1.0.x were written for it. Exit status 1
where both judged a row and a difference stays.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from judging.answers import read_rows
from judging.images import fixed_names, image_with_cocotb1, why_no_image
from judging.official import OfficialVerdict, run_official, verdict_of

_WORDS = {True: "right", False: "wrong", None: "no verdict"}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--official", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--official-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--agent", required=True, metavar="IMAGE", help="the agent's image")
    parser.add_argument("--dataset", type=Path, required=True, metavar="FILE")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="that many rows; 0: all")
    parser.add_argument("--sandbox", choices=("bubblewrap", "docker"), default="docker")
    parser.add_argument("--image", help="image of the harness, for both")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=600, help="seconds an agent may take")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write both verdicts of each row")
    return parser.parse_args()


def main() -> int:
    """Run both, print the table, and say where they differ."""
    args = parse()
    image = args.image or default_image()
    for name in (image, args.agent):
        if missing := why_no_image(name):
            sys.exit(missing)
    chosen = rows_of(args)
    if not chosen:
        sys.exit("no such agentic row that both can judge")
    with (
        tempfile.TemporaryDirectory(prefix="rlvr-agents-", ignore_cleanup_errors=True) as name,
        fixed_names(image),
    ):
        folder = Path(name)
        begun = time.monotonic()
        theirs = official(args, image, chosen, folder / "first")
        between = time.monotonic()
        ours = judged_by_us(args, image, chosen, folder)
        ended = time.monotonic()
        again = asked_again(args, image, chosen, theirs, ours, folder / "again")
    lines = [
        {
            "id": row["id"],
            "category": row["categories"][0],
            "official": _WORDS[theirs[row["id"]].is_right if theirs[row["id"]].ran else None],
            "official_why": theirs[row["id"]].why,
            **(ours.get(row["id"]) or {"ours": _WORDS[None], "ours_why": "no line of it"}),
            "official_with_cocotb_1": again.get(row["id"]),
        }
        for row in chosen
    ]
    if args.out:
        args.out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    facts = {
        "agent": args.agent,
        "image": image,
        "rows": len(lines),
        "equal": sum(line["official"] == line["ours"] for line in lines),
        "seconds": {"official": round(between - begun, 1), "ours": round(ended - between, 1)},
        "table": [
            {"category": c, "official": o, "ours": u, "rows": n}
            for (c, o, u), n in sorted(
                Counter((x["category"], x["official"], x["ours"]) for x in lines).items()
            )
        ],
        "differences": [line for line in lines if line["official"] != line["ours"]],
    }
    print(json.dumps(facts, indent=1) if args.json else show(facts))
    return 1 if any(is_unexplained(line) for line in facts["differences"]) else 0


def is_unexplained(line: dict[str, Any]) -> bool:
    """Whether both judged a row and nothing that was tried shows why they differ."""
    judged = _WORDS[None] not in (line["official"], line["ours"])
    return judged and line["official_with_cocotb_1"] != line["ours"]


def asked_again(
    args: argparse.Namespace,
    image: str,
    chosen: list[dict[str, Any]],
    theirs: dict[str, OfficialVerdict],
    ours: dict[str, dict[str, str]],
    folder: Path,
) -> dict[str, str]:
    """What the official runner says with cocotb 1 about the rows on which the two differ."""
    differing = [
        row
        for row in chosen
        if row["id"] in ours and ours[row["id"]]["ours"] != _WORDS[theirs[row["id"]].is_right]
    ]
    with image_with_cocotb1(image) as older:
        if not differing or older is None:
            return {}
        found = official(args, older, differing, folder)
    return {name: _WORDS[v.is_right if v.ran else None] for name, v in found.items()}


def default_image() -> str:
    """The image of `rlvr cvdp build-image`."""
    from rlvr_cvdp.images.recipe import image_tag

    return image_tag()


def rows_of(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The agentic rows that are asked for and that ours can verify."""
    from rlvr import BuildContext
    from rlvr_cvdp.config import CvdpConfig
    from rlvr_cvdp.task import CvdpTask

    task = CvdpTask(CvdpConfig(), BuildContext(dataset=args.dataset))
    usable = {problem.id for problem in task.problems("all")}
    found = [row for row in read_rows(args.dataset) if row["id"] in usable and "patch" in row]
    found = [row for row in found if not args.only or row["id"] in args.only]
    return found[: args.first or None]


def official(
    args: argparse.Namespace, image: str, chosen: list[dict[str, Any]], folder: Path
) -> dict[str, OfficialVerdict]:
    """The verdicts of `run_benchmark.py -l -g IMAGE`, by id."""
    folder.mkdir()
    dataset, prefix = written(chosen, folder), folder / "official"
    results = run_official(
        [
            *(args.official_python, "run_benchmark.py", "-f", str(dataset), "-p", str(prefix)),
            *("-t", str(args.threads), "-l", "-g", args.agent),
        ],
        checkout=args.official.resolve(),
        image=image,
        timeout_s=args.timeout,
        prefix=prefix,
    )
    said = prefix.with_suffix(".log").read_text(errors="replace")
    return {row["id"]: verdict_of(row["id"], results, prefix, said) for row in chosen}


def written(chosen: list[dict[str, Any]], folder: Path) -> Path:
    """The rows as a data set."""
    dataset = folder / "rows.jsonl"
    dataset.write_text("".join(json.dumps(r) + "\n" for r in chosen), encoding="utf-8")
    return dataset


def judged_by_us(
    args: argparse.Namespace, image: str, chosen: list[dict[str, Any]], folder: Path
) -> dict[str, dict[str, str]]:
    """What `rlvr eval --model agent:IMAGE` says, by id."""
    dataset, out = written(chosen, folder), folder / "ours.jsonl"
    words = [sys.executable, "-m", "rlvr.cli.main", "eval", "--plugin", "cvdp"]
    words += ["--dataset", str(dataset), "--model", f"agent:{args.agent}", "--samples", "1"]
    words += ["--split", "all", "--out", str(out), "--workers", str(args.threads), "--json"]
    words += [f"agent.timeout_s={args.timeout}", f"cvdp.sandbox={args.sandbox}"]
    words += ["cvdp.limits=off", f"cvdp.timeout_s={args.timeout}"]
    words += [f"cvdp.image={image}"] if args.sandbox == "docker" else []
    done = subprocess.run(words, env=os.environ, capture_output=True, text=True, check=False)
    if not out.is_file():
        sys.exit(f"rlvr eval ended with {done.returncode}:\n{done.stderr[-2000:]}")
    found = {}
    for line in read_rows(out):
        outcome = line["outcome"]
        right = outcome["score01"] == 1.0 if outcome["kind"] == "reward" else None
        told = (line.get("notes") or {}).get("agent", {})
        why = told.get("why") or outcome.get("evidence", {}).get("why") or outcome.get("reason")
        found[line["id"]] = {"ours": _WORDS[right], "ours_why": str(why or "")}
    return found


def show(facts: dict[str, Any]) -> str:
    """The facts for a person."""
    lines = [f"{'category':<12}{'official':<12}{'ours':<12}{'rows':>6}"]
    for row in facts["table"]:
        lines.append(f"{row['category']:<12}{row['official']:<12}{row['ours']:<12}{row['rows']:>6}")
    for each in facts["differences"]:
        lines += ["", each["id"], f"  official: {each['official']}: {each['official_why']}"]
        lines.append(f"  ours: {each['ours']}: {each['ours_why']}")
        lines.append(f"  official with cocotb 1: {each['official_with_cocotb_1']}")
    seconds = facts["seconds"]
    lines += [
        "",
        f"{facts['equal']} of {facts['rows']} rows equal; official {seconds['official']} s, "
        f"ours {seconds['ours']} s",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:  # of the official runner or of Docker, with their words
        sys.exit(str(error))
