"""
The official runner beside ours: do they say the same about the same answers?

    python benchmarks/official_parity.py --official CHECKOUT --official-python PYTHON
        [--dataset FILE ...] [--references FILE] [--sandbox bubblewrap|docker] [--image TAG]
        [--mutants 3] [--kinds KIND ...] [--only ID ...] [--threads N] [--json] [--out FILE]

CHECKOUT is a clone of NVlabs/cvdp_benchmark, PYTHON an interpreter with its requirements. It is run
unchanged, in its golden mode, with the answer where the solution stands. Answers: references,
initial states, mutants of references, broken syntax. Each difference is judged again with one thing
changed at a time (see judging/differences.py); exit status 1 when one stays unexplained.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from judging.answers import KINDS, Answer, make_answers, read_references
from judging.differences import Difference, Laboratory
from judging.images import fixed_names, image_with_cocotb1, why_no_image
from judging.official import OfficialRunner, OfficialVerdict
from judging.ours import is_right, judge_with_ours, our_options, why

from rlvr import Outcome

_WORDS = {True: "right", False: "wrong", None: "no verdict"}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--official", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--official-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--dataset", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--references", type=Path, metavar="FILE")
    parser.add_argument("--sandbox", choices=("bubblewrap", "docker"), default="docker")
    parser.add_argument("--image", help="image of both (default: that of rlvr cvdp build-image)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--mutants", type=int, default=3, help="a reference")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of mutants")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=120, help="seconds a service may take")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every verdict here")
    return parser.parse_args()


def main() -> int:
    args = parse()
    bank = make_answers(
        args.dataset,
        references=read_references(args.references),
        kinds=args.kinds,
        mutant_count=args.mutants,
        only=args.only,
        seed=args.seed,
    )
    if not bank.answers:
        sys.exit(f"no problem of these files can be judged: {dict(bank.skipped)}")
    image = args.image or default_image()
    if missing := why_no_image(image):
        sys.exit(missing)
    options = {"timeout_s": float(args.timeout), "verdict": "official"}
    options |= our_options(args.sandbox, image)
    official = OfficialRunner(
        checkout=args.official.resolve(),
        python=args.official_python,
        image=image,
        threads=args.threads,
        timeout_s=args.timeout,
    )
    with (
        tempfile.TemporaryDirectory(prefix="rlvr-parity-", ignore_cleanup_errors=True) as folder,
        fixed_names(image) as named,
        image_with_cocotb1(image) as older_image,
    ):
        theirs = official.judge(bank.answers, Path(folder) / "first")
        begun = time.monotonic()
        ours = asyncio.run(judge_with_ours(bank.answers, workers=args.threads, options=options))
        our_seconds = time.monotonic() - begun
        outcomes, retried = again(bank.answers, ours.outcomes, options)
        found = [
            Difference(answer=a, official=o, ours=r)
            for a, o, r in zip(bank.answers, theirs.verdicts, outcomes, strict=True)
            if not o.ran or o.is_right != is_right(r)
        ]
        laboratory = Laboratory(
            official=official,
            older_image=older_image,
            options=options,
            workers=args.threads,
            folder=Path(folder),
        )
        explained = laboratory.explore(found)
    facts = {
        "answers": len(bank.answers),
        "equal": len(bank.answers) - len(explained),
        "explained": sum(bool(each.reason()) for each in explained),
        "image": image,
        "image_also_named": named,
        "sandbox": args.sandbox,
        "threads": args.threads,
        "seconds": {"official": round(theirs.seconds, 1), "ours": round(our_seconds, 1)},
        "table": table(bank.answers, theirs.verdicts, outcomes),
        "differences": [told(each) for each in explained],
        "retried": retried,
        "skipped": dict(bank.skipped),
    }
    if args.out:
        args.out.write_text(every(bank.answers, theirs.verdicts, outcomes), encoding="utf-8")
    print(json.dumps(facts, indent=1) if args.json else show(facts))
    return 0 if facts["explained"] == len(explained) else 1


def again(
    answers: Sequence[Answer], outcomes: Sequence[Outcome], options: Mapping[str, Any]
) -> tuple[list[Outcome], dict[str, str]]:
    """Ask once more, one by one, where ours could not be run; what failed is told."""
    failed = [n for n, outcome in enumerate(outcomes) if is_right(outcome) is None]
    if not failed:
        return list(outcomes), {}
    chosen = [answers[n] for n in failed]
    run = asyncio.run(judge_with_ours(chosen, workers=1, options=options))
    renewed = {**dict(enumerate(outcomes)), **dict(zip(failed, run.outcomes, strict=True))}
    told = {answers[n].name: why(outcomes[n]) for n in failed}
    return [renewed[n] for n in range(len(outcomes))], told


def default_image() -> str:
    from rlvr_cvdp.images.recipe import image_tag

    return image_tag()


def table(
    answers: Sequence[Answer], theirs: Sequence[OfficialVerdict], ours: Sequence[Outcome]
) -> list[dict[str, Any]]:
    """How often each pair of verdicts came, a kind."""
    counts = Counter(
        (a.kind, _WORDS[o.is_right if o.ran else None], _WORDS[is_right(r)])
        for a, o, r in zip(answers, theirs, ours, strict=True)
    )
    order = sorted(counts, key=lambda key: (KINDS.index(key[0]), key[1:]))
    return [{"kind": k, "official": o, "ours": r, "answers": counts[k, o, r]} for k, o, r in order]


def told(difference: Difference) -> dict[str, Any]:
    """A difference as plain values."""
    d = difference
    return {
        "answer": d.answer.name,
        "dataset": d.answer.source.name,
        "official": _WORDS[d.official.is_right if d.official.ran else None],
        "official_why": d.official.why,
        "ours": _WORDS[is_right(d.ours)],
        "ours_why": why(d.ours),
        "reason": d.reason(),
        "official_again": [_WORDS[v] for v in d.again],
        "official_with_more_time": d.longer and _WORDS[d.longer.is_right],
        "official_with_cocotb_1": d.older and _WORDS[d.older.is_right if d.older.ran else None],
        "official_with_cocotb_1_why": d.older.why if d.older else None,
        "ours_again": None if d.same is None else _WORDS[d.same],
        "ours_other_seeds": [_WORDS[v] for v in d.seeds],
        "ours_without_shim": None if d.bare is None else _WORDS[d.bare],
        "harness_alone": None if d.plain is None else _WORDS[d.plain.is_right],
    }


def every(
    answers: Sequence[Answer], theirs: Sequence[OfficialVerdict], ours: Sequence[Outcome]
) -> str:
    """One JSON line an answer, with the answer."""
    lines = [
        {
            "id": a.problem.id,
            "dataset": a.source.name,
            "kind": a.kind,
            "note": a.note,
            "official": _WORDS[o.is_right if o.ran else None],
            "official_why": o.why,
            "official_s": round(o.seconds, 2),
            "ours": _WORDS[is_right(r)],
            "ours_why": why(r),
            "files": dict(a.files),
        }
        for a, o, r in zip(answers, theirs, ours, strict=True)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def show(facts: dict[str, Any]) -> str:
    """The facts for a person."""
    lines = [f"{'kind':<12}{'official':<12}{'ours':<12}{'answers':>8}"]
    for row in facts["table"]:
        lines.append(f"{row['kind']:<12}{row['official']:<12}{row['ours']:<12}{row['answers']:>8}")
    groups: dict[str, list[dict[str, Any]]] = {}
    for each in facts["differences"]:
        groups.setdefault(each["reason"] or "UNEXPLAINED", []).append(each)
    for reason, members in sorted(groups.items()):
        lines += ["", f"{len(members)} x {reason}"]
        for each in members:
            lines.append(f"  {each['answer']} [{each['dataset']}]")
            lines.append(f"    official: {each['official']}: {each['official_why']}")
            lines.append(f"    ours: {each['ours']}: {each['ours_why']}")
            tried = {k: each[k] for k in list(each)[7:] if each[k] not in (None, [])}
            lines.append(f"    judged again: {json.dumps(tried)}")
    for name, reason in facts["retried"].items():
        lines.append(f"ours asked twice: {name}: {reason}")
    for name, reason in facts["skipped"].items():
        lines.append(f"not judged: {name}: {reason}")
    seconds = facts["seconds"]
    lines += [
        "",
        f"{facts['equal']} of {facts['answers']} verdicts equal, {facts['explained']} of "
        f"{len(facts['differences'])} differences explained; image {facts['image']}, "
        f"{facts['threads']} at a time: official {seconds['official']} s, "
        f"ours ({facts['sandbox']}) {seconds['ours']} s",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:  # of the official runner or of Docker, with their words
        sys.exit(str(error))
