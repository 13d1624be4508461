"""`rlvr audit` as a person uses it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Call = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).parents[2]


def test_the_toy_is_audited(rlvr: Call, tmp_path: Path) -> None:
    """A line a problem, a summary, and the JSON with the promised keys."""
    done = rlvr("audit", "--plugin", "toy", "--out", "audit.json")

    assert done.returncode == 0, done.stderr
    assert "4/4  toy_d: no mutants\n" in done.stderr
    said = "4 problems: 0 weak, 0 flaky; no mutants, so that strength was not measured"
    assert said in done.stdout
    record = json.loads((tmp_path / "audit.json").read_text())
    assert (record["version"], record["plugin"]) == (1, "builtin")
    assert record["options"]["toy.length"] == 4
    assert {"python", "rlvr"} <= record["versions"].keys()
    assert record["problems"]["toy_a"].keys() == {
        "reference", "initial", "kinds", "strength", "survivors", "flaky", "verdicts", "weak",
        "reasons", "seconds",
    }  # fmt: skip
    assert record["problems"]["toy_a"]["reference"] == "accepted"


def test_json_on_standard_output_is_the_file(rlvr: Call, tmp_path: Path) -> None:
    """`--json` prints the whole document; `--only` audits the named problems."""
    done = rlvr("audit", "--plugin", "toy", "--json", "--only", "toy_b", "--out", "audit.json")

    printed = json.loads(done.stdout)
    assert printed == json.loads((tmp_path / "audit.json").read_text())
    assert list(printed["problems"]) == ["toy_b"]


def test_ids_may_hold_commas(rlvr: Call) -> None:
    """One id is taken as it is, several stand in a JSON list; ids without commas as before."""
    for only, found in (
        ("toy_,", ["toy_,"]),
        ('["toy_,", "toy_a"]', ["toy_,", "toy_a"]),
        ("toy_b, toy_a,", ["toy_b", "toy_a"]),
    ):
        words = ("toy.letters=ab,", "--mutants", "1", "--json", "--only", only)
        done = rlvr("audit", "--plugin", "toy", *words)

        assert done.returncode == 0, done.stderr
        assert sorted(json.loads(done.stdout)["problems"]) == sorted(found)


def test_mistakes_are_named(rlvr: Call) -> None:
    """Problems, splits and numbers that make no sense: exit 2 with what to do."""
    unknown = rlvr("audit", "--plugin", "toy", "--only", "toy_bb")
    assert (unknown.returncode, "did you mean 'toy_b'?" in unknown.stderr) == (2, True)
    for words in (("--repeats", "0"), ("--mutants", "-1"), ("--weak", "2")):
        done = rlvr("audit", "--plugin", "toy", *words)
        assert done.returncode == 2, done.stderr
        assert words[0] in done.stderr


def test_too_many_failures_are_an_exit_code(rlvr: Call) -> None:
    """A verifier that cannot run is no weak one: exit 5."""
    done = rlvr("audit", "--plugin", "toy", "toy.fail_share=1")
    assert done.returncode == 5, done.stderr
    assert "failed" in done.stdout


def test_the_page_tells_of_every_flag_and_key() -> None:
    """docs/audit.md names the command's own flags and every key of its file."""
    page = (ROOT / "docs" / "audit.md").read_text("utf-8")
    for flag in ("--mutants", "--repeats", "--weak", "--only", "--out", "--split"):
        assert flag in page, flag
    for key in (
        "version", "plugin", "dataset", "created", "options", "versions", "problems", "reference",
        "initial", "kinds", "judged", "rejected", "equivalent", "undecided", "failed", "strength",
        "survivors", "flaky", "verdicts", "weak", "reasons", "seconds",
    ):  # fmt: skip
        assert f'"{key}"' in page, key
    assert "(audit.md)" in (ROOT / "docs" / "index.md").read_text("utf-8")
