"""A small problem in the official format, and the shortest way from an answer to its reward."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from attrs import field, frozen
from docker_fixture import docker_daemon as docker_daemon
from docker_fixture import rootfs as rootfs
from docker_fixture import sim_image as sim_image

from rlvr import BuildContext, Problem, Reward, Trajectory, VerifierError
from rlvr.testing.tools import require_tool
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.launch.service import RunSettings
from rlvr_cvdp.sandbox import Limits, Sandbox, open_sandbox
from rlvr_cvdp.task import CvdpTask
from rlvr_cvdp.verify.reward import CvdpReward

NEW_FILE = """\
@@ -0,0 +1,3 @@
+module inc(input [7:0] a, output [7:0] y);
+  assign y = a + 1;
+endmodule
"""
COMPOSE = """\
services:
  direct:
    image: __OSS_SIM_IMAGE__
    volumes:
      - ./src/:/src/:ro
    working_dir: /code/rundir
    env_file: ./src/.env
    command: pytest -o cache_dir=/rundir/harness/.cache /src/test_runner.py -v
"""
ENV = """\
SIM             = icarus
TOPLEVEL_LANG   = verilog
VERILOG_SOURCES = /code/rtl/inc.sv
TOPLEVEL        = inc
MODULE          = test_inc
PYTHONPATH      = /src
"""
RUNNER = """\
import os
from cocotb_tools.runner import get_runner

def test_runner():
    runner = get_runner(os.getenv("SIM", "icarus"))
    runner.build(
        sources=os.getenv("VERILOG_SOURCES").split(),
        hdl_toplevel=os.getenv("TOPLEVEL"),
        always=True,
        clean=True,
        timescale=("1ns", "1ns"),
        log_file="sim.log",
    )
    runner.test(hdl_toplevel=os.getenv("TOPLEVEL"), test_module=os.getenv("MODULE"))
"""


def every_value(count: int) -> str:
    """A test of cocotb: `inc` at each value of a number that has so many."""
    return f"""\
import cocotb
from cocotb.triggers import Timer

@cocotb.test()
async def every_value(dut):
    for a in range({count}):
        dut.a.value = a
        await Timer(1, unit="ns")
        assert int(dut.y.value) == (a + 1) % {count}
"""


TEST = """\
import cocotb
from cocotb.triggers import Timer

@cocotb.test()
async def small(dut):
    for a in range(4):
        dut.a.value = a
        await Timer(1, unit="ns")
        assert int(dut.y.value) == a + 1

@cocotb.test()
async def large(dut):
    dut.a.value = 255
    await Timer(1, unit="ns")
    assert int(dut.y.value) == 0
"""
RIGHT = """\
module inc(input [7:0] a, output [7:0] y);
  assign y = a + 8'd1;
