"""The built-in curricula: shares by hand, interruption, and the options that fit nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rlvr import BuildContext, ConfigError, Curriculum, PassRate, Problem
from rlvr.curriculum.builtin import (
    ByDifficulty,
    ByPassRate,
    ByStrength,
    DifficultyOptions,
    Epochs,
    PassRateOptions,
    StrengthOptions,
)
from rlvr.verifier_audit.file import read_strengths

CONTEXT = BuildContext()
POOL = [
    Problem(id=f"{stage}{i}", prompt=(), labels={"difficulty": stage, "topic": "xyz"[i]})
    for stage in ("hard", "easy", "medium")
    for i in range(3)
]
RATES = {"hard": 0.0, "medium": 0.5, "easy": 1.0}


def train(
    make: Callable[[], Curriculum],
    steps: int,
    *,
    stops: tuple[int, ...] = (),
    pool: list[Problem] = POOL,
) -> list[list[str]]:
    """
    The problems of each step under fixed pass rates.

    At each of `stops` everything is made anew from what a checkpoint keeps: step and history.
    """
    curriculum, history = make(), "{}"
    line: list[list[str]] = []
    for step in range(steps):
        if step in stops:
            curriculum = make()
        met = {name: PassRate(**facts) for name, facts in json.loads(history).items()}
        chosen = curriculum.choose(pool, 2, seed=5, step=step, history=met)
        line.append([problem.id for problem in chosen])
        for name in line[-1]:
            count = met[name].count + 1 if name in met else 1
            met[name] = PassRate(rate=RATES[name[:-1]], count=count, step=step)
        history = json.dumps(
            {n: {"rate": r.rate, "count": r.count, "step": r.step} for n, r in met.items()}
        )
    return line


def shares(line: list[list[str]]) -> Mapping[str, int]:
    """Meetings of each difficulty."""
    return Counter(name[:-1] for step in line for name in step)


@pytest.fixture
def audit(tmp_path: Path) -> str:
    """Hard ones are judged strongly, easy ones weakly, of the medium ones nothing is known."""
    strengths = {"hard": 1.0, "easy": 0.25, "medium": None}
    path = tmp_path / "audit.json"
    entries = {p.id: {"strength": strengths[p.id[:-1]]} for p in POOL}
    path.write_text(json.dumps({"version": 1, "problems": entries}))
    return str(path)


@pytest.fixture(params=["epochs", "difficulty", "pass-rate", "strength"])
def make(request: Any, audit: str) -> Callable[[], Curriculum]:
    """Builds each of the built-in curricula."""
    return {
        "epochs": lambda: Epochs(None, CONTEXT),
        "difficulty": lambda: ByDifficulty(DifficultyOptions(ramp_steps=12), CONTEXT),
        "pass-rate": lambda: ByPassRate(PassRateOptions(), CONTEXT),
        "strength": lambda: ByStrength(StrengthOptions(audit=audit), CONTEXT),
    }[request.param]


def test_an_interrupted_choice_is_the_uninterrupted_one(make: Callable[[], Curriculum]) -> None:
    """Thirty steps at once, or stopped three times: the same problems, step for step."""
    assert train(make, 30, stops=(1, 11, 17)) == train(make, 30)


def test_every_problem_is_met_in_time(make: Callable[[], Curriculum]) -> None:
    """No pass rate and no strength keeps a problem away for forty steps of two."""
    line = train(make, 200)

    for begin in range(20, 160):
        met = {name for step in line[begin : begin + 40] for name in step}
        assert met == {problem.id for problem in POOL}, begin


def test_epochs_are_even() -> None:
    """Nine problems, two a step: 200 steps meet each difficulty a third of the time."""
    assert set(shares(train(lambda: Epochs(None, CONTEXT), 198)).values()) == {132}


def test_always_and_never_solved_problems_are_met_less() -> None:
    """Over 200 steps each of the half-solved ones comes more than thrice as often."""
    counts = shares(train(lambda: ByPassRate(PassRateOptions(), CONTEXT), 200))

    assert counts["medium"] > 3 * counts["easy"]
    assert counts["medium"] > 3 * counts["hard"]
    assert min(counts.values()) >= 20


def test_the_target_decides_what_is_met_most() -> None:
    """Aimed at problems that are nearly never solved, the hard ones lead."""
    counts = shares(train(lambda: ByPassRate(PassRateOptions(target=0.0), CONTEXT), 200))

    assert counts["hard"] > counts["medium"] > counts["easy"]


def test_exploring_is_a_share_of_the_step() -> None:
    """Of four problems a step, three quarters are new ones when that is asked for."""
    curriculum = ByPassRate(PassRateOptions(explore=0.75), CONTEXT)
    history = {p.id: PassRate(rate=0.5, count=1, step=0) for p in POOL[:4]}

    chosen = curriculum.choose(POOL, 4, seed=1, step=1, history=history)

    assert sum(problem.id not in history for problem in chosen) == 3


def test_strength_decides_how_often(audit: str) -> None:
    """Strengths 1, 1/4 and unknown (their mean, 5/8): 8 to 2 to 5 of each fifteen meetings."""
    counts = shares(train(lambda: ByStrength(StrengthOptions(audit=audit), CONTEXT), 225))

    assert counts == {"hard": 240, "medium": 150, "easy": 60}


def test_the_stages_have_their_usual_order() -> None:
    """Easy, then medium, then hard, without naming them."""
    line = train(lambda: ByDifficulty(DifficultyOptions(ramp_steps=40), CONTEXT), 80)

    assert set(shares(line[:2])) == {"easy"}
    assert "hard" not in shares(line[:20])
    assert shares(line[20:40])["hard"] > 0
    assert len(shares(line[40:])) == 3


def test_stages_of_another_label_and_what_they_leave_out() -> None:
    """`curriculum.label` and `curriculum.stages`; a value that is not named comes last."""
    options = DifficultyOptions(label="topic", stages=("z", "x"), ramp_steps=40)

    line = train(lambda: ByDifficulty(options, CONTEXT), 60)

    assert {name[-1] for step in line[:2] for name in step} == {"2"}
    assert {name[-1] for step in line[:20] for name in step} == {"2", "0"}
    assert {name[-1] for step in line[40:] for name in step} == {"2", "0", "1"}


def test_a_missing_stage_is_fine_where_the_usual_ones_are_meant() -> None:
    """A data set without hard problems needs no option; one that has only other words does."""
    easier = [p for p in POOL if p.labels["difficulty"] != "hard"]

    line = train(lambda: ByDifficulty(DifficultyOptions(ramp_steps=4), CONTEXT), 8, pool=easier)

    assert set(shares(line[:1])) == {"easy"}
    assert set(shares(line)) == {"easy", "medium"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"label": "dificulty"},
            ["'dificulty'", "none of 9 problems", "did you mean 'difficulty'"],
        ),
        ({"label": "topic"}, ["'easy'", "x (3), y (3), z (3)", "curriculum.stages=x,y,z"]),
        ({"stages": ("esay", "hard")}, ["'esay'", "easy (3), hard (3)", "did you mean 'easy'"]),
    ],
)
def test_stages_that_fit_no_problem_are_refused(options: Any, said: list[str]) -> None:
    """The label or the stage, what there is in its place, and the option to set."""
    curriculum = ByDifficulty(DifficultyOptions(**options), CONTEXT)

    with pytest.raises(ConfigError) as caught:
        curriculum.choose(POOL, 2, seed=1, step=0, history={})

    assert all(text in str(caught.value) for text in said), str(caught.value)


def test_problems_without_labels_say_that_there_are_none() -> None:
    """Nothing to suggest is said as such."""
    curriculum = ByDifficulty(DifficultyOptions(), CONTEXT)
    with pytest.raises(ConfigError, match="their labels: none"):
        curriculum.choose([Problem(id="a", prompt=())], 2, seed=1, step=0, history={})


def test_strength_without_an_audit_is_refused_when_it_is_built() -> None:
    """The command that makes one, and the option that names it."""
    with pytest.raises(ConfigError, match=r"rlvr audit .*curriculum.audit=AUDIT.json"):
        ByStrength(StrengthOptions(), CONTEXT)


@pytest.mark.parametrize(
    ("entries", "held"),
    [({"other": {"strength": 0.5}}, 0), ({"easy0": {"strength": None}, "o": {"strength": 1}}, 1)],
)
def test_an_audit_that_fits_no_problem_is_refused(tmp_path: Path, entries: Any, held: int) -> None:
    """One of other problems, or one that knows no strength of these, would change nothing."""
    path = tmp_path / "audit.json"
    path.write_text(json.dumps({"version": 1, "problems": entries}))
    curriculum = ByStrength(StrengthOptions(audit=str(path)), CONTEXT)

    with pytest.raises(ConfigError, match=f"it has {held} of the 9 problems"):
        curriculum.choose(POOL, 2, seed=1, step=0, history={})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ("[]", 'no object with "problems"'),
        ('{"problems": {}}', "version None, and this is read: 1"),
        ('{"version": 1, "problems": {"a": {"strength": 2}}}', "problem a has no"),
        ('{"version": 1, "problems": {"a": {"strength": true}}}', "problem a has no"),
        ('{"version": 1, "problems": {"a": {}}}', "problem a has no"),
        ('{"version": 1, "problems": {"a": []}}', "problem a has no"),
    ],
)
def test_a_file_that_is_no_audit_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    """Missing, unreadable or foreign: what was found, and how an audit is made."""
    path = tmp_path / "audit.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        read_strengths(path, "curriculum.audit")

    assert said in str(caught.value)
    assert "rlvr audit --plugin" in str(caught.value)
