"""Runs one service of a harness and reads its three channels: exit code, XML, cocotb's summary."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from attrs import field, frozen

from rlvr.errors import VerifierError
from rlvr_cvdp.problem import CvdpProblem, Service
from rlvr_cvdp.sandbox import Finished, Limits, run_sandboxed, sandbox_argv
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
        passed, total: Tests; a simulation that left no results and a pytest item that launched
            none count as one test each.
        why: Why it is not right, "" where it is.
        builds: How each compilation went: "ok", "elaboration", "syntax", "refused", "slow",
            "killed N".
        refused: What the scan found in a compiled simulation.
    """

    name: str
    rc: int | None
    stopped: str
    passed: int
    total: int
    why: str
    builds: tuple[str, ...]
    refused: tuple[str, ...]
    launches: int
    seconds: float
    output: str = field(repr=False)


@frozen(kw_only=True)
class _Launch:
    rc: int
    tests: int
    failed: int
    has_results: bool


async def run_service(
    problem: CvdpProblem,
    service: Service,
    *,
    folder: Path,
    stack: Stack,
    limits: Limits,
    seed: str,
    stop_at_first: bool,
    hidden: tuple[Path, ...] = (),
) -> ServiceResult:
    """
    Run a service in the tree of `folder` and judge it.

    Raises:
        VerifierError: Something other than the answer kept it from running.
    """
    out = folder / "out"
    for note in out.iterdir():
        note.unlink()
    command = sandbox_argv(
        service.command,
        folder=folder,
        stack=stack,
        environment={
            **service_environment(service, stack, seed, stop_at_first),
            "RLVR_COMPILE_S": f"{limits.cpu_s:.3f}",
        },
        limits=limits,
        working_dir=service.working_dir,
        hidden=hidden,
    )
    finished = await run_sandboxed(command, folder=folder, limits=limits)
    launches = [_launch(out, line) for line in _lines(out / "launches")]
    items = [json.loads(line) for line in _lines(out / "items")]
    builds = _lines(out / "builds")
    _raise_if_foreign(problem, service, finished, launches, items, builds, limits)
    summaries = list(finished.summaries)
    for log in sorted(out.glob("*.log")):
        summaries += [
            (int(a), int(b), int(c), int(d))
            for a, b, c, d in _SUMMARY.findall(log.read_text(errors="replace"))
        ]
    own = [item for item, before in zip(items, [0, *(i["launches"] for i in items)], strict=False)
           if item["launches"] == before]  # items that launched no simulation  # fmt: skip
    refused = tuple(_lines(out / "refused"))
    return ServiceResult(
        name=service.name,
        rc=finished.rc,
        stopped=finished.stopped,
        passed=sum(launch.tests - launch.failed for launch in launches)
        + sum(item["outcome"] == "passed" for item in own),
        total=sum(launch.tests for launch in launches) + len(own),
        why=_why(service, finished, launches, summaries, refused),
        builds=tuple(builds),
        refused=refused,
        launches=len(launches),
        seconds=finished.seconds,
        output=finished.output,
    )


def service_environment(
    service: Service, stack: Stack, seed: str, stop_at_first: bool
) -> dict[str, str]:
    """Variables of a service: its own, and those that fix seeds and keep pytest to itself."""
    environment = {"LANG": "C.UTF-8", **service.environment}
    options = [environment.get("PYTEST_ADDOPTS", ""), "-s", "-p", "rlvr_probe"]
    options += ["-W", "error::pytest.PytestReturnNotNoneWarning"]
    options += ["-x"] if stop_at_first else []
    return {
        **cocotb_seed(stack.generation, seed),
        **environment,
        "HOME": "/code/rundir",
        "PATH": f"/rlvr/bin:{stack.python.parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"/rlvr/python:{environment.get('PYTHONPATH') or '/src'}",
        "PYTHONHASHSEED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LIBPYTHON_LOC": str(stack.libpython),
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


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.is_file() else []


def _launch(out: Path, line: str) -> _Launch:
    rc, _, number = line.partition(" ")
    try:
        root = ElementTree.parse(out / f"{number}.xml").getroot()
    except (OSError, ElementTree.ParseError):
        return _Launch(rc=int(rc), tests=1, failed=1, has_results=False)
    cases = list(root.iter("testcase"))
    failed = sum(any(c.tag in ("failure", "error") for c in case) for case in cases)
    return _Launch(rc=int(rc), tests=len(cases), failed=failed, has_results=bool(cases))


def _why(
    service: Service,
    finished: Finished,
    launches: list[_Launch],
    summaries: list[tuple[int, int, int, int]],
    refused: tuple[str, ...],
) -> str:
    """Why a service is not right; all of its channels must agree that it is."""
    if refused:
        return "the compiled simulation " + ", ".join(refused)
    if finished.stopped:
        return {
            "time": "it took more time than allowed",
            "output": "it wrote more output than allowed",
            "disk": "it wrote more to the disk than allowed",
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
    if not all(launch.has_results and launch.rc == 0 and not launch.failed for launch in launches):
        return "it exited with 0, but a simulation's results say otherwise"
    counts = [(tests, failed) for tests, _, failed, _ in summaries]
    if sorted(counts) != sorted((launch.tests, 0) for launch in launches):
        return "it exited with 0, but cocotb's summaries do not agree with the results"
    return ""


def _raise_if_foreign(
    problem: CvdpProblem,
    service: Service,
    finished: Finished,
    launches: list[_Launch],
    items: list[Mapping[str, str]],
    builds: list[str],
    limits: Limits,
) -> None:
    """What says nothing about the answer is raised, never scored."""
    where = f"{problem.id}, service {service.name}"
    killed = [int(build.split()[1]) for build in builds if build.startswith("killed ")]
    for code in (*killed, *(launch.rc for launch in launches), finished.rc or 0):
        if code in _FOREIGN:
            raise VerifierError(f"{where}: a process was ended by {_FOREIGN[code]} from outside")
    is_idle = finished.stopped == "time" and finished.cpu_s < 0.5 * limits.cpu_s
    if is_idle and "slow" not in builds:
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
