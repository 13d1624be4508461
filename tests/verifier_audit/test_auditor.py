"""An audit tells strong verifiers from weak, flaky and wrong ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from rlvr import (
    Outcome,
    Probe,
    Problem,
    Reward,
    RewardFn,
    SingleTurn,
    Task,
    Trajectory,
    Unscorable,
    VerifierError,
)
from rlvr.verification.runner import VerificationRunner
from rlvr.verification.verdict_cache import SqliteStore
from rlvr.verifier_audit.auditor import Auditor, AuditPlan
from rlvr.verifier_audit.findings import AuditFile, ProblemAudit

RIGHT = "right"


def text(problem: Problem, completion: str) -> Trajectory:
    return Trajectory.from_text(problem.id, completion)


class Plain(Task):
    """A task without probes."""

    def __init__(self, ids: Iterable[str] = ("p",), reference: str | None = RIGHT) -> None:
        self._ids = tuple(ids)
        self._reference = reference

    def problems(self, split: str) -> Iterable[Problem]:
        return [Problem(id=name, prompt=(), split=split) for name in self._ids]

    def episode(self, problem: Problem) -> SingleTurn:
        return SingleTurn(problem.prompt)

    def reference(self, problem: Problem) -> Trajectory | None:
        return None if self._reference is None else text(problem, self._reference)


class Probing(Plain):
    """Ten mutants, `m0` to `m9`; `m0` and `m1` are the reference in other words."""

    def __init__(self, ids: Iterable[str] = ("p",), reference: str | None = RIGHT) -> None:
        super().__init__(ids, reference)
        self.proofs: list[str] = []

    def probes(self, problem: Problem, *, count: int, seed: int) -> Iterable[Probe]:
        yield Probe(kind="initial", trajectory=text(problem, "initial"))
        yield Probe(kind="stub", trajectory=text(problem, "stub"))
        for number in range(min(count, 10)):
            yield Probe(
                kind="odd" if number % 2 else "even",
                trajectory=text(problem, f"m{number}"),
                note=f"place {number}",
                is_mutant=True,
            )

    def prove(self, problem: Problem, probe: Probe) -> bool | None:
        name = probe.trajectory.completion
        self.proofs.append(name)
        return {"m0": True, "m1": True, "m2": None}.get(name, False)


class Judge(RewardFn):
    """Accepts the texts it was told to accept."""

    def __init__(self, *accepted: str, wavers: str = "", seed: int = 1) -> None:
        self.accepted = accepted
        self.wavers = wavers
        self.seed = seed
        self.calls = 0

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        self.calls += 1
        answer = trajectory.completion
        if answer == "crash" or "crash " + answer in self.accepted:
            raise VerifierError("the simulator was killed")
        if "mute " + answer in self.accepted:
            return Unscorable(reason="no verdict")
        is_right = answer in self.accepted
        if self.wavers == "always" and answer == RIGHT:
            is_right = self.calls % 2 == 0
        return Reward(value=float(is_right), score01=float(is_right))

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        return f"{problem.id} {trajectory.completion} {self.seed}"


class SeededJudge(Judge):
    """One whose random tests miss the reference with seed 2."""

    def with_seed(self, seed: int) -> Judge:
        accepted = self.accepted if seed != 2 or not self.wavers else ()
        return Judge(*accepted, seed=seed)


def audit(task: Plain, judge: Judge, workers: int = 2, **plan: int) -> dict[str, ProblemAudit]:
    found: dict[str, ProblemAudit] = {}
    auditor = Auditor(
        task,
        VerificationRunner(reward=judge, workers=workers),
        AuditPlan(mutants=plan.get("mutants", 4)),
        lambda one: found.__setitem__(one.problem.id, one),
    )
    asyncio.run(auditor.audit(list(task.problems("all"))))
    return found


def record(task: Plain, judge: Judge, weak: float = 0.9, **plan: int) -> dict:
    return audit(task, judge, **plan)["p"].to_json(weak)


def test_a_strong_verifier_is_called_strong() -> None:
    """The reference is right, everything else is not: nothing to say against it."""
    found = record(Probing(), Judge(RIGHT))

    assert (found["reference"], found["initial"], found["strength"]) == ("accepted", "rejected", 1)
    assert (found["weak"], found["flaky"], found["reasons"]) == (False, False, [])
    assert found["verdicts"] == {"1": 1.0, "2": 1.0, "3": 1.0}
    assert found["kinds"]["even"] == {
        "judged": 2, "rejected": 2, "equivalent": 0, "undecided": 0, "failed": 0,
    }  # fmt: skip


def test_survivors_make_a_verifier_weak() -> None:
    """Half of the mutants accepted: strength one half, each survivor named with its place."""
    found = record(Probing(), Judge(RIGHT, "m2", "m3"))

    assert found["strength"] == 0.5
    assert found["weak"]
    assert found["reasons"] == ["accepts 2 of 4 mutants, 1 of them undecided"]
    assert found["survivors"] == [
        {"kind": "even", "note": "place 2 (undecided: may be equivalent)"},
        {"kind": "odd", "note": "place 3"},
    ]
    assert not record(Probing(), Judge(RIGHT, "m3"), weak=0.5)["weak"]


def test_equivalent_mutants_do_not_count_and_are_replaced() -> None:
    """Two proven equivalents leave the count, and two further mutants are judged instead."""
    task = Probing()
    found = record(task, Judge(RIGHT, "m0", "m1"))

    assert found["strength"] == 1.0
    kinds = found["kinds"]
    assert sum(k["equivalent"] for k in kinds.values()) == 2
    assert kinds["even"]["judged"] + kinds["odd"]["judged"] == 4
    assert sorted(task.proofs) == ["m0", "m1"], "only accepted mutants are worth a proof"
    assert found["survivors"] == []


def test_when_mutants_run_out_the_audit_ends() -> None:
    """More wanted than there are: all that there are."""
    found = record(Probing(), Judge(RIGHT, "m0"), mutants=100)
    assert sum(k["judged"] for name, k in found["kinds"].items() if name in ("even", "odd")) == 9


@pytest.mark.parametrize("kind", ["initial", "stub"])
def test_accepting_a_trivial_answer_is_weak(kind: str) -> None:
    """However many mutants are rejected."""
    found = record(Probing(), Judge(RIGHT, kind))
    assert found["reasons"] == [f"accepts {kind}"]
    assert found["weak"]
    assert found["strength"] == 1.0


def test_a_rejected_reference_says_so_and_costs_no_mutants() -> None:
    """What rejects everything would reject every mutant: no strength is claimed."""
    found = record(Probing(), Judge())
    assert (found["reference"], found["strength"]) == ("rejected", None)
    assert found["reasons"] == ["rejects its reference"]
    assert found["kinds"].keys() == {"initial", "stub"}


def test_what_could_not_run_is_no_verdict() -> None:
    """Neither rejected nor judged: failures are counted by themselves."""
    found = record(Probing(), Judge(RIGHT, "crash m1", "mute m2"))
    assert found["kinds"]["odd"]["failed"] == 1
    assert found["kinds"]["even"]["failed"] == 1
    assert found["strength"] == 1.0
    broken = record(Plain(reference="crash"), Judge(RIGHT))
    assert (broken["reference"], broken["strength"], broken["weak"]) == ("failed", None, False)


def test_no_reference_is_no_reason() -> None:
    """Trivial answers are judged all the same; the initial state stands in for flakiness."""
    found = record(Probing(reference=None), Judge("initial"))
    assert found["reference"] == "none"
    assert found["reasons"] == ["accepts initial"]
    assert found["verdicts"] == {"1": 1.0, "2": 1.0, "3": 1.0}


def test_other_seeds_and_repeats_show_what_is_flaky() -> None:
    """By seed where the reward takes one; by plain repetition, past the store, where not."""
    by_seed = record(Probing(), SeededJudge(RIGHT, wavers="seed 2"))
    assert by_seed["flaky"]
    assert by_seed["verdicts"] == {"1": 1.0, "2": 0.0, "3": 1.0}
    assert "flaky: one answer, different verdicts" in by_seed["reasons"]
    assert record(Plain(), Judge(RIGHT, wavers="always"))["flaky"]
    assert not record(Probing(), SeededJudge(RIGHT))["flaky"]


def test_a_task_without_probes_is_audited_with_what_it_has() -> None:
    """Reference, empty answer, flakiness."""
    found = record(Plain(), Judge(RIGHT, ""))
    assert found["reasons"] == ["accepts empty"]
    assert (found["initial"], found["strength"]) == ("none", None)


def test_a_second_audit_judges_only_what_the_store_lacks(tmp_path: Path) -> None:
    """All but the repetition that is there to find what wavers comes from the store."""
    calls = []
    for _ in range(2):
        judge, task = SeededJudge(RIGHT), Probing()
        store = SqliteStore(tmp_path / "v.sqlite")
        auditor = Auditor(task, VerificationRunner(reward=judge, store=store), AuditPlan(mutants=4))
        asyncio.run(auditor.audit(list(task.problems("all"))))
        store.close()
        calls.append(judge.calls)
    assert calls == [7, 0]


def test_each_finished_problem_is_kept_at_once(tmp_path: Path) -> None:
    """An audit that is interrupted leaves the problems before; an equal one goes on with them."""
    path = tmp_path / "audit.json"
    head = {"plugin": "x", "dataset": "d.jsonl", "options": {"mutants": 4}, "versions": {}}
    task = Probing(["a", "b", "c"])
    file = AuditFile.open(path, head, 0.9)

    def stop_after_b(one: ProblemAudit) -> None:
        file.add(one)
        if one.problem.id == "b":
            raise KeyboardInterrupt

    auditor = Auditor(
        task, VerificationRunner(reward=Judge(RIGHT)), AuditPlan(mutants=4), stop_after_b
    )
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(auditor.audit(list(task.problems("all"))))

    kept = json.loads(path.read_text())
    assert (kept["version"], kept["plugin"], kept["dataset"]) == (1, "x", "d.jsonl")
    assert kept.keys() == {
        "version", "plugin", "dataset", "created", "options", "versions", "problems",
    }  # fmt: skip
    assert list(kept["problems"]) == ["a", "b"]
    assert list(AuditFile.open(path, head, 0.9).problems) == ["a", "b"]
    assert AuditFile.open(path, {**head, "options": {"mutants": 5}}, 0.9).problems == {}
    path.write_text("no JSON")
    assert AuditFile.open(path, head, 0.9).problems == {}


def test_many_workers_audit_problems_side_by_side() -> None:
    """Eight workers: two problems at a time, each with its own result."""
    found = audit(Probing(["a", "b", "c"]), Judge(RIGHT, "m5"), workers=8, mutants=10)
    assert list(found) == ["a", "b", "c"]
    assert all(len(one.counted_mutants) == 10 for one in found.values())
    assert {one.strength for one in found.values()} == {0.9}
