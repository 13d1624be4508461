"""Time limits of single problems: measured once, five times the reference, part of the key."""

from __future__ import annotations

import asyncio
import json

import pytest

from rlvr.errors import ConfigError, PrerequisiteError
from rlvr.types import Trajectory
from rlvr_cvdp.calibrate import calibrate
from rlvr_cvdp.calibration import (
    Calibration,
    default_path,
    load_calibration,
    save_calibration,
)


@pytest.mark.parametrize(
    ("taken", "limit"), [(0.2, 10.0), (2.0, 10.0), (2.02, 10.1), (30.0, 150.0), (None, None)]
)
def test_a_limit_is_five_times_the_reference_and_ten_seconds_at_least(taken, limit):
    """Hand-worked: 5 x 2.02 = 10.1; what was never timed has no limit."""
    calibration = Calibration({} if taken is None else {"d": taken})
    assert calibration.limit_s("d") == limit


def test_the_longer_measurement_stays(tmp_path):
    """A second measurement adds problems and never shortens a limit."""
    path = tmp_path / "deep" / "limits.json"
    save_calibration(path, {"a": 4.0, "b": 1.0})
    save_calibration(path, {"a": 3.0, "c": 2.0})
    assert load_calibration(str(path)).seconds == {"a": 4.0, "b": 1.0, "c": 2.0}
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
    assert load_calibration("auto").seconds == {}
    assert load_calibration("off").seconds == {}
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
    outcome = asyncio.run(bench._judged(reward, problem, _answer(bench)))
    taken = said["seconds"]["cvdp_copilot_inc_0001"]
    assert outcome.evidence["limit_s"] == max(10.0, round(5 * taken, 1))
    assert bench.reward().verdict_key(problem, _answer(bench)) != before
    assert bench.reward().expected_s(problem, _answer(bench)) == pytest.approx(taken, abs=1e-3)


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
