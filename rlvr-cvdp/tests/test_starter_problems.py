"""The shipped problems: schema, split, and that they are what the generator writes."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from starter_problems.build import PROBLEMS, drafts, held_out_keys, text
from starter_problems.families import FAMILIES

ROWS = [json.loads(line) for line in PROBLEMS.read_text(encoding="utf-8").splitlines()]


def test_shipped_file_is_what_the_builder_writes() -> None:
    """The generator is deterministic and the file was not edited by hand."""
    assert PROBLEMS.read_text(encoding="utf-8") == text()


def test_there_are_enough_of_each_kind() -> None:
    """Enough problems and families to learn from and to be tested on, at every difficulty."""
    splits = Counter(row["split"] for row in ROWS)
    assert set(splits) == {"train", "test"}
    assert splits["train"] >= 80
    assert splits["test"] >= 40
    assert len({row["id"].rsplit("_", 1)[0] for row in ROWS}) == len(FAMILIES) >= 18
    assert {row["categories"][1] for row in ROWS} == {"easy", "medium", "hard"}


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_row_has_the_shape_of_a_cvdp_problem(row: dict) -> None:
    """One target file with its reference, one service, tests that parse, a short prompt."""
    assert set(row) == {"id", "categories", "split", "input", "output", "harness"}
    assert row["categories"][0] == "cid003"
    assert row["input"]["context"] == {}
    assert row["output"]["response"] == ""
    ((target, solution),) = row["output"]["context"].items()
    name = target.removeprefix("rtl/").removesuffix(".sv")
    assert f"module {name} (" in solution
    assert f" {name}." in row["input"]["prompt"]
    assert 22 <= len(row["input"]["prompt"].split()) <= 90
    assert 6 <= len(solution.splitlines()) <= 35
    files = row["harness"]["files"]
    assert set(files) == {
        "docker-compose.yml",
        "src/.env",
        "src/test_runner.py",
        f"src/test_{name}.py",
    }
    tests = files[f"src/test_{name}.py"]
    compile(tests, name, "exec")
    assert tests.count("@cocotb.test()") >= 4
    assert f"/code/{target}" in files["src/.env"]


def test_no_behaviour_occurs_twice() -> None:
    """Ids, behaviours and modules apart from their names are all different."""
    drawn = drafts()
    assert len({problem_id for problem_id, _, _ in drawn}) == len(drawn)
    assert len({draft.key for _, _, draft in drawn}) == len(drawn)
    bodies = {(draft.design.ports, draft.design.body) for _, _, draft in drawn}
    assert len(bodies) == len(drawn)


def test_test_problems_are_in_no_training() -> None:
    """Test behaviours are held out, and no train problem is among them."""
    keys = {split: {d.key for _, s, d in drafts() if s == split} for split in ("train", "test")}
    assert keys["test"] == held_out_keys()
    assert not keys["train"] & keys["test"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_draft_of_a_family_keeps_to_the_limits(family: str) -> None:
    """Draws depend on the seed alone, vary, and stay short."""
    first, second = (FAMILIES[family](random.Random(3)) for _ in range(2))
    assert (first.spec, first.solution, first.key) == (second.spec, second.solution, second.key)
    rng = random.Random(5)
    drawn = [FAMILIES[family](rng) for _ in range(60)]
    assert len({draft.key for draft in drawn}) >= 20
    for draft in drawn:
        assert draft.family == family
        assert 22 <= len(draft.spec.split()) <= 90
        assert 6 <= draft.solution.count("\n") <= 35
        listed = ", ".join(port.text for port in draft.design.ports)
        assert f"Ports: {listed}." in draft.spec