endmodule
"""


def make_row(**changes: Any) -> dict[str, Any]:
    """The small problem as an official row; `harness` and `context` are merged, others replace."""
    harness = {
        "docker-compose.yml": COMPOSE,
        "src/.env": ENV,
        "src/test_runner.py": RUNNER,
        "src/test_inc.py": TEST,
        **changes.get("harness", {}),
    }
    return {
        "id": changes.get("id", "cvdp_copilot_inc_0001"),
        "categories": changes.get("categories", ["cid003", "easy"]),
        "input": {
            "prompt": "Write the module inc: y is a plus 1.",
            "context": changes.get("context", {}),
        },
        "output": {"response": "", "context": changes.get("targets", {"rtl/inc.sv": RIGHT})},
        "harness": {"files": {k: v for k, v in harness.items() if v is not None}},
    }


HOST: dict[str, Any] = {"sandbox": "bubblewrap", "rootfs": "host", "warm": 1}
PLACES = ("fresh", "warm", "rootfs", "docker")
"""Bubblewrap made for one command, kept warm, on a Debian 13 root; warm Docker containers."""


T = TypeVar("T")
DATASET = "rows.jsonl"
AT_ONCE = 3
"""Answers that are judged side by side: what they wait for goes by once."""
_OF_SANDBOX = (
    *("sandbox", "rootfs", "image", "provision", "warm"),
    *("disk_mb", "memory_mb", "processes"),
)
_MOST_OPEN = 8


class Judge:
    """
    Judges as a run does: its sandboxes stay warm from one test to the next, of any module.

    A test of how sandboxes begin and end opens its own: `async with bench.reward()`.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._open: dict[object, Sandbox] = {}

    def __call__(self, reward: CvdpReward, problem: Problem, trajectory: Trajectory) -> Reward:
        """The reward of an answer."""
        return self.run(self._judged(reward, problem, trajectory))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine gives that uses `sandbox`."""
        try:
            return self._runner.run(work)
        except BaseException as error:  # nothing of it goes on in the next
            left = asyncio.all_tasks(self._runner.get_loop())
            for task in left:
                task.cancel()
            self._runner.run(_ended(left))
            if not isinstance(error, Exception):  # a time limit of the test: anywhere in the loop
                self.end()
            raise

    async def sandbox(
        self, config: CvdpConfig, hidden: Sequence[Path] = (), workers: int = 1
    ) -> Sandbox:
        """The sandbox of some options, opened by the first who asks for it."""
        variables = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
        options = [getattr(config, name) for name in _OF_SANDBOX]
        others = [path for path in hidden if path.name != DATASET]
        key = (*options, workers, *others, sys.executable, *sorted(variables.items()))
        found = self._open.pop(key, None)
        if found is None:
            while len(self._open) >= _MOST_OPEN:  # the one that was used longest ago ends
                await self._open.pop(next(iter(self._open))).__aexit__()
            opened = open_sandbox(config, workers=workers, hidden=hidden)
            found = await opened.__aenter__()
        self._open[key] = found
        return found

    async def opened(self, reward: CvdpReward) -> CvdpReward:
        """A reward that judges in the sandbox of its options."""
        asked = (reward._config, reward._hidden, reward._workers)
        reward.__dict__["_sandbox"] = await self.sandbox(*asked)
        return reward

    async def _judged(self, reward: CvdpReward, problem: Problem, trajectory: Trajectory) -> Reward:
        outcome = await (await self.opened(reward))(problem, trajectory)
        assert isinstance(outcome, Reward)
        return outcome

    async def all_of(self, reward: CvdpReward, cases: Sequence[tuple[Problem, Trajectory]]) -> Any:
        """The rewards of many answers, or what was raised instead, judged side by side."""
        await self.opened(reward)
        judging = [self._judged(reward, *case) for case in cases]
        return await asyncio.gather(*judging, return_exceptions=True)

    def waiting(self) -> set[Path]:
        """The folders of all sandboxes that stay warm for the next answer."""
        return {worker.folder for opened in self._open.values() for worker in opened._waiting}

    async def _end(self, name: str) -> None:
        for key in [key for key, opened in self._open.items() if name in ("", opened.name)]:
            await self._open.pop(key).__aexit__()

    def end(self, name: str = "") -> None:
        """End all sandboxes, or those of a name; the next answer starts new ones."""
        self._runner.run(self._end(name))

    def close(self) -> None:
        """End all sandboxes, and the loop that they live in."""
        self.end()
        self._runner.close()


async def _ended(tasks: Collection[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


@frozen
class Bench:
    """Judges answers to rows; `judge` takes model text or files. `place` says in which sandbox."""

    folder: Path
    judged: Judge
    place: dict[str, Any] = field(factory=lambda: dict(HOST))
    right: str = RIGHT
    env: str = ENV
    runner: str = RUNNER
    test: str = TEST
    compose: str = COMPOSE

    def row(self, **changes: Any) -> dict[str, Any]:
        return make_row(**changes)

    def agentic_row(self, **changes: Any) -> dict[str, Any]:
        """The same problem in the agentic form, its solution a patch without a header."""
        row = self.row()
        return {
            "id": "cvdp_agentic_inc_0001",
            "categories": ["cid003", "easy"],
            "system_message": "",
            "prompt": row["input"]["prompt"],
            "context": {},
            "patch": {"rtl/inc.sv": NEW_FILE},
            "harness": row["harness"]["files"],
            **changes,
        }

    def dataset(self, *rows: Mapping[str, Any] | str) -> Path:
        path = self.folder / DATASET
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path.write_text("\n".join(lines) + "\n")
        return path

    def task(self, *rows: Mapping[str, Any] | str, **options: Any) -> CvdpTask:
        context = BuildContext(dataset=self.dataset(*(rows or (self.row(),))))
        return CvdpTask(CvdpConfig(**options), context)

    def problem(self, **changes: Any) -> Problem:
        task = self.task(self.row(**changes))
        found = list(task.problems("all"))
        assert found, task.unsupported()
        return found[0]

    def settings(self, sandbox: Sandbox, record: Any, timeout_s: float = 20.0) -> RunSettings:
        """How the record of a problem is launched in the sandbox."""
        stack = sandbox.toolchain.stack_for(record)
        limits = Limits.of(CvdpConfig(timeout_s=timeout_s))
        return RunSettings(sandbox=sandbox, stack=stack, limits=limits)

    def reward(self, *, workers: int = 1, **options: Any) -> CvdpReward:
        settings = {"timeout_s": 20.0, "idle_s": 2.0, **self.place, **options}
        context = BuildContext(dataset=self.folder / DATASET, workers=workers)
        return CvdpReward(CvdpConfig(**settings), context)

    def judge(
        self, answer: str | Mapping[str, str], problem: Problem | None = None, **options: Any
    ) -> Reward:
        problem = problem or self.problem()
        if isinstance(answer, str):
            trajectory = Trajectory.from_text(problem.id, answer)
        else:
            trajectory = Trajectory(problem_id=problem.id, files=answer)
        return self.judged(self.reward(**options), problem, trajectory)

    def together(
        self, answers: Mapping[T, tuple[str, Problem]], **options: Any
    ) -> dict[T, Reward | VerifierError]:
        """Judge named answers (texts of rtl/inc.sv, each with its problem) side by side."""
        warm = AT_ONCE * self.place["warm"]
        reward = self.reward(workers=AT_ONCE, **{"warm": warm, **options})
        cases = [
            (problem, Trajectory(problem_id=problem.id, files={"rtl/inc.sv": text}))
            for text, problem in answers.values()
        ]
        found = self.judged.run(self.judged.all_of(reward, cases))
        for outcome in found:
            if not isinstance(outcome, Reward | VerifierError):
                raise outcome
        return dict(zip(answers, found, strict=True))

    def rtl(self, text: str, problem: Problem | None = None, **options: Any) -> Reward:
        """Judge an answer that is the text of rtl/inc.sv."""
        return self.judge({"rtl/inc.sv": text}, problem, **options)


@pytest.fixture(scope="session")
def judged() -> Iterator[Judge]:
    """What all tests judge with; it starts nothing before it is called."""
    judge = Judge()
    yield judge
    judge.close()


@pytest.fixture(scope="module")
def containers(judged: Judge, sim_image: str) -> Iterator[str]:
    """The image of the sandboxes in Docker, which end before its daemon does."""
    yield sim_image
    judged.end("docker")


@pytest.fixture
def bench(tmp_path: Path, judged: Judge) -> Bench:
    """Rows, problems and rewards without any tool."""
    return Bench(tmp_path, judged)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that ask for `place` run in every sandbox, or in those of their marker `places`."""
    if "place" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("places")
        metafunc.parametrize("place", marker.args if marker else PLACES, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Of a test with many cases, each case runs in one sandbox: every case and every sandbox.

    A file's cases take one sandbox after the other, those that are made for each command the
    first and then every thirteenth time: they take four times the processor time.
    `RLVR_ALL_PLACES=1` runs each case in each sandbox, as the marker `every_place` asks for.
    """
    if os.environ.get("RLVR_ALL_PLACES"):
        return
    cases: dict[Path, dict[object, list[pytest.Item]]] = {}
    for item in items:
        found = getattr(item, "callspec", None)
        if found is None or "place" not in found.params or len(found.params) == 1:
            continue
        if not item.get_closest_marker("every_place"):
            case = item.function, found.id.replace(found.params["place"], "", 1)
            cases.setdefault(item.path, {}).setdefault(case, []).append(item)
    left_out = []
    for known in cases.values():
        many = [items_of_case for items_of_case in known.values() if len(items_of_case) > 1]
        for number, items_of_case in enumerate(many):
            warm = [item for item in items_of_case if item.callspec.params["place"] != "fresh"]
            in_turn = [*items_of_case, *warm * 3]
            kept = in_turn[number % len(in_turn)]
            left_out += [item for item in items_of_case if item is not kept]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture
def place(request: pytest.FixtureRequest, bench: Bench) -> str:
    """The sandbox that `bench` judges in."""
    name: str = request.param
    if name == "fresh":
        bench.place["warm"] = 0
    if name == "rootfs":
        bench.place["rootfs"] = str(request.getfixturevalue("rootfs"))
    if name == "docker":
        image = request.getfixturevalue("containers")
        bench.place.update(sandbox="docker", image=image)
    return name


@pytest.fixture
def in_turn(request: pytest.FixtureRequest, place: str) -> Callable[[Collection[T]], list[T]]:
    """Which cases run in this sandbox: each in one, as those of `parametrize` do."""
    marker = request.node.get_closest_marker("places")
    places = marker.args if marker else PLACES
    warm = [name for name in places if name != "fresh"]

    def chosen(cases: Collection[T]) -> list[T]:
        if os.environ.get("RLVR_ALL_PLACES"):
            return list(cases)
        is_fresh = [n % 13 == 4 and "fresh" in places for n in range(len(cases))]
        where = ["fresh" if now else warm[n % len(warm)] for n, now in enumerate(is_fresh)]
        return [case for case, name in zip(cases, where, strict=True) if name == place]

    return chosen


@pytest.fixture
def simulator() -> None:
    """The test needs the real sandbox and simulator."""
    for tool in ("bwrap", "iverilog", "vvp"):
        require_tool(tool, "sudo apt-get install -y bubblewrap iverilog")
