from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve
from judging.answers import Answer
from judging.differences import Difference
from judging.official import OfficialVerdict
from judging.plain import PlainVerdict

from rlvr.types import Failed, Outcome, Problem, Reward

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
