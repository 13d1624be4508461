"""Families: what gives what away, which are held out, and what is said before training."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr import ConfigError
from rlvr_cvdp.datasets.split import family_of, is_official, splits_of
from rlvr_cvdp.problem import CvdpProblem


def record(name: str, split: str = "") -> CvdpProblem:
    return CvdpProblem(
        id=name, category="cid003", difficulty="easy", prompt="", context={}, targets=("rtl/a.sv",),
        harness={}, split=split,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "family", "official"),
    [
        ("cvdp_copilot_lfsr_0001", "lfsr", True),
        ("cvdp_agentic_lfsr_0012", "lfsr", True),
        ("cvdp_copilot_GFCM_0001", "gfcm", True),
        ("cvdp_copilot_8x3_priority_encoder_0001", "8x3_priority_encoder", True),
        ("cvdp_agentic_64b66b_codec_0003", "64b66b_codec", True),
        ("cvdp_copilot_lfsr", "lfsr", True),
        ("cvdp_mine_fifo_0001", "mine_fifo", False),
        ("cvdp_starter_fifo_0003", "cvdp_starter_fifo_0003", False),
        ("codev_12", "codev_12", False),
        ("toy", "toy", False),
    ],
)
def test_the_family_is_the_id_without_kind_and_number(
    name: str, family: str, official: bool
) -> None:
    """Copilot and agentic problems of one name are one family; unrelated ids are their own."""
    assert family_of(name) == family
    assert is_official(name) is official


NAMES = st.lists(
    st.tuples(
        st.sampled_from(["copilot", "agentic"]), st.sampled_from("abcdefghij"), st.integers(1, 4)
    ),
    unique=True,
    max_size=30,
)


@settings(deadline=None)
@given(names=NAMES, more=NAMES, share=st.floats(0.05, 0.95), seed=st.integers(0, 5))
def test_no_family_is_on_both_sides_and_added_rows_move_none(
    names: list[tuple[str, str, int]], more: list[tuple[str, str, int]], share: float, seed: int
) -> None:
    """Whole families are held out, by name and seed alone."""
    few = [record(f"cvdp_{kind}_{name}_{n:04d}") for kind, name, n in names]
    many = few + [record(f"cvdp_{kind}_{name}x_{n:04d}") for kind, name, n in more]

    before, after = splits_of(few, share, seed), splits_of(many, share, seed)

    assert {name: after[name] for name in before} == before
    sides: dict[str, set[str]] = {}
    for name, split in after.items():
        assert split in ("train", "test")
        sides.setdefault(family_of(name), set()).add(split)
    assert all(len(side) == 1 for side in sides.values())


def test_the_share_is_about_what_was_asked_and_depends_on_the_seed() -> None:
    """Of 400 families a fifth, within four standard deviations (8 each) of 80."""
    records = [record(f"cvdp_copilot_f{i}_0001") for i in range(400)]

    held = [
        {name for name, split in splits_of(records, 0.2, seed).items() if split == "test"}
        for seed in (0, 1)
    ]

    assert all(48 <= len(names) <= 112 for names in held)
    assert held[0] != held[1]


def test_rows_that_declare_a_split_keep_it_and_their_family_follows() -> None:
    """One row of a family says test: the others that say nothing are in test, too."""
    records = [
        record("cvdp_copilot_a_0001", "test"),
        record("cvdp_agentic_a_0002"),
        record("cvdp_copilot_b_0001", "train"),
        record("cvdp_copilot_b_0002"),
    ]

    found = splits_of(records, 0.5, 0)

    assert list(found.values()) == ["test", "test", "train", "train"]


def test_without_a_share_rows_without_a_split_are_in_every_one() -> None:
    """As it was: "" means every split."""
    assert splits_of([record("cvdp_copilot_a_0001")], 0.0, 0) == {"cvdp_copilot_a_0001": ""}


def test_a_family_torn_by_its_rows_cannot_be_held_out() -> None:
    """Which side it belongs to is for a person to say."""
    torn = [record("cvdp_copilot_a_0001", "train"), record("cvdp_agentic_a_0002", "test")]

    with pytest.raises(ConfigError, match="the family a in training and in test"):
        splits_of(torn, 0.2, 0)


def test_training_on_the_benchmark_is_said_aloud(bench: Any) -> None:
    """Official ids without a split: a warning that names the way out."""
    (notice,) = bench.task().warnings("train")

    assert notice.startswith("1 of 1 problems are of the CVDP benchmark")
    assert "cvdp.holdout=0.2" in notice


def test_a_split_or_other_problems_are_no_reason_to_warn(bench: Any) -> None:
    """Families split off by the option, by the rows, or no benchmark at all: silence."""
    own = {**bench.row(), "split": "train"}

    many = [bench.row(id=f"cvdp_copilot_f{i}_0001") for i in range(12)]
    assert not list(bench.task(*many, holdout=0.4).warnings("train"))
    assert not list(bench.task(own).warnings("train"))
    assert not list(bench.task(bench.row(id="mine_1")).warnings("train"))


def test_a_share_that_holds_nothing_out_is_said_aloud(bench: Any) -> None:
    """With few families the hash may put all of them into training: no score would be one."""
    task = bench.task(bench.row(id="cvdp_copilot_inc_0001"), holdout=1e-9)

    (notice,) = task.warnings("train")

    assert "holds none of these problems out" in notice
    assert "cvdp.holdout_seed" in notice


def test_a_family_on_both_sides_is_said_aloud(bench: Any) -> None:
    """The rows' own splits are kept, and what they are worth is said."""
    rows = [
        {**bench.row(id=f"cvdp_copilot_inc_000{i}"), "split": split}
        for i, split in enumerate(("train", "test"))
    ]

    (notice,) = bench.task(*rows).warnings("train")

    assert "the family inc into training and into test" in notice


def test_the_task_keeps_held_out_families_from_training(bench: Any) -> None:
    """No family of the split test is met in training, and every problem is in one of the two."""
    rows = [
        bench.row(id=f"cvdp_{kind}_f{i}_0001") for i in range(12) for kind in ("copilot", "agentic")
    ]
    task = bench.task(*rows, holdout=0.4)

    train, test = ({p.id: p.labels["family"] for p in task.problems(s)} for s in ("train", "test"))

    assert len(train) + len(test) == 24
    assert train
    assert test
    assert not set(train.values()) & set(test.values())
    assert {p.split for p in task.problems("test")} == {"test"}


def test_the_embedded_set_is_split_problem_by_problem() -> None:
    """Its test problems are new draws; each is a family of its own."""
    one, other = record("cvdp_starter_fifo_0001", "train"), record("cvdp_starter_fifo_0002", "test")

    assert attrs.evolve(one, split="").id == one.id
    assert family_of(one.id) != family_of(other.id)
