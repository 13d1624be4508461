"""Mixes of right, wrong and broken answers, as policies of different strength give them."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from judging.answers import Answer, make_answers
from judging.ours import judge_with_ours
from rlvr import Reward
from rlvr_cvdp.datasets.time_limits import Timed, load_calibration
from rlvr_cvdp.results.stage import Stage

_TRIES = 4


@frozen(kw_only=True)
class Mix:
    """Shares of answers that do not parse, do not compile, fail the tests; the rest is right."""

    unparsed: float = 0.0
    uncompiled: float = 0.0
    wrong: float = 0.0


MIXES: Mapping[str, Mix] = {
    "right": Mix(),
    # The starter model before its first step: 2 seeds, 59 held-out problems, 4 answers each
    # (23.5 %, 8.1 %, 34.8 %; the other 33.5 % were right).
    "starter": Mix(unparsed=0.235, uncompiled=0.081, wrong=0.348),
    # Assumed, for a policy that solves one problem in ten.
    "weak": Mix(unparsed=0.34, uncompiled=0.11, wrong=0.45),
}
"""What the benchmark measures."""


def make_mix(
    mix: Mix,
    count: int,
    *,
    sources: Sequence[Path] = (),
    references: Mapping[str, Mapping[str, str]] | None = None,
    options: Mapping[str, Any],
    workers: int,
    most_s: float = math.inf,
    seed: int = 1,
) -> list[Answer]:
    """
    `count` answers in the proportions of the mix, each to another problem as far as there are any.

    Wrong ones are mutants of references that compile, end and fail; whether they do is asked of
    the verifier first, outside of what is measured. Problems whose reference took more than
    `most_s` in `rlvr cvdp calibrate` are left out.
    """
    bank = make_answers(sources, references=references, kinds=("reference",)).answers
    timed = load_calibration("auto")
    order = [
        answer for answer in bank if timed.get(answer.problem.digest, Timed(0.0)).cpu_s <= most_s
    ]
    random.Random(seed).shuffle(order)
    shares = (mix.unparsed, mix.uncompiled, mix.wrong)
    unparsed, uncompiled, wrong = (round(share * count) for share in shares)
    chosen = [order[place % len(order)] for place in range(count)]
    made = [
        *(_broken(answer, syntax=True) for answer in chosen[:unparsed]),
        *(_broken(answer, syntax=False) for answer in chosen[unparsed : unparsed + uncompiled]),
        *chosen[unparsed + uncompiled + wrong :],
    ]
    ids = [answer.problem.id for answer in chosen[unparsed + uncompiled :][:wrong]]
    made += _wrong(ids, sources, references, options, workers, seed)
    random.Random(seed).shuffle(made)
    return made


def _broken(answer: Answer, *, syntax: bool) -> Answer:
    path, text = next(iter(answer.files.items()))
    head, _, tail = text.rpartition("endmodule")
    added = "  assign = ;\n" if syntax else "  always @* not_declared_anywhere = 1'b0;\n"
    files = {**answer.files, path: f"{head}{added}endmodule{tail}"}
    return evolve(answer, kind="broken", note="syntax" if syntax else "elaboration", files=files)


def _wrong(
    ids: Sequence[str],
    sources: Sequence[Path],
    references: Mapping[str, Mapping[str, str]] | None,
    options: Mapping[str, Any],
    workers: int,
    seed: int,
) -> list[Answer]:
    if not ids:
        return []
    tried = make_answers(
        sources,
        references=references,
        kinds=("mutant",),
        mutant_count=_TRIES,
        only=sorted(set(ids)),
        seed=seed,
    ).answers
    run = asyncio.run(judge_with_ours(tried, workers=workers, options=options))
    fit: dict[str, list[Answer]] = {}
    for answer, outcome in zip(tried, run.outcomes, strict=True):
        if (
            isinstance(outcome, Reward)
            and outcome.score01 < 1
            and outcome.components.get("compilation", 0)
            and outcome.evidence["stage"] != Stage.TIMEOUT.value
        ):
            fit.setdefault(answer.problem.id, []).append(answer)
    others = [answer for answers in fit.values() for answer in answers]
    if not others:
        raise RuntimeError("no mutant of these references compiles and fails")
    return [(fit.get(name) or [others[n % len(others)]])[0] for n, name in enumerate(ids)]
