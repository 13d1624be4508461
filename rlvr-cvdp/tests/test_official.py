"""The real data sets: official solutions pass, all known references pass, no initial state does."""

from __future__ import annotations

import asyncio
import json

import pytest
from attrs import evolve

from rlvr import BuildContext, Problem, Reward, Trajectory
from rlvr.testing.tools import shared_data
from rlvr_cvdp.commands import doctor, setup
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.task import CvdpTask
from rlvr_cvdp.verify.reward import CvdpReward

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator")]

SETS = ("nonagentic_no_commercial.jsonl", "agentic_no_commercial.jsonl")
AT_ONCE = 2
_DEPTH = "parameters={'p_addr_width': 8}"
_PERIOD = "async def run_lfsr_sequence_check(dut, cycles=65536, check_maximal_length=False):\n"
SHORTER = {
    "lfsr_0005": (  # each of four seeds goes through 1,024 of its 65,535 values
        *("test_bit16_lfsr.py", _PERIOD),
        f"{_PERIOD}    cycles, check_maximal_length = 1024, False\n",
    ),
    "cvdp_copilot_8x3_priority_encoder_0001": ("test_runner.py", "range(10)", "range(1)"),
    "axis_to_uart_0001": ("test_axis_to_uart_tx.py", "DATA_WORDS_NUMB = 10", "DATA_WORDS_NUMB = 2"),
    "axis_to_uart_0004": ("uart_rx_to_axis_test.py", "NUM_FRAMES      = 20", "NUM_FRAMES = 2"),
    "AES_encryption_decryption_0005": ("test_aes128_decrypt.py", "runs = 1000", "runs = 30"),
    "async_fifo_compute_ram_application_0001": ("test_runner.py", "waves=True,\n", f"{_DEPTH},\n"),
    "async_fifo_compute_ram_application_0006": ("test_runner.py", "waves=True,\n", f"{_DEPTH},\n"),
    "phase_rotation_0015": ("test_runner.py", '"test", range(5)', '"test", range(1)'),
    "Min_Hamming_Distance_Finder_0001": ("test_runner.py", "[4, 10, 3, 20]", "[3, 20]"),
    "gcd_0007": ("test_crypto_accelerator.py", "RANDOM_TESTS = 50", "RANDOM_TESTS = 2"),
    "cvdp_copilot_cascaded_adder_0001": ("test_runner.py", "in range(5)]", "in range(1)]"),
    "sync_serial_communication_0001": ("test_runner.py", '"test", range(20)', '"test", range(3)'),
    "door_lock_0001": ("test_runner.py", '"random_test", range(10)', '"random_test", range(2)'),
}
"""Harnesses that repeat themselves for most of the time of all 101: the file, its text, another."""


def shorter(problem: Problem) -> Problem:
    """The problem with fewer repetitions in its harness."""
    change = SHORTER.get(problem.id.removeprefix("cvdp_agentic_"))
    if change is None:
        return problem
    path, text, fewer = f"src/{change[0]}", *change[1:]
    harness = problem.payload.harness
    assert text in harness[path]
    changed = {**harness, path: harness[path].replace(text, fewer, 1)}
    return evolve(problem, payload=evolve(problem.payload, harness=changed))


def score(cases, task, reward) -> dict[str, Reward]:
    """Judge (problem, trajectory) pairs, two at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(problem, trajectory):
        async with gate:
            return problem.id, await reward(problem, trajectory)

    async def all_of_them():
        async with reward:
            return dict(await asyncio.gather(*(one(*case) for case in cases)))

    return asyncio.run(all_of_them())


HOST = {"sandbox": "bubblewrap", "rootfs": "host"}


def parts(path, **options):
    """Task and reward on a data set, by this machine's simulator unless options say otherwise."""
    context = BuildContext(dataset=path, workers=AT_ONCE)
    config = CvdpConfig(**{**HOST, **options})
    return CvdpTask(config, context), CvdpReward(config, context)


@pytest.mark.parametrize("kind", ["agentic", "nonagentic"])
@pytest.mark.parametrize("version", ["v1.0.1", "v1.0.4", "v1.1.0"])
def test_official_solutions_pass(version, kind):
    """The public example of each release and form earns everything with its own solution."""
    name = f"cvdp_{version}_example_{kind}_code_generation_no_commercial_with_solutions.jsonl"
    task, reward = parts(shared_data("cvdp", "official_examples", name))
    (problem,) = task.problems("all")
    outcome = score([(problem, task.reference(problem))], task, reward)[problem.id]
    assert (outcome.value, outcome.score01) == (1.0, 1.0), outcome.evidence


