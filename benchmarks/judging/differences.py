"""Why two judges differ, found out by judging again with one thing changed at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from judging.answers import Answer
from judging.official import OfficialRunner, OfficialVerdict
from judging.ours import is_right, judge_with_ours, why
from judging.plain import PlainVerdict, judge_plainly
from rlvr import Outcome, Reward

SEEDS = ("2", "3", "4")
_NOTHING = "the official runner judged nothing"


@frozen(kw_only=True)
class Difference:
    """
    An answer that the judges see differently, and what was found out about it.

    Attributes:
        again: The official verdicts when asked again, each True or False.
        longer: The official verdict with five times the time, where it had stopped the answer.
        older: The official verdict with cocotb 1 in its image, which is otherwise the same, and
            five times the time; None where not tried.
        same: Our verdict when asked again; None where not tried.
        seeds: Our verdicts with other seeds.
        bare: Ours without names that cocotb 2 dropped (`cvdp.shim=false`); None where not tried.
        plain: The harness alone, by hand, with our tools.
    """

    answer: Answer
    official: OfficialVerdict
    ours: Outcome
    again: tuple[bool, ...] = ()
    longer: OfficialVerdict | None = None
    older: OfficialVerdict | None = None
    same: bool | None = None
    seeds: tuple[bool | None, ...] = ()
    bare: bool | None = None
    plain: PlainVerdict | None = field(default=None)

    @property
    def is_clear(self) -> bool:
        """Nothing more needs to be tried; where the official runner did not judge, all is."""
        return bool(self.reason()) and not self.reason().startswith(_NOTHING)

    def reason(self) -> str:
        """Why they differ, "" where the experiments do not tell."""
        ours = is_right(self.ours)
        if self.same is not None and self.same != ours:
            return ""  # ours does not stand by its own word
        repeated = (self.official.is_right, *self.again)
        if len(set(repeated)) > 1:
            return (
                f"the official runner sets no seed: it says right {sum(repeated)} times of "
                f"{len(repeated)}"
            )
        if self.longer is not None and self.longer.is_right == ours:
            return (
                "it needs more wall time than the official runner gives: with five times, it agrees"
            )
        is_older = _is_older(self.answer)
        if is_older and self.older is not None and self.older.ran and self.older.is_right == ours:
            return (
                "its harness was written for cocotb 1: with that in its image, the official "
                "runner agrees"
            )
        official = self.older if is_older and not self.official.ran else self.official
        if official is not None and official.ran and official.is_right in self.seeds:
            return (
                f"it depends on the seed, which the official runner does not set: ours says right "
                f"with {sum(map(bool, self.seeds))} of {len(self.seeds)} others"
            )
        if not self.official.ran:
            return f"{_NOTHING}: {self.official.why}"
        if ours and self.bare is False:
            return (
                "its harness uses names that cocotb 2 dropped: without our stand-ins for them "
                "(cvdp.shim=false), ours agrees"
            )
        return self._why_stricter() if ours is False else ""

    def _why_stricter(self) -> str:
        assert isinstance(self.ours, Reward)
        harness_passes = self.plain is not None and self.plain.is_right
        refused = tuple(self.ours.evidence.get("refused") or ())
        if harness_passes and refused:
            return f"ours refuses it: {'; '.join(map(str, refused))[:200]}"
        if harness_passes and "exited with 0" in why(self.ours):
            return f"ours asks for more than exit status 0: {why(self.ours)}"
        return ""


@frozen(kw_only=True)
class Laboratory:
    """What the experiments are made with; `older_image` differs from the other in its cocotb."""

    official: OfficialRunner
    older_image: str | None
    options: Mapping[str, Any]
    workers: int
    folder: Path
    repeats: int = 3

    def explore(self, found: Sequence[Difference]) -> list[Difference]:
        """Judge again with one thing changed at a time, each difference until one tells."""
        known = {id(each.answer): each for each in found}
        for experiment in (self._older, self._longer, self._again, self._seeds, self._alone):
            unclear = [each for each in known.values() if not each.is_clear]
            known |= {id(each.answer): each for each in experiment(unclear)} if unclear else {}
        return [known[id(each.answer)] for each in found]

    def _older(self, found: Sequence[Difference]) -> list[Difference]:
        chosen = [each for each in found if _is_older(each.answer)]
        if self.older_image is None or not chosen:
            return []
        runner = evolve(self._patient, image=self.older_image)
        verdicts = self._judge(runner, chosen, "older")
        return [evolve(each, older=v) for each, v in zip(chosen, verdicts, strict=True)]

    def _longer(self, found: Sequence[Difference]) -> list[Difference]:
        chosen = [each for each in found if each.official.stopped]
        if not chosen:
            return []
        verdicts = self._judge(self._patient, chosen, "longer")
        return [evolve(each, longer=v) for each, v in zip(chosen, verdicts, strict=True)]

    def _again(self, found: Sequence[Difference]) -> list[Difference]:
        sames = self._ours(found, self.options)
        asked = [evolve(each, same=same) for each, same in zip(found, sames, strict=True)]
        ran = [each for each in asked if each.official.ran and not each.official.stopped]
        for number in range(self.repeats if ran else 0):
            verdicts = self._judge(self.official, ran, f"again-{number}")
            ran = [
                evolve(each, again=(*each.again, v.is_right))
                for each, v in zip(ran, verdicts, strict=True)
            ]
        repeated = {id(each.answer): each for each in ran}
        return [repeated.get(id(each.answer), each) for each in asked]

    def _seeds(self, found: Sequence[Difference]) -> list[Difference]:
        for seed in SEEDS:
            verdicts = self._ours(found, {**self.options, "seeds": (seed,)})
            found = [
                evolve(each, seeds=(*each.seeds, v))
                for each, v in zip(found, verdicts, strict=True)
            ]
        return list(found)

    def _alone(self, found: Sequence[Difference]) -> list[Difference]:
        answers = [each.answer for each in found]
        bares = self._ours(found, {**self.options, "shim": False})
        plains = asyncio.run(judge_plainly(answers, workers=self.workers, options=self.options))
        return [
            evolve(each, bare=bare, plain=plain)
            for each, bare, plain in zip(found, bares, plains, strict=True)
        ]

    @property
    def _patient(self) -> OfficialRunner:
        """With five times the time: what is asked then is not how fast the machine is."""
        return evolve(self.official, timeout_s=5 * self.official.timeout_s)

    def _judge(
        self, runner: OfficialRunner, found: Sequence[Difference], name: str
    ) -> tuple[OfficialVerdict, ...]:
        return runner.judge([each.answer for each in found], self.folder / name).verdicts

    def _ours(self, found: Sequence[Difference], options: Mapping[str, Any]) -> list[bool | None]:
        answers = [each.answer for each in found]
        run = asyncio.run(judge_with_ours(answers, workers=self.workers, options=options))
        return [is_right(outcome) for outcome in run.outcomes]


def _is_older(answer: Answer) -> bool:
    """Its harness was written for cocotb 1."""
    return getattr(answer.problem.payload, "generation", 2) == 1
