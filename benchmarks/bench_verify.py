"""
Verifications a second: ours beside the plain way and beside the official runner.

    python benchmarks/bench_verify.py [--mixes right starter weak] [--answers 36] [--workers 1 2]
        [--rounds 3] [--official CHECKOUT --official-python PYTHON] [--image TAG] [--no-docker]
        [--dataset FILE ... --references FILE] [--most-seconds S] [--json]

All judge the same answers with as many at a time, in turns that change from round to round:
`plain`, one fresh pytest process in a fresh bubblewrap sandbox (judging/plain.py); `fresh`, ours
with a new sandbox each; `warm`, ours as it runs by default; `docker`, ours in Docker; `official`,
run_benchmark.py. A turn of ours starts when its sandboxes stand, as they do for the whole of a run.
Ratios are medians over the rounds. Then: scaling with workers, answers from the verdict store,
where the time goes, and what an answer that never ends costs. The mixes and where their proportions
come from: judging/mix.py. The store is off except where it is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve
from judging.answers import Answer, read_references
from judging.contest import Judge, compete, official_turns, our_turns, plain_turn, spread, summary
from judging.images import docker_answers, fixed_names, why_no_image
from judging.mix import MIXES, make_mix
from judging.official import OfficialRunner
from judging.ours import OurRun, is_right, judge_with_ours, our_options

from rlvr import Reward
from rlvr.verification.verdict_cache import SqliteStore
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.datasets.time_limits import LEAST_S

FRESH = {**our_options("bubblewrap"), "warm": 0}
WARM = our_options("bubblewrap")
CACHED_ROUNDS = 400
HANGS = "  initial while (1) begin end\n"


def cached(answers: Sequence[Answer], workers: int) -> float:
    """Answers a second from the verdict store; each was verified before."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "verdicts.sqlite")
        judged = _judged(answers, workers, store=store)
        assert all(isinstance(outcome, Reward) for outcome in judged.outcomes)
        again = _judged(answers, workers, store=store, repeat=CACHED_ROUNDS)
        assert all(isinstance(o, Reward) and o.cached for o in again.outcomes)
        store.close()
    return len(answers) * CACHED_ROUNDS / again.seconds


def _judged(answers: Sequence[Answer], workers: int, **more: Any) -> OurRun:
    return asyncio.run(judge_with_ours(answers, workers=workers, options=WARM, **more))


