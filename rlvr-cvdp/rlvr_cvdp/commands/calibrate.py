"""`rlvr cvdp calibrate`: times the right answers of a data set, for limits of single problems."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from attrs import evolve

from rlvr import BuildContext, ConfigError, VerifierError, counted
from rlvr_cvdp.commands.arguments import parser_of
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.datasets.time_limits import FACTOR, LEAST_S, Timed, default_path, save_calibration
from rlvr_cvdp.sandbox.choose import add_sandbox_options, sandbox_keywords
from rlvr_cvdp.task import CvdpTask
from rlvr_cvdp.verify import machine_speed
from rlvr_cvdp.verify.reward import CvdpReward


def calibrate(argv: list[str]) -> int:
    """Judge the reference of each problem and keep what it took."""
    parser = parser_of(
        "calibrate",
        "Time the right answers of a data set. Runs then stop an answer after\n"
        f"{FACTOR:g} times as long ({LEAST_S:g} s at least; more on a slower machine)\n"
        "instead of cvdp.timeout_s.",
        *("calibrate", "calibrate --dataset cvdp.jsonl --references solutions.jsonl"),
        "calibrate --dataset cvdp.jsonl --sandbox docker --out limits.json",
    )
    parser.add_argument("--references", default="", help="JSON Lines {id, files} of solutions")
    parser.add_argument("--out", type=Path, help="file to write (default: in the user's cache)")
    add_sandbox_options(parser)
    options = parser.parse_args(argv)
    config = CvdpConfig(references=options.references, limits="off", **sandbox_keywords(options))
    path = options.out or default_path()
    timed, left_out = asyncio.run(_measure(config, options.dataset))
    if not timed and not left_out:
        raise ConfigError(
            "the right answers of a data set were to be timed.",
            f"found: no problem in {options.dataset}",
            "try: another --dataset; rlvr cvdp list says why rows cannot be verified",
        )
    save_calibration(path, dict(timed.values()))
    if options.json:
        listed = {name: taken.cpu_s for name, (_, taken) in timed.items()}
        print(json.dumps({"file": str(path), "seconds": listed, "left_out": left_out}))
        return 0
    for name, (_, taken) in timed.items():
        print(f"{name:56} {taken.cpu_s:8.2f} s   limit {taken.limit_s():g} s")
    for name, why in left_out.items():
        print(f"{name:56} left out: {why}", file=sys.stderr)
    print(
        f"{counted(len(timed), 'problem')} timed, {len(left_out)} left out: {path}", file=sys.stderr
    )
    return 0


async def _measure(
    config: CvdpConfig, dataset: Path | None
) -> tuple[dict[str, tuple[str, Timed]], dict[str, str]]:
    context = BuildContext(dataset=dataset)
    task = CvdpTask(config, context)
    timed: dict[str, tuple[str, Timed]] = {}
    left_out: dict[str, str] = {}
    async with CvdpReward(evolve(config, warm=1), context) as reward:
        print(reward.judged_with, file=sys.stderr)
        for problem in task.problems("all"):
            reference = task.reference(problem)
            if reference is None or problem.payload.is_comprehension:
                left_out[problem.id] = "no reference (--references)"
                continue
            try:
                outcome = await reward(problem, reference)
            except VerifierError as error:
                left_out[problem.id] = str(error)
                continue
            if outcome.score01 < 1.0:
                left_out[problem.id] = f"its reference fails: {outcome.evidence['why']}"
                continue
            probe_s = await asyncio.to_thread(machine_speed.probe_s)
            taken = Timed(float(outcome.evidence["cpu_s"]), probe_s)
            timed[problem.id] = (problem.digest, taken)
    return timed, left_out
