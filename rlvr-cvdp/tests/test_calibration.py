"""Time limits of single problems: measured once, five times the reference, part of the key."""

from __future__ import annotations

import json

import pytest

from rlvr import ConfigError, PrerequisiteError, Trajectory, VerifierError
from rlvr_cvdp.commands.calibrate import calibrate
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.datasets import time_limits
from rlvr_cvdp.datasets.time_limits import (
    Timed,
    default_path,
    load_calibration,
    save_calibration,
)
from rlvr_cvdp.sandbox import records
from rlvr_cvdp.verify import machine_speed


@pytest.mark.parametrize(
    ("taken", "limit"), [(0.2, 10.0), (2.0, 10.0), (2.02, 10.1), (30.0, 150.0)]
)
def test_a_limit_is_five_times_the_reference_and_ten_seconds_at_least(taken, limit):
    """Hand-worked: 5 x 2.02 = 10.1."""
    assert Timed(taken).limit_s() == limit


def test_the_longer_measurement_stays(tmp_path):
    """A second measurement adds problems and never shortens a limit."""
    path = tmp_path / "deep" / "limits.json"
    save_calibration(path, {"a": Timed(4.0, 0.1), "b": Timed(1.0, 0.1)})
    save_calibration(path, {"a": Timed(3.0, 0.2), "c": Timed(2.0, 0.3)})
    kept = {"a": Timed(4.0, 0.1), "b": Timed(1.0, 0.1), "c": Timed(2.0, 0.3)}
    assert load_calibration(str(path)) == kept
    assert [entry.name for entry in path.parent.iterdir()] == ["limits.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 9, "seconds": {}}', "{nonsense"])
def test_a_foreign_file_is_refused(tmp_path, text):
    """A file that is none of ours is named, with the command that makes one."""
    path = tmp_path / "limits.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="rlvr cvdp calibrate"):
        load_calibration(str(path))


def test_a_named_file_must_be_there_and_the_default_need_not(tmp_path, monkeypatch):
    """`auto` without a measurement means no own limits; a path that is wrong is an error."""
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path))
    assert load_calibration("auto") == {}
    assert load_calibration("off") == {}
    with pytest.raises(ConfigError, match="no such file"):
        load_calibration(str(tmp_path / "nowhere.json"))


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_what_calibrate_measured_limits_the_next_run(bench, tmp_path, monkeypatch, capsys):
    """The command times the reference; its limit holds, is in the evidence and in the key."""
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    before = bench.reward().verdict_key(bench.problem(), _answer(bench))
    weak = bench.row(
        id="cvdp_copilot_inc_0002", targets={"rtl/inc.sv": bench.right.replace("8'd1", "8'd2")}
    )
    path = bench.dataset(bench.row(), weak)
    asked = ["--sandbox", "bubblewrap", "--rootfs", "host"]
    assert calibrate(["--dataset", str(path), "--json", *asked]) == 0
    shown = capsys.readouterr()
    said = json.loads(shown.out)
    assert shown.err.startswith("judged with bubblewrap, host, iverilog ")
    assert said["file"] == str(default_path())
    assert 0.05 < said["seconds"]["cvdp_copilot_inc_0001"] < 20.0
    assert "its reference fails" in said["left_out"]["cvdp_copilot_inc_0002"]
    reward, problem = bench.reward(timeout_s=60.0), bench.problem()
    outcome = bench.judged(reward, problem, _answer(bench))
    taken = said["seconds"]["cvdp_copilot_inc_0001"]
    slowness = outcome.evidence["slowness"]
    assert slowness >= 1.0
    assert outcome.evidence["limit_s"] == pytest.approx(max(10.0, 5 * taken) * slowness, abs=0.2)
    assert bench.reward().verdict_key(problem, _answer(bench)) != before
    assert bench.reward().expected_seconds(problem, _answer(bench)) == pytest.approx(
        taken, abs=1e-3
    )