def phases(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Seconds an answer of each kind, one at a time: before its services, and in them."""
    outcomes = _judged(answers, 1).outcomes
    found: dict[str, list[Reward]] = {}
    for answer, outcome in zip(answers, outcomes, strict=True):
        if isinstance(outcome, Reward):
            kind = f"{answer.kind} {answer.note}" if answer.kind == "broken" else answer.kind
            found.setdefault(kind, []).append(outcome)
    rows = []
    for kind, rewards in sorted(found.items()):
        services = [sum(s["seconds"] for s in r.evidence["services"]) for r in rewards]
        total = statistics.mean(r.cost_s for r in rewards)
        rows.append(
            {
                "kind": kind,
                "answers": len(rewards),
                "seconds": round(total, 4),
                "in_services": round(statistics.mean(services), 4),
                "before": round(total - statistics.mean(services), 4),
                "launches": statistics.mean(
                    sum(s["launches"] for s in r.evidence["services"]) for r in rewards
                ),
            }
        )
    return rows


def hang(answer: Answer, timeout_s: float) -> float:
    """Seconds until an answer that never ends is judged wrong, with this limit."""
    path, text = next(iter(answer.files.items()))
    head, _, tail = text.rpartition("endmodule")
    hanging = evolve(
        answer, kind="hangs", files={**answer.files, path: f"{head}{HANGS}endmodule{tail}"}
    )
    options = {**WARM, "timeout_s": timeout_s}
    run = asyncio.run(judge_with_ours([hanging], workers=1, options=options))
    assert is_right(run.outcomes[0]) is False
    return run.seconds


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--mixes", nargs="+", choices=list(MIXES), default=["right", "starter"])
    parser.add_argument("--answers", type=int, default=36)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--official", type=Path, metavar="CHECKOUT")
    parser.add_argument("--official-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--image", default="", help="image of docker and official")
    parser.add_argument("--no-docker", action="store_true", help="leave Docker out")
    parser.add_argument("--dataset", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--references", type=Path, metavar="FILE")
    parser.add_argument(
        "--most-seconds",
        type=float,
        default=math.inf,
        help="leave out problems whose reference took longer in rlvr cvdp calibrate",
    )
    parser.add_argument("--hang-timeout", type=float, default=5.0, help="seconds; 0: not measured")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def contestants(args: argparse.Namespace, opened: contextlib.ExitStack) -> dict[str, Judge]:
    judges: dict[str, Judge] = {
        "plain": plain_turn,
        "fresh": our_turns(FRESH),
        "warm": our_turns(WARM),
    }
    if not args.no_docker and docker_answers():
        image = args.image or _default_image()
        if missing := why_no_image(image):
            sys.exit(f"{missing}; --no-docker leaves Docker out")
        judges["docker"] = our_turns(our_options("docker", image))
        if args.official:
            opened.enter_context(fixed_names(image))
            judges["official"] = official_turns(
                OfficialRunner(
                    checkout=args.official.resolve(), python=args.official_python, image=image
                )
            )
    return judges


def _default_image() -> str:
    from rlvr_cvdp.images.recipe import image_tag

    return image_tag()


def main() -> int:
    args = parse()
    most = max(args.workers)
    with contextlib.ExitStack() as opened:
        return run(args, contestants(args, opened), most)


def run(args: argparse.Namespace, judges: Mapping[str, Judge], most: int) -> int:
    results: dict[str, Any] = {"workers": most, "mixes": {}}
    for name in args.mixes:
        answers = make_mix(
            MIXES[name],
            args.answers,
            sources=args.dataset,
            references=read_references(args.references),
            options=WARM,
            workers=most,
            most_s=args.most_seconds,
        )
        turns = compete(judges, answers, most, args.rounds)
        results["mixes"][name] = summary(turns, answers)
        if not args.json:
            print(show_mix(name, most, results["mixes"][name]), flush=True)
    few = {str(workers): our_turns(WARM) for workers in args.workers}
    scaling = {
        workers: spread(
            [len(answers) / judge(answers, int(workers)).seconds for _ in range(args.rounds)]
        )
        for workers, judge in few.items()
    }
    results["scaling"] = {"mix": args.mixes[-1], "per_second": scaling}
    results["phases"] = phases(answers)
    results["cached_per_second"] = round(cached(answers, most))
    if args.hang_timeout:
        right = next(answer for answer in answers if answer.kind == "reference")
        results["hang"] = {
            "limit_s": args.hang_timeout,
            "seconds": round(hang(right, args.hang_timeout), 2),
            "default_limit_s": CvdpConfig().timeout_s,
            "least_calibrated_s": LEAST_S,
        }
    print(json.dumps(results) if args.json else show_rest(results))
    return 0


def show_mix(name: str, workers: int, found: Mapping[str, Any]) -> str:
    lines = [f"== {name}: {found['answers']} answers, {found['right']} right, {workers} at a time"]
    for judge, rate in found["per_second"].items():
        opening = found["opening_s"].get(judge)
        once = f", after {opening:.2f} s to open" if opening else ""
        lines.append(f"{judge:>9}: {_of(rate)} answers/s{once}")
    lines += [f"  {pair}: {_of(ratio)}x" for pair, ratio in found["ratios"].items()]
    same = found["unequal_verdicts"]
    lines += [f"  verdicts differ: {each}" for each in same] or ["  all verdicts equal"]
    return "\n".join(lines)


def show_rest(results: Mapping[str, Any]) -> str:
    scaling = results["scaling"]["per_second"]
    first = next(iter(scaling.values()))["median"]
    lines = [f"== scaling ({results['scaling']['mix']}, warm)"]
    for workers, rate in scaling.items():
        lines.append(f"{workers} workers: {_of(rate)} answers/s, {rate['median'] / first:.2f}x")
    lines.append("== where the time goes (warm, one at a time; seconds an answer)")
    for row in results["phases"]:
        lines.append(
            f"{row['kind']:>20}: {row['seconds']:.3f} = {row['before']:.3f} before the services "
            f"+ {row['in_services']:.3f} in them, {row['launches']:.1f} simulator launches"
        )
    lines.append(f"== from the store: {results['cached_per_second']} answers/s")
    if "hang" in results:
        hang = results["hang"]
        lines += [
            f"== an answer that never ends: {hang['seconds']} s, limit {hang['limit_s']:g} CPU s",
            f"   limits: {hang['default_limit_s']:g} s by default (cvdp.timeout_s); where",
            "   rlvr cvdp calibrate has timed the problem, five times its reference, at least "
            f"{hang['least_calibrated_s']:g} s",
        ]
    return "\n".join(lines)


def _of(spread: Mapping[str, float]) -> str:
    return f"{spread['median']:.2f} ({spread['least']:.2f} to {spread['most']:.2f})"


if __name__ == "__main__":
    sys.exit(main())
