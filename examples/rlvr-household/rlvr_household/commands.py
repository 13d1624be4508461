"""`rlvr household play` and `models`: trajectories of the house, and the models that ship."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rlvr import BuildContext, Problem, open_policy
from rlvr_household.config import HouseConfig
from rlvr_household.play import Played, figures, play, play_solver
from rlvr_household.starter.model_path import student_model, teacher_model
from rlvr_household.task import HouseTask

MODELS = {"teacher": teacher_model, "student": student_model}
SOLVER = "solver"
AT_ONCE = 256


def house_models(argv: list[str]) -> int:
    """Print the spec of one shipped model, or of all."""
    parser = parser_of(
        "models",
        "Print the model specs of the small models that ship for the house.",
        "rlvr household models",
        'rlvr eval --task house --model "$(rlvr household models teacher)"',
    )
    parser.add_argument("name", nargs="?", choices=list(MODELS), help="one of them, alone")
    options = parser.parse_args(argv)
    if options.name:
        print(MODELS[options.name]())
    else:
        for name, spec in MODELS.items():
            print(f"{name}  {spec()}")
    return 0


def house_play(argv: list[str]) -> int:
    """Write trajectories of a model, or of the solver, as JSON lines that `rlvr sad` reads."""
    options = _parser().parse_intermixed_args(argv)
    config = HouseConfig(train=options.problems, test=options.problems, seed=options.house_seed)
    problems = HouseTask(config, BuildContext()).problems(options.split)
    played = asyncio.run(_played(options, problems, config.steps))
    kept = [one for one in played if one.notes["done"] or options.all]
    with options.out.open("w", encoding="utf-8") as file:
        for one in kept:
            record = {
                "id": one.problem.id,
                "task_id": one.problem.id,
                "text": one.text,
                "reward": float(one.notes["done"]),
                "notes": dict(one.notes),
                "model": options.model,
            }
            file.write(json.dumps(record) + "\n")
    told: dict[str, float | None] = {
        figure.name: round(figure.value, 4) if figure.n else None
        for figure in figures([one.notes for one in played])
    }
    told |= {"episodes": len(played), "written": len(kept)}
    if options.json:
        print(json.dumps(told))
    else:
        print("\n".join(f"{name} {'-' if n is None else n}" for name, n in told.items()))
    return 0


def parser_of(name: str, description: str, *examples: str) -> argparse.ArgumentParser:
    """The parser of `rlvr household NAME`; its help ends with the examples."""
    return argparse.ArgumentParser(
        prog=f"rlvr household {name}",
        description=description,
        epilog="\n  ".join(["examples:", *examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "play",
        "Let a model, or the solver, live in houses; write what happened as ReAct "
        "texts, a JSON line each. Episodes that missed their goal are left out.",
        "rlvr household play --out teacher.jsonl --problems 256",
        "rlvr household play --model solver --out solver.jsonl --split test",
        "rlvr household play --model gpt2:DIR --out all.jsonl --all --temperature 0",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON lines")
    parser.add_argument(
        "--model", default="teacher", help="teacher (default), student, solver, or a model spec"
    )
    parser.add_argument("--problems", type=int, default=512, metavar="N", help="default 512")
    parser.add_argument("--split", default="train", choices=["train", "test"])
    parser.add_argument("--samples", type=int, default=1, metavar="N", help="episodes a problem")
    parser.add_argument("--temperature", type=float, default=1.0, help="default 1; 0: greedy")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument("--house-seed", type=int, default=0, help="house.seed")
    parser.add_argument("--all", action="store_true", help="keep episodes without success too")
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of the backend")
    return parser


async def _played(
    options: argparse.Namespace, problems: Sequence[Problem], steps: int
) -> list[Played]:
    asked = [p for p in problems for _ in range(options.samples)]
    if options.model == SOLVER:
        return [
            await play_solver(p, steps=steps, seed=options.seed * 1000 + i % options.samples)
            for i, p in enumerate(asked)
        ]
    spec = MODELS[options.model]() if options.model in MODELS else options.model
    found: list[Played] = []
    async with open_policy("house", model=spec, options=options.overrides) as opened:
        for first in range(0, len(asked), AT_ONCE):
            found += await play(
                opened.policy,
                asked[first : first + AT_ONCE],
                steps=steps,
                temperature=options.temperature,
                seed=options.seed * 1_000_003 + first,
            )
            print(f"{len(found)} of {len(asked)} episodes", file=sys.stderr, flush=True)
    return found
