"""Runs one service of a harness and reads its three channels: exit code, XML, cocotb's summary."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from attrs import evolve, field, frozen

from rlvr.errors import VerifierError
from rlvr.types import EMPTY
from rlvr_cvdp.policy import may_wait
from rlvr_cvdp.problem import CvdpProblem, Service
from rlvr_cvdp.results.launches import Launch, read_launches
from rlvr_cvdp.results.messages import ToolMessage
from rlvr_cvdp.results.notes import own_tests, read_lines, service_messages
from rlvr_cvdp.results.plain import read_plain
from rlvr_cvdp.results.share import Counted, count_tests, most_tests, read_items
from rlvr_cvdp.results.tests import TestResult
from rlvr_cvdp.sandbox import Finished, Limits, Slot
from rlvr_cvdp.sandbox.folders import empty_folder
from rlvr_cvdp.stacks import Stack

_FOREIGN = {129: "SIGHUP", 130: "SIGINT", 131: "SIGQUIT", 137: "SIGKILL", 143: "SIGTERM"}
_COCOTB1_SEEDS = 1000
_SUMMARY = re.compile(r"\*\* TESTS=(\d+) PASS=(\d+) FAIL=(\d+) SKIP=(\d+)")
_IMPORT = re.compile(r"(?:ModuleNotFoundError|ImportError): (.*)")


@frozen(kw_only=True)
class ServiceResult:
    """
    What a service said.

    Attributes:
        tests: Each test of each launch, then the items of pytest that launched none.
        counted: How many of them count for the share, and passed (see `results.share`).
        messages: What compilers and linters said about an answer that is not right.
        why: Why it is not right, "" where it is.
        builds: How each compilation went: "ok", "elaboration", "syntax", "refused", "slow",
            "killed N".
        refused: What the scan found in a compiled simulation.
        launch_codes: Exit statuses of the simulations.
    """

    name: str
    rc: int | None
    stopped: str
    why: str
    builds: tuple[str, ...]
    refused: tuple[str, ...]
    launch_codes: tuple[int, ...]
    seconds: float
    cpu_s: float = 0.0
    counted: Counted
    tests: tuple[TestResult, ...] = field(default=(), repr=False)
    messages: tuple[ToolMessage, ...] = field(default=(), repr=False)
    output: str = field(repr=False)

    @property
    def launches(self) -> int:
        """How many simulations ran."""
        return len(self.launch_codes)

    @property
    def passed(self) -> int:
        """Tests that passed."""
        return self.counted.passed

    @property
    def total(self) -> int:
        """Tests that count."""
        return self.counted.total


async def run_service(
    problem: CvdpProblem,
    service: Service,
    *,
    slot: Slot,
    stack: Stack,
    limits: Limits,
    seed: str,
    stop_at_first: bool,
    extra: Mapping[str, str] = EMPTY,
) -> ServiceResult:
    """
    Run a service in a filled slot and judge it; `extra` are further variables for it.

    Raises:
        VerifierError: Something other than the answer kept it from running.
    """
    out = slot.folder / "out"
    empty_folder(out)
    finished = await slot.run(
        service.command,
        environment={
            **service_environment(service, stack, seed, stop_at_first),
            "RLVR_COMPILE_S": f"{limits.cpu_s:.3f}",
            **extra,
        },
        limits=limits,
        working_dir=service.working_dir,
    )
    launches = read_launches(out, finished.output)
    items = [json.loads(line) for line in read_lines(out / "items")]
    builds = read_lines(out / "builds")
    _raise_if_foreign(
        problem, service, finished, launches, items, builds, limits, can_wait=_can_wait(slot)
    )
    summaries = list(finished.summaries)
    for log in sorted(out.glob("*.log")):
        summaries += [
            (int(a), int(b), int(c), int(d)) for a, b, c, d in _SUMMARY.findall(read_plain(log))
        ]
    refused = tuple(read_lines(out / "refused"))
    why = _why(service, finished, launches, summaries, refused, builds)
    ran = read_items(items)
    return ServiceResult(
        name=service.name,
        rc=finished.rc,
        stopped=finished.stopped,
        why=why,
        builds=tuple(builds),
        refused=refused,
        launch_codes=tuple(launch.rc for launch in launches if launch.is_built),
        seconds=finished.seconds,
        cpu_s=finished.cpu_s,
        counted=count_tests(
            [launch.tests for launch in launches],
            ran,
            collected=read_lines(out / "collected"),
            least=most_tests(problem.harness) if why and service.runs_cocotb else 1,
            runs_cocotb=service.runs_cocotb,
            is_right=not why,
            is_stopped=bool(finished.stopped),
        ),
        tests=tuple(
            evolve(test, service=service.name)
            for tests in (*(launch.tests for launch in launches), own_tests(service, ran, items))
            for test in tests
        ),
        messages=service_messages(service, out, finished.output) if why else (),
        output=finished.output,
    )


def service_environment(
    service: Service, stack: Stack, seed: str, stop_at_first: bool
) -> dict[str, str]:
    """Variables of a service: its own, and those that fix seeds and keep pytest to itself."""
    environment = {"LANG": "C.UTF-8", **service.environment}
    options = [environment.get("PYTEST_ADDOPTS", ""), "-s", "-p", "rlvr_probe"]
    options += ["-W", "error::pytest.PytestReturnNotNoneWarning"]
    options += ["-x"] if stop_at_first else ["-p", "rlvr_keep"]
    return {
        **cocotb_seed(stack.generation, seed),
        **environment,
        "HOME": "/code/rundir",
        "PATH": f"/rlvr/bin:{stack.python.parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"/rlvr/python:{environment.get('PYTHONPATH') or '/src'}",
        "PYTHONHASHSEED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LIBPYTHON_LOC": str(stack.libpython),
        "TOPLEVEL_LANG": environment.get("TOPLEVEL_LANG") or "verilog",
        "COCOTB_REWRITE_ASSERTION_FILES": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": " ".join(options).strip(),
        "RLVR_SEED": seed,
        "RLVR_COCOTB": str(stack.generation),
    }


def cocotb_seed(generation: int, seed: str) -> dict[str, str]:
    """
    The variable that seeds cocotb.

    cocotb 1 gets other numbers than cocotb 2: with 1 itself, the random test of one problem
    (swizzler_0005) draws a checksum, at odds of 1 in 25, that the only known solution misses.
    """
    if generation == 2:
        return {"COCOTB_RANDOM_SEED": seed}
    return {"RANDOM_SEED": str(int(seed) + _COCOTB1_SEEDS)}


def _can_wait(slot: Slot) -> bool:
    """Whether a tool may wait because of what the answer says."""
    paths = [line.removeprefix("/code/") for line in read_lines(slot.folder / "answer")]
    tree = slot.folder / "tree"
    return any(may_wait(read_plain(tree / path, tree)) for path in paths)


def _why(
    service: Service,
    finished: Finished,
    launches: Sequence[Launch],
    summaries: list[tuple[int, int, int, int]],
    refused: tuple[str, ...],
    builds: Sequence[str],
) -> str:
    """Why a service is not right; all of its channels must agree that it is."""
    if refused:
        return "the compiled simulation " + ", ".join(refused)
    if "refused" in builds:
        return "the compiled simulation is too much to look through"
    if finished.stopped:
        return {
            "time": "it took more time than allowed",
            "output": "it wrote more output than allowed",
            "disk": "it wrote more to the disk than allowed",
            "processes": "it ran more processes at the same time than allowed",
        }[finished.stopped]
    if any(launch.rc == 152 for launch in launches):
        return "the simulation took more processor time than allowed"
    if any(launch.rc > 128 for launch in launches):
        return "the simulator crashed on the design"
    if finished.rc != 0:
        return f"the service exited with {finished.rc}"
    if not service.runs_cocotb and not launches:
        return ""
    if not launches:
        return "it exited with 0 and ran no simulation"
    if not all(launch.is_right for launch in launches):
        return "it exited with 0, but a simulation's results say otherwise"
    # Tests that a filter leaves out are in cocotb 2's results, and not in its summary.
    counts = [(passed, failed) for _, passed, failed, _ in summaries]
    if sorted(counts) != sorted((launch.count("passed"), 0) for launch in launches):
        return "it exited with 0, but cocotb's summaries do not agree with the results"
    return ""


def _raise_if_foreign(
    problem: CvdpProblem,
    service: Service,
    finished: Finished,
    launches: Sequence[Launch],
    items: list[Mapping[str, str]],
    builds: list[str],
    limits: Limits,
    *,
    can_wait: bool,
) -> None:
    """What says nothing about the answer is raised, never scored."""
    where = f"{problem.id}, service {service.name}"
    killed = [int(build.split()[1]) for build in builds if build.startswith("killed ")]
    for code in (*killed, *(launch.rc for launch in launches), finished.rc or 0):
        if code in _FOREIGN:
            raise VerifierError(f"{where}: a process was ended by {_FOREIGN[code]} from outside")
    is_idle = finished.stopped == "time" and finished.cpu_s < 0.5 * limits.cpu_s
    if is_idle and "slow" not in builds and not can_wait:
        raise VerifierError(
            f"{where}: {limits.wall_s:.0f} s went by, of which it computed {finished.cpu_s:.0f} s: "
            "the harness waits for something, or the machine is too busy"
        )
    for item in items:
        found = _IMPORT.search(item.get("text", "")) if item["when"] == "collect" else None
        if found:
            raise VerifierError(f"{where}: its harness cannot be imported: {found[1]}")
    if finished.rc in (126, 127):
        raise VerifierError(f"{where}: its command cannot be run: {finished.output.strip()[-200:]}")
    if finished.rc in (3, 4, 5) and not items and "pytest" in " ".join(service.command):
        raise VerifierError(f"{where}: pytest could not run: {finished.output.strip()[-300:]}")
