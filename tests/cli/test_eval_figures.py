"""What a task measures besides: as a table, as JSON, beside another model's."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rlvr import Metric, PartError
from rlvr.cli.eval_figures import figure_line, figures_as_json, figures_as_text, measured

FIGURES = [
    Metric(name="policy/regret", value=0.277, low=0.25, high=0.3, n=140),
    Metric(name="elo", value=148.0, low=120.0, high=174.0, n=200, note="relative to random"),
]


def test_a_row_a_figure_with_its_interval_and_note() -> None:
    """Value, interval and n stand in the row of the name; the note is not lost."""
    lines = figures_as_text(FIGURES).splitlines()
    assert lines[0].split() == ["FIGURE", "VALUE", "95", "%", "INTERVAL", "N", "NOTE"]
    assert lines[1].split() == ["policy/regret", "0.277", "[0.25,", "0.3]", "140"]
    assert lines[2].endswith("relative to random")
    assert figure_line(FIGURES[1]) == "  elo 148 [120, 174] n=200"


def test_another_models_figures_stand_beside() -> None:
    """Only those that both have are compared; a dash stands for one that the other lacks."""
    other = [Metric(name="elo", value=365.0, low=328.0, high=407.0, n=200)]
    lines = figures_as_text(FIGURES, other).splitlines()
    assert lines[1].split()[-2:] == ["-", "-"]
    assert "365" in lines[2]
    assert "[328, 407]" in lines[2]


def test_json_has_every_number_by_name() -> None:
    """A program finds value, bounds, n and note under the figure's name."""
    assert figures_as_json(FIGURES)["elo"] == {
        "value": 148.0,
        "low": 120.0,
        "high": 174.0,
        "n": 200,
        "note": "relative to random",
    }


def test_what_could_not_be_measured_is_a_dash_and_null() -> None:
    """No value is no number: a dash with the reason beside it, and valid JSON."""
    missing = Metric(name="elo", value=math.nan, low=math.nan, high=math.nan, n=0, note="no engine")
    assert figures_as_text([missing]).splitlines()[1].split() == [
        "elo",
        "-",
        "-",
        "0",
        "no",
        "engine",
    ]
    assert figure_line(missing) == "  elo - - n=0"
    read = json.loads(json.dumps(figures_as_json([missing]), allow_nan=False))
    assert read["elo"] == {"value": None, "low": None, "high": None, "n": 0, "note": "no engine"}


def test_a_value_without_an_interval_keeps_its_value() -> None:
    """Of a single case: the value and n, a dash for the interval, null for its bounds."""
    alone = Metric(name="policy/kendall_tau", value=0.5, low=math.nan, high=math.nan, n=1)
    assert figure_line(alone) == "  policy/kendall_tau 0.5 - n=1"
    assert figures_as_text([alone]).splitlines()[1].split()[1:4] == ["0.5", "-", "1"]
    read = json.loads(json.dumps(figures_as_json([alone]), allow_nan=False))
    told = read["policy/kendall_tau"]
    assert told == {"value": 0.5, "low": None, "high": None, "n": 1, "note": ""}


def test_a_figure_that_only_the_other_has_is_not_lost() -> None:
    """A dash stands for what this model lacks, too."""
    lines = figures_as_text(FIGURES[:1], FIGURES).splitlines()
    assert lines[2].split()[:6] == ["elo", "-", "-", "-", "148", "[120,"]


def test_bounds_that_json_has_no_number_for_are_null() -> None:
    """An interval without an end is valid JSON, as is a number of NumPy's."""
    np = pytest.importorskip("numpy")
    wide = Metric(name="x", value=np.float32(0.5), low=-math.inf, high=math.inf, n=np.int64(1))
    read = json.loads(json.dumps(figures_as_json([wide]), allow_nan=False))
    assert read["x"] == {"value": 0.5, "low": None, "high": None, "n": 1, "note": ""}


class Breaking:
    """Measures one figure; then something happens."""

    def __init__(self, then: BaseException | None) -> None:
        self._then = then

    async def measure(self, policy: Any, *, split: str, seed: int) -> AsyncIterator[Metric]:
        yield FIGURES[0]
        if self._then is not None:
            raise self._then
        await asyncio.sleep(60)


def measured_by(task: Breaking) -> Any:
    policy: Any = None
    return measured(task, policy, split="test", seed=1, quiet=True)


def test_an_error_keeps_what_was_measured() -> None:
    """The figures before it are given back with it: an hour of judging is not lost to it."""
    error = ValueError("no engine")
    found = asyncio.run(measured_by(Breaking(error)))
    assert isinstance(found.broken, PartError)
    assert found.broken.__cause__ is error
    assert found.as_json() == {
        "figures": figures_as_json(FIGURES[:1]),
        "figures_error": str(found.broken),
    }


def test_an_interrupt_keeps_what_was_measured() -> None:
    """Ctrl-C ends the measuring; what closes the model afterwards is not cancelled."""

    async def interrupted() -> Any:
        me = asyncio.current_task()
        assert me is not None
        asyncio.get_running_loop().call_later(0.05, me.cancel)
        found = await measured_by(Breaking(None))
        assert me.cancelling() == 0
        return found

    found = asyncio.run(interrupted())
    assert isinstance(found.broken, KeyboardInterrupt)
    assert found.figures == FIGURES[:1]
    assert found.as_json()["figures_error"] == "KeyboardInterrupt"


EXAMINED = """
    from rlvr import hookimpl
    from rlvr import BackendSpec, TaskSpec
    from rlvr.testing.fakes import TinyBackend, ToyTask
    from rlvr import Metric

    RLVR_API = 1

    class Examiner(ToyTask):
        async def measure(self, policy, *, split, seed):
            yield Metric(name="first", value=0.5, low=0.25, high=0.75, n=4)
            raise ZeroDivisionError("the second broke")

    @hookimpl
    def rlvr_tasks():
        yield TaskSpec(name="exam", target=f"{__name__}:task", reward="exam")

    @hookimpl
    def rlvr_rewards():
        from rlvr import RewardSpec
        yield RewardSpec(name="exam", target=f"{__name__}:reward")

    @hookimpl
    def rlvr_backends():
        yield BackendSpec(name="tiny", target=f"{__name__}:backend", models=("tiny",))

    def task(config, context):
        return Examiner()

    def reward(config, context):
        from rlvr.testing.fakes import ToyReward
        return ToyReward()

    def backend(config, context):
        return TinyBackend()
"""


def test_pass_at_k_survives_what_breaks_in_a_figure(plugin_site: Any) -> None:
    """The report and `--out` are written before the error ends the command."""
    plugin_site.add("exam", EXAMINED)
    words = ("eval", "--plugin", "exam", "--model", "tiny:x", "--samples", "1", "--split", "train")
    done = plugin_site.rlvr(*words, "--json", "--out", "kept.jsonl")
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert "plugin 'exam'" in done.stderr
    told = json.loads(done.stdout)
    assert 0 <= told["pass_at"]["1"] <= 1
    assert told["figures"]["first"]["value"] == 0.5
    assert "plugin 'exam'" in told["figures_error"]
    assert "the second broke" in told["figures_error"]
    assert "the second broke" in done.stderr
    assert len((plugin_site.home / "kept.jsonl").read_text().splitlines()) == told["samples"]
