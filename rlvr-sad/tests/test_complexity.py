"""The curriculum complexity: easy trajectories first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import structlog

from rlvr import BuildContext, ConfigError, Curriculum, Problem, UnknownNameError
from rlvr.testing import CurriculumContract
from rlvr_sad.corpus.complexity import ByComplexity, ComplexityOptions, complexities
from rlvr_sad.sessions.ref import TrajectoryRef
from rlvr_sad.teacher_cache.answers import Answers, Head, row_type, write_head


def rows(count: int, entropy: float) -> np.ndarray:
    """So many positions of this entropy."""
    made = np.zeros(count, row_type(2))
    made["entropy"] = entropy
    return made


def problem(n: int, reasoning: int, action: int) -> Problem:
    """A trajectory of so many characters of each kind."""
    place = TrajectoryRef(
        key=b"k", index=n, source="f", line=n, record=str(n), reasoning=reasoning, action=action
    )
    return Problem(id=f"p{n:02}", prompt=(), payload=place, digest=f"d{n}")


PROBLEMS = [problem(n, 10 * n, 5 * (n % 3)) for n in range(12)]


def ids_at(step: int, count: int = 3, steps: int = 20, **options: float) -> set[str]:
    """Ids of the problems of a step."""
    curriculum = ByComplexity(ComplexityOptions(**options), BuildContext(steps=steps))
    return {p.id for p in curriculum.choose(PROBLEMS, count, seed=1, step=step, history={})}


class TestComplexity(CurriculumContract):
    def make_curriculum(self) -> Curriculum:
        return ByComplexity(ComplexityOptions(), BuildContext(steps=20))

    def problems(self) -> Sequence[Problem]:
        return PROBLEMS


def test_complexity_by_hand(tmp_path: Path) -> None:
    """A |r| + b |a| + c H with lengths over the mean of 20: the paper's sum."""
    two = [problem(0, 20, 10), problem(1, 6, 4)]
    config = ComplexityOptions(reasoning=1.0, action=0.5, entropy=2.0)
    found = complexities(two, config, {"d0": 0.25})

    assert found == {"p00": pytest.approx(20 / 20 + 0.5 * 10 / 20 + 2.0 * 0.25), "p01": 0.4}


def test_the_share_that_is_open_by_hand() -> None:
    """c(u) = min(1, 0.3 + 0.7 (u / 10)^2) over a run of 20 steps."""
    curriculum = ByComplexity(ComplexityOptions(power=2.0), BuildContext(steps=20))

    assert [curriculum.share(u) for u in (0, 5, 10, 15)] == [
        pytest.approx(0.3),
        pytest.approx(0.475),
        1.0,
        1.0,
    ]


def test_hard_ones_wait() -> None:
    """At first the four easiest of twelve (0.3), in the end all of them, each once an epoch."""
    easiest = {f"p{n:02}" for n in range(4)}
    early = set.union(*(ids_at(0, count=4) for _ in range(3)))
    last = [ids_at(step, count=4) for step in (10, 11, 12)]

    assert early == easiest
    assert set.union(*last) == {p.id for p in PROBLEMS}
    assert sum(map(len, last)) == 12


def test_entropy_makes_a_short_one_hard(tmp_path: Path) -> None:
    """The teacher's mean entropy from its kept answers, weighted by positions of windows."""
    head = Head(teacher="t", tokenizer="f", k=2, temperature=1.0, context_length=8, vocab_size=9)
    write_head(tmp_path, head)
    Answers(tmp_path).add({"a": rows(3, 1.0), "b": rows(1, 5.0)}, [("a", "d0"), ("b", "d0")])
    config = ComplexityOptions(cache=f"file:{tmp_path}", entropy=10.0)
    curriculum = ByComplexity(config, BuildContext(steps=20))
    found = complexities(PROBLEMS, config, curriculum._entropies)

    assert found["p00"] == pytest.approx(10.0 * (3 * 1.0 + 1 * 5.0) / 4)
    chosen = curriculum.choose(PROBLEMS, 4, seed=1, step=0, history={})
    assert {p.id for p in chosen} == {"p01", "p02", "p03", "p04"}


def test_without_entropies_it_says_so() -> None:
    """They count as 0, aloud; not where nobody asks for them."""
    with structlog.testing.capture_logs() as logs:
        ids_at(0, entropy=0.0)
        assert not logs
        ids_at(0)
    assert [entry["event"] for entry in logs] == ["entropies_unknown"]


def test_a_cache_of_other_trajectories(tmp_path: Path) -> None:
    """Those it does not know are counted aloud, once; where it knows none it is refused."""
    head = Head(teacher="t", tokenizer="f", k=2, temperature=1.0, context_length=8, vocab_size=9)
    write_head(tmp_path, head)
    curriculum = ByComplexity(ComplexityOptions(cache=str(tmp_path)), BuildContext(steps=20))
    with pytest.raises(ConfigError, match="knows none of these trajectories"):
        curriculum.choose(PROBLEMS, 4, seed=1, step=0, history={})

    Answers(tmp_path).add({"a": rows(3, 1.0)}, [("a", "d0")])
    curriculum = ByComplexity(ComplexityOptions(cache=str(tmp_path)), BuildContext(steps=20))
    with structlog.testing.capture_logs() as logs:
        for step in range(2):
            curriculum.choose(PROBLEMS, 4, seed=1, step=step, history={})
    (told,) = [entry for entry in logs if entry["event"] == "entropies_missing"]
    assert 11 in told.values()


def test_what_it_cannot_order(tmp_path: Path) -> None:
    """Problems of another task, and a folder without answers."""
    curriculum = ByComplexity(ComplexityOptions(), BuildContext(steps=4))
    with pytest.raises(ConfigError, match="--plugin sad"):
        curriculum.choose([Problem(id="x", prompt=())], 1, seed=1, step=0, history={})
    with pytest.raises(UnknownNameError, match="cache-teacher"):
        ByComplexity(ComplexityOptions(cache=str(tmp_path)), BuildContext())
