from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve, field, frozen
from judging.answers import Answer
from judging.differences import Difference, Laboratory
from judging.official import OfficialRun, OfficialVerdict
from judging.ours import OurRun
from judging.plain import PlainVerdict

from rlvr import Failed, Outcome, Problem, Reward

ANSWER = Answer(
    source=Path("x"), row={}, problem=Problem(id="p", prompt=()), kind="reference", files={}
)
OLDER = evolve(ANSWER, problem=Problem(id="p", prompt=(), payload=SimpleNamespace(generation=1)))


def said(is_right: bool, *, ran: bool = True) -> OfficialVerdict:
    return OfficialVerdict(is_right=is_right, ran=ran, why="" if is_right else "w", seconds=1.0)


def ours(is_right: bool, why: str = "", refused: tuple[str, ...] = ()) -> Reward:
    evidence = {"why": why, "refused": list(refused)}
    return Reward(value=float(is_right), score01=float(is_right), evidence=evidence)


def difference(official: OfficialVerdict, outcome: Outcome, **found: Any) -> Difference:
    return Difference(**{"answer": ANSWER, "official": official, "ours": outcome, **found})


ALONE = PlainVerdict(is_right=True, why="", seconds=1.0)
EXPLAINED = {
    "sets no seed": difference(said(False), ours(True), again=(False, True, False)),
    "written for cocotb 1": difference(said(False), ours(True), older=said(True), answer=OLDER),
    "with 1 of 3 others": difference(
        said(False, ran=False),
        ours(True),
        older=said(False),
        seeds=(False, True, False),
        answer=OLDER,
    ),
    "more wall time": difference(said(False), ours(True), longer=said(True)),
    "judged nothing": difference(said(False, ran=False), ours(True)),
    "cocotb 2 dropped": difference(said(False), ours(True), again=(False,) * 3, bare=False),
    "depends on the seed": difference(said(True), ours(False), seeds=(False, True, False)),
    "ours refuses it: opens": difference(
        said(True), ours(False, refused=("opens a file",)), plain=ALONE
    ),
    "more than exit status 0": difference(
        said(True), ours(False, "it exited with 0, but"), plain=ALONE
    ),
}


@pytest.mark.parametrize("words", EXPLAINED)
def test_a_reason_is_given_where_an_experiment_shows_it(words: str) -> None:
    """Each class of difference names itself."""
    assert words in EXPLAINED[words].reason()


@pytest.mark.parametrize(
    "unclear",
    [
        difference(said(False), ours(True), again=(False,) * 3, older=said(False), bare=True),
        difference(said(True), ours(False, "exited with 1"), seeds=(False,) * 3, plain=ALONE),
        difference(said(True), ours(False, refused=("opens a file",))),
        difference(said(True), Failed(reason="broke"), again=(True,) * 3, seeds=(None,) * 3),
        difference(said(False), ours(True), older=said(True, ran=False), answer=OLDER),
        difference(said(False), ours(True), older=said(True)),  # not written for cocotb 1
        difference(said(False), ours(True), same=False, again=(True, False, True)),
    ],
)
def test_no_reason_is_given_where_no_experiment_shows_it(unclear: Difference) -> None:
    """A difference that could be our bug stays unexplained."""
    assert unclear.reason() == ""


def test_a_check_of_ours_explains_only_what_the_harness_alone_lets_pass() -> None:
    """Naming a check is not enough: the bare harness must say right."""
    found = difference(said(True), ours(False, refused=("opens a file",)), plain=ALONE)
    assert found.reason()
    assert evolve(found, plain=evolve(ALONE, is_right=False)).reason() == ""


@frozen(kw_only=True)
class Runner:
    """Says right with the older image or with more time, and notes what it was asked."""

    image: str = "new"
    timeout_s: int = 10
    asked: list[str] = field(factory=list)

    def judge(self, answers: list[Answer], folder: Path) -> OfficialRun:
        self.asked.append(folder.name)
        verdict = said(self.image == "old" or self.timeout_s == 50)
        return OfficialRun(verdicts=(verdict,) * len(answers), seconds=1.0)


def explored(
    found: list[Difference], runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], list[str]]:
    """The reasons, and the options that ours was asked with."""
    asked: list[str] = []

    async def ours_again(answers: list[Answer], *, workers: int, options: Any) -> OurRun:
        asked.append(" ".join(f"{k}={v}" for k, v in options.items()))
        right = options.get("shim", True) is True
        return OurRun(outcomes=(ours(right),) * len(answers), seconds=1.0, opening_s=0.0)

    async def alone(answers: list[Answer], **_: Any) -> list[PlainVerdict]:
        return [ALONE] * len(answers)

    monkeypatch.setattr("judging.differences.judge_with_ours", ours_again)
    monkeypatch.setattr("judging.differences.judge_plainly", alone)
    laboratory = Laboratory(
        official=runner,  # type: ignore[arg-type]
        older_image="old",
        options={},
        workers=1,
        folder=Path("x"),
    )
    return [each.reason() for each in laboratory.explore(found)], asked


def test_experiments_end_where_one_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheap one first; ours is not asked again about what is explained already."""
    runner = Runner()
    found = [
        difference(said(False), ours(True), answer=OLDER),
        difference(evolve(said(False), stopped=True), ours(True), answer=evolve(ANSWER)),
    ]
    reasons, asked = explored(found, runner, monkeypatch)
    assert [("cocotb 1" in r, "wall time" in r) for r in reasons] == [(True, False), (False, True)]
    assert runner.asked == ["older", "longer"]
    assert asked == []


def test_every_experiment_is_made_where_none_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one is the verifier without its stand-ins, and here it tells."""
    runner = Runner()
    reasons, asked = explored([difference(said(False), ours(True))], runner, monkeypatch)
    assert "cocotb 2 dropped" in reasons[0]
    assert runner.asked == ["again-0", "again-1", "again-2"]
    assert asked == ["", "seeds=('2',)", "seeds=('3',)", "seeds=('4',)", "shim=False"]
