"""Runs one service of a harness and reads its three channels: exit code, XML, cocotb's summary."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from attrs import evolve, field, frozen

from rlvr import EMPTY, VerifierError
from rlvr_cvdp.launch.scored_calls import Plan, noted_calls
from rlvr_cvdp.problem import CvdpProblem, Service
from rlvr_cvdp.results.launches import Launch, read_launches
from rlvr_cvdp.results.messages import ToolMessage
from rlvr_cvdp.results.notes import own_tests, read_notes, service_messages
from rlvr_cvdp.results.plain import read_all
from rlvr_cvdp.results.share import Counted, count_tests, most_tests, read_items
from rlvr_cvdp.results.stage import CPU_LIMIT
from rlvr_cvdp.results.tests import TestResult
from rlvr_cvdp.sandbox import Finished, Limits, Sandbox, SandboxLease
from rlvr_cvdp.sandbox.folders.tidy import clear
from rlvr_cvdp.sandbox.records import STOPPED, waited
from rlvr_cvdp.toolchain.cocotb_stacks import Stack

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
        builds: How each compilation went: "ok", "elaboration", "syntax", "refused", "killed N".
        refused: What the scan found in a compiled simulation.
        launch_codes: Exit statuses of the simulations.
        calls: How yosys and Verilator read the design, in each call.
        netlists: What was noted of each netlist that stood in for a build's sources.
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
    calls: tuple[Plan, ...] = field(default=(), repr=False)
    netlists: tuple[str, ...] = ()
    tests: tuple[TestResult, ...] = field(default=(), repr=False)
    messages: tuple[ToolMessage, ...] = field(default=(), repr=False)

    @property
    def launches(self) -> int:
        """How many simulations ran."""
        return len(self.launch_codes)

    @property
    def is_out_of_time(self) -> bool:
        """Whether it, or one of its simulations, used up its processor time."""
        return self.stopped == "time" or CPU_LIMIT in self.launch_codes

    @property
    def passed(self) -> int:
        """Tests that passed."""
        return self.counted.passed

    @property
    def total(self) -> int:
        """Tests that count."""
        return self.counted.total


@frozen(kw_only=True)
class RunSettings:
    """
    Where and how the services of a problem run.

    Attributes:
        seed: Of the tests.
        stop_at_first: A service ends with its first failed test.
        extra: Further variables for the services.
    """

    sandbox: Sandbox
    stack: Stack
    limits: Limits
    seed: str = "1"
    stop_at_first: bool = True
    extra: Mapping[str, str] = EMPTY


async def run_service(
    problem: CvdpProblem, service: Service, slot: SandboxLease, settings: RunSettings
) -> ServiceResult:
    """
    Run a service in a filled slot and judge it.

    Raises:
        VerifierError: Something other than the answer kept it from running.
    """
    out, limits = slot.folder / "out", settings.limits
    clear(out)
    own = service_environment(service, settings.stack, settings.seed, settings.stop_at_first)
    finished = await slot.run(
        service.command,
        environment={**own, **settings.extra},
        limits=limits,
        working_dir=service.working_dir,
    )
    record = finished.record
    launches = read_launches(record, out, finished.output)
    items = read_notes(record)
    builds = [build["how"] for build in record.of_kind("build")]
    _raise_if_foreign(problem, service, finished, launches, items, builds, limits)
    summaries = list(finished.summaries)
    for text in read_all(sorted(out.glob("*.log"))):
        summaries += [(int(a), int(b), int(c), int(d)) for a, b, c, d in _SUMMARY.findall(text)]
    refused = tuple(words for build in record.of_kind("build") for words in build["refused"])
    why = _why(service, finished, launches, summaries, refused, limits)
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
            collected=[name for names in record.of_kind("collected") for name in names],
            least=most_tests(problem.harness) if why and service.runs_cocotb else 1,
            runs_cocotb=service.runs_cocotb,
            is_right=not why,
            is_stopped=bool(finished.stopped),
        ),
        calls=noted_calls(record),
        netlists=tuple(str(words) for words in record.of_kind("netlist")),
        tests=tuple(
            evolve(test, service=service.name)
            for tests in (*(launch.tests for launch in launches), own_tests(service, ran, items))
            for test in tests
        ),
        messages=service_messages(service, out, finished.output) if why else (),
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


def _why(
    service: Service,
    finished: Finished,
    launches: Sequence[Launch],
    summaries: list[tuple[int, int, int, int]],
    refused: tuple[str, ...],
    limits: Limits,
) -> str:
    """Why a service is not right; all of its channels must agree that it is."""
    if refused:
        return "the compiled simulation " + ", ".join(refused)
    if finished.stopped == "time":
        return f"it took more than {limits.cpu_s:g} s of processor time"
    if finished.stopped:
        return f"it {STOPPED[finished.stopped]}"
    if any(launch.rc == CPU_LIMIT for launch in launches):
        return "the simulation took more processor time than allowed"
    if any(launch.rc > 128 for launch in launches):
        return "the simulator crashed on the design"
    if finished.rc != 0:
        return f"the service exited with {finished.rc}"
    if not finished.record.is_whole:
        return "it exited with 0, but its report was cut off"
    if not launches:
        return "it exited with 0 and ran no simulation" if service.runs_cocotb else ""
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
    items: Sequence[Mapping[str, str]],
    builds: list[str],
    limits: Limits,
) -> None:
    """Raise what may say nothing about the answer: `verify` asks a known answer then."""
    where = f"{problem.id}, service {service.name}"
    killed = [int(build.split()[1]) for build in builds if build.startswith("killed ")]
    for code in (*killed, *(launch.rc for launch in launches), finished.rc or 0):
        if code in _FOREIGN:
            raise VerifierError(f"{where}: a process was ended by {_FOREIGN[code]} from outside")
    if finished.stopped in ("idle", "wall"):
        raise VerifierError(f"{where}: {waited(finished, limits)}")
    for item in items:
        found = _IMPORT.search(item.get("text", "")) if item["when"] == "collect" else None
        if found:
            raise VerifierError(f"{where}: its harness cannot be imported: {found[1]}")
    if finished.rc in (126, 127):
        raise VerifierError(f"{where}: its command cannot be run: {finished.output.strip()[-200:]}")
    if finished.rc in (3, 4, 5) and not items and "pytest" in " ".join(service.command):
        raise VerifierError(f"{where}: pytest could not run: {finished.output.strip()[-300:]}")
