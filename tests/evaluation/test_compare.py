"""Two evaluations side by side: which problems count, and which are told apart."""

from __future__ import annotations

import attrs
import pytest

from rlvr import (
    ConfigError,
    Failed,
    Outcome,
    Problem,
    Reward,
    ScoredGroup,
    Trajectory,
    UnknownNameError,
)
from rlvr.evaluation.compare_models import compare

VERDICTS: dict[str, Outcome] = {
    "1": Reward(value=1.0, score01=1.0),
    "0": Reward(value=0.5, score01=0.5),
    "f": Failed(reason="no simulator"),
}


def group(name: str, word: str, digest: str = "same", **labels: str) -> ScoredGroup:
    """A group from a word: `1` right, `0` half right (so wrong), `f` not judged."""
    return ScoredGroup(
        problem=Problem(id=name, prompt=(), digest=digest, labels=labels),
        trajectories=[Trajectory.from_text(name, "x")] * len(word),
        outcomes=[VERDICTS[letter] for letter in word],
    )


def test_only_what_both_have_is_compared_and_the_rest_is_named() -> None:
    """Foreign, changed and unjudged problems are in no number, and none is forgotten."""
    this = {"a": "11", "c": "1f", "d": "ff", "x": "1"}
    against = {"a": "10", "c": "0", "d": "1", "y": "1"}

    found = compare(
        [group("b", "1", "old"), *(group(name, word) for name, word in this.items())],
        [group("b", "0", "new"), *(group(name, word) for name, word in against.items())],
    )

    assert found.whole.problems == 2
    assert (found.whole.this, found.whole.against) == (1.0, 0.25)
    assert (found.only_this, found.only_against) == (("x",), ("y",))
    assert (found.changed, found.unjudged) == (("b",), ("d",))


def test_by_label_with_the_labels_of_either_side() -> None:
    """A file without labels is compared by those of the other one; pairs of labels as asked."""
    this = [group("a", "1", kind="x", level="1"), group("b", "0", kind="y", level="1")]
    bare = [group("a", "0"), group("b", "0")]

    found = compare(bare, this, ["kind", "level"])

    assert {k: p.difference for k, p in found.by["kind"].items()} == {"x": -1.0, "y": 0.0}
    assert list(found.by["kind,level"]) == ["x,1", "y,1"]
    assert found.by["level"]["1"].problems == 2


def test_an_evaluation_that_tells_no_digest_is_believed() -> None:
    """The trajectories of a run name problems by id alone."""
    bare = attrs.evolve(group("a", "1"), problem=Problem(id="a", prompt=()))

    assert compare([group("a", "1", "some")], [bare]).changed == ()


@pytest.mark.parametrize(
    "other", [group("b", "1"), group("a", "1", "other"), group("a", "f")], ids=("id", "digest", "f")
)
def test_nothing_in_common_is_refused(other: ScoredGroup) -> None:
    """No shared problem is no difference of 0: it is an error that counts what there was."""
    with pytest.raises(ConfigError, match="1 problems here and 1 there"):
        compare([group("a", "1")], [other])


def test_an_unknown_label_suggests() -> None:
    """As `--by` of one evaluation does."""
    with pytest.raises(UnknownNameError, match="did you mean 'kind'"):
        compare([group("a", "1", kind="x")], [group("a", "1")], ["kin"])