def test_the_sandbox_that_is_asked_for_measures(bench, tmp_path, monkeypatch):
    """An image picks docker, as in a run; without a daemon nothing is measured elsewhere."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    given = ["--dataset", str(bench.dataset(bench.row())), "--out", str(tmp_path / "limits.json")]
    for arguments in (["--sandbox", "docker"], ["--image", "some/image:1"]):
        with pytest.raises(PrerequisiteError, match="no daemon"):
            calibrate([*given, *arguments])
    assert not (tmp_path / "limits.json").exists()


def _answer(bench) -> Trajectory:
    return Trajectory(problem_id="cvdp_copilot_inc_0001", files={"rtl/inc.sv": bench.right})


@pytest.mark.parametrize(
    ("then", "now", "limit"),
    [(0.002, 0.002, 150.0), (0.002, 0.005, 375.0), (0.002, 0.001, 150.0), (0.0, 0.005, 150.0)],
)
def test_a_limit_follows_the_speed_of_the_machine(then, now, limit):
    """Hand-worked: 30 s x 5, times 2.5 on a machine 2.5 times slower; never less than measured."""
    timed = Timed(30.0, then)
    assert timed.limit_s(timed.slowness(now)) == pytest.approx(limit)


@pytest.mark.parametrize(
    ("used", "slowness", "near"),
    [(59.0, 1.0, True), (61.0, 1.0, False), (150.0, 2.5, True), (151.0, 2.5, False)],
)
def test_near_is_within_twice_the_references_time(used, slowness, near):
    """Hand-worked: the reference took 30 s; on a machine 2.5 times slower that is 75 s."""
    assert Timed(30.0, 0.002).is_near(used, slowness) is near


def test_a_file_without_speeds_still_counts(tmp_path):
    """What was measured before speeds were kept gives limits that do not follow the machine."""
    path = tmp_path / "limits.json"
    path.write_text('{"version": 2, "seconds": {"a": 4.0}}')
    timed = load_calibration(str(path)).get("a")
    assert timed is not None
    assert (timed.limit_s(), timed.slowness(1.0)) == (20.0, 1.0)


def test_a_busy_machine_takes_longer_for_the_same_work(monkeypatch):
    """The probe is a median: two of five rounds that were disturbed do not count."""
    rounds = iter([0.002, 0.009, 0.002, 0.007, 0.003])
    monkeypatch.setattr(machine_speed, "_worked", lambda: next(rounds))
    assert machine_speed.probe_s() == 0.003


SPIN = "    import time\n    until = time.process_time() + {seconds}\n"
SPIN += "    while time.process_time() < until:\n        pass\n    for a in range(4):"


def _spinning(bench, seconds: float):
    """The problem with a test that computes so long, whatever the answer is."""
    test = bench.test.replace("    for a in range(4):", SPIN.format(seconds=seconds))
    return bench.problem(harness={"src/test_inc.py": test})


@pytest.mark.one_of(4, "near", "far")
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
@pytest.mark.integration
@pytest.mark.usefixtures("simulator", "place")
@pytest.mark.parametrize(
    ("taken", "slowness", "score", "again"),
    [(0.9, 1.0, 1.0, True), (0.1, 1.0, 0.0, False), (0.1, 9.0, 1.0, False), (0.2, 1.2, 0.0, False)],
    ids=["near", "far", "slow machine", "a little slow"],
)
def test_a_verdict_does_not_depend_on_the_machines_moment(
    bench, tmp_path, monkeypatch, taken, slowness, score, again
):
    """
    A right answer of one and a half seconds, with limits as if the reference had taken `taken`.

    It passes where the machine is so much slower than it was, and where it was stopped before twice
    the reference's time; where it takes far longer than the reference it stays wrong.
    """
    monkeypatch.setattr(time_limits, "LEAST_S", 0.5)
    monkeypatch.setattr(time_limits, "FACTOR", 1.0)
    monkeypatch.setattr(machine_speed, "probe_s", lambda: 0.002 * slowness)
    problem = _spinning(bench, 1.5)
    limits = tmp_path / "limits.json"
    save_calibration(limits, {problem.payload.digest(): Timed(taken, 0.002)})
    reward = bench.judge({"rtl/inc.sv": bench.right}, problem, limits=str(limits), timeout_s=60.0)
    assert reward.score01 == score, reward.evidence
    assert (reward.evidence["stopped_at_s"] is not None) is again
    assert reward.evidence["slowness"] == pytest.approx(slowness)
    if not score:
        assert reward.evidence["stage"] == "timeout"


@pytest.mark.one_of(2)
@pytest.mark.integration
@pytest.mark.usefixtures("simulator", "place")
@pytest.mark.places("warm", "fresh")
def test_a_limit_is_for_a_service_as_a_whole(bench, place):
    """Three launches that are each within the limit are stopped together."""
    limit_s = 1.5 if place == "fresh" else 0.9  # there Python starts anew each time
    runner = bench.runner.replace("    runner.test(", "    for _ in range(3): runner.test(")
    test = bench.test.replace("    for a in range(4):", SPIN.format(seconds=0.4))
    harness = {"src/test_inc.py": test, "src/test_runner.py": runner}
    reward = bench.rtl(bench.right, bench.problem(harness=harness), timeout_s=limit_s)
    assert (reward.score01, reward.evidence["stage"]) == (0.0, "timeout"), reward.evidence
    more = {"timeout_s": 30.0, "warm": 1}
    assert bench.rtl(bench.right, bench.problem(harness=harness), **more).score01 == 1.0


@pytest.mark.one_of(2)
@pytest.mark.integration
@pytest.mark.usefixtures("simulator", "place")
@pytest.mark.places("warm", "fresh")
def test_time_that_goes_by_while_others_compute_stops_nobody(bench, monkeypatch):
    """A service that is not given the processor is not out of time: that is no verdict."""
    monkeypatch.setattr(records, "WALL_FACTOR", 1.0)
    nap = "    import time\n    for n in range(120):\n        time.sleep(0.05)\n"
    nap += "        sum(range(100_000))\n    for a in range(4):"
    problem = bench.problem(
        harness={"src/test_inc.py": bench.test.replace("    for a in range(4):", nap)}
    )
    with pytest.raises(VerifierError, match="too busy"):
        bench.rtl(bench.right, problem, timeout_s=2.5)


def test_the_default_limit_is_the_official_one():
    """600 s a service, as the official runner gives."""
    assert CvdpConfig().timeout_s == 600.0