def test_official_rows_that_cannot_be_verified_are_listed():
    """Commercial and comprehension examples yield no problem and say why."""
    folder = shared_data("cvdp", "official_examples")
    reasons = {}
    for path in sorted(folder.glob("*.jsonl")):
        if "comprehension" in path.name or path.name.endswith("generation_commercial.jsonl"):
            task, _ = parts(path)
            assert list(task.problems("all")) == []
            reasons.update(task.unsupported())
    assert "comprehension" in reasons["cvdp_copilot_barrel_shifter_0031"]
    assert "commercial" in reasons["cvdp_agentic_8x3_priority_encoder_0003"]


@pytest.mark.parametrize("name", SETS)
def test_every_row_of_the_subset_is_a_problem(name):
    """None of the 101 rows is dropped or refused here, and empty answers earn nothing."""
    path = shared_data("cvdp", name)
    task, reward = parts(path)
    problems = list(task.problems("all"))
    assert len(problems) == len(path.read_text().splitlines())
    assert not task.unsupported()
    for answer in (Trajectory.from_text("x", ""), Trajectory(problem_id="x", files={})):
        for outcome in score([(problem, answer) for problem in problems], task, reward).values():
            assert (outcome.value, outcome.score01) == (0.0, 0.0)


@pytest.mark.parametrize(
    "name", ["cvdp_copilot_dbi_0001", "cvdp_agentic_lfsr_0001", "cvdp_agentic_multiplexer_0001"]
)
@pytest.mark.usefixtures("place")
def test_some_references_pass(bench, name):
    """One reference of each form and cocotb generation earns everything in every sandbox."""
    (passed,) = _references({name}, **bench.place).values()
    assert (passed.value, passed.score01) == (1.0, 1.0), passed.evidence


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_references_pass():
    """All 47 reference solutions earn the full reward."""
    outcomes = _references(None)
    assert len(outcomes) == 47
    assert not {name: o.evidence["why"] for name, o in outcomes.items() if o.score01 != 1.0}
    assert {o.value for o in outcomes.values()} == {1.0}


@pytest.mark.one_of(2)
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SETS)
def test_no_initial_state_passes(name):
    """The unchanged context is no solution of any problem."""
    task, reward = parts(shared_data("cvdp", name))
    cases = []
    for problem in map(shorter, task.problems("all")):
        record = problem.payload
        same = {path: record.context[path] for path in record.targets if path in record.context}
        cases.append((problem, Trajectory(problem_id=problem.id, files=same)))
    passed = [name for name, o in score(cases, task, reward).items() if o.score01 > 0]
    assert passed == []


def test_doctor_proves_the_stack(monkeypatch):
    """The slow check runs right, empty and wrong answers; it finds the official examples itself."""
    monkeypatch.setenv("RLVR_DATA", str(shared_data("cvdp").parent))
    found = doctor.proof()
    assert found.ok, found
    assert "lfsr" in found.found
    assert "fixed_arbiter" in found.found


@pytest.mark.thorough
def test_doctor_does_without_the_official_examples(monkeypatch, tmp_path):
    """Where they are not there, two problems of the starter set prove the same."""
    monkeypatch.setenv("RLVR_DATA", str(tmp_path))
    found = doctor.proof()
    assert found.ok, found
    assert found.found.count("cvdp_starter_") == 2


def test_checks_name_the_fix(monkeypatch):
    """A missing tool is found, with the command that installs it."""
    assert all(check().ok for check in (doctor.bubblewrap, doctor.iverilog, doctor.cocotb2))
    monkeypatch.setenv("PATH", "/nowhere")
    for check, package in ((doctor.bubblewrap, "bubblewrap"), (doctor.iverilog, "iverilog")):
        result = check()
        assert not result.ok
        assert result.fix == f"sudo apt-get install -y {package}"


def test_list_command(capsys):
    """`rlvr cvdp list --json` gives a line a row, supported or not."""
    path = shared_data("cvdp", SETS[0])
    assert setup.list_problems(["--dataset", str(path), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 36
    assert {row["generation"] for row in rows} == {1, 2}


def _references(names, **options) -> dict[str, Reward]:
    lines = shared_data("cvdp", "reference_solutions.jsonl").read_text().splitlines()
    answers = {row["id"]: row["files"] for row in map(json.loads, lines)}
    outcomes: dict[str, Reward] = {}
    for name in SETS:
        task, reward = parts(shared_data("cvdp", name), **options)
        cases = [
            (problem, Trajectory(problem_id=problem.id, files=answers[problem.id]))
            for problem in map(shorter, task.problems("all"))
            if problem.id in answers and (names is None or problem.id in names)
        ]
        outcomes |= score(cases, task, reward)
    return outcomes
