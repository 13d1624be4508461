"""The stage that stopped an answer, from reading it to its tests, and why, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from attrs import frozen

from rlvr_cvdp.results.bounded import bounded_text
from rlvr_cvdp.results.messages import ToolMessage, shown_messages
from rlvr_cvdp.results.tests import TestResult, shown_tests

_WHY = 400
CPU_LIMIT = 152  # 128 + SIGXCPU


class Stage(StrEnum):
    """The stages that can stop an answer; docs/results.md explains each."""

    EXTRACTION = "extraction"
    POLICY = "policy"
    SYNTAX = "syntax"
    ELABORATION = "elaboration"
    BUILD = "build"
    SIMULATION = "simulation"
    TESTS = "tests"
    LINT = "lint"
    SYNTHESIS = "synthesis"
    NETLIST = "netlist"
    TIMEOUT = "timeout"
    OUTPUT = "output"
    DISK = "disk"
    PROCESSES = "processes"
    MEMORY = "memory"
    SANDBOX = "sandbox"


@frozen(kw_only=True)
class Stopped:
    """The stage that stopped an answer, and why."""

    stage: Stage
    why: str


class ServiceEnd(Protocol):
    """The end of a service; `launch_codes` are the simulators' exit statuses."""

    @property
    def name(self) -> str: ...
    @property
    def stopped(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def builds(self) -> Sequence[str]: ...
    @property
    def launch_codes(self) -> Sequence[int]: ...
    @property
    def tests(self) -> Sequence[TestResult]: ...
    @property
    def messages(self) -> Sequence[ToolMessage]: ...


def failed_stage(
    *,
    why_none: str = "",
    refused: Sequence[str] = (),
    unparsed: Sequence[ToolMessage] | None = None,
    services: Sequence[ServiceEnd] = (),
    tools: Mapping[str, str] | None = None,
    counted: str = "",
) -> Stopped | None:
    """
    The first stage that stopped an answer, None if it passed all.

    Args:
        why_none: Why it holds no file, "" where it does.
        refused: What the policy and the scan refused.
        unparsed: The compiler's messages where the compile before the harness decided, else None.
        services: The ends of the services that ran, in order.
        counted: Why the netlist that was scored is not right, "" where it is.
        tools: The name of a service to "verilator" or "yosys" where it runs one of them.
    """
    if why_none:
        return _stopped(Stage.EXTRACTION, why_none)
    if refused:
        return _stopped(Stage.POLICY, "; ".join(refused))
    if unparsed is not None:
        return _stopped(Stage.SYNTAX, _with_first("it does not parse", unparsed))
    for service in services:
        if service.why:
            stage, why = _service_stage(service, (tools or {}).get(service.name, ""))
            return _stopped(stage, f"{service.name}: {why}")
    return _stopped(Stage.NETLIST, counted) if counted else None


def _stopped(stage: Stage, why: str) -> Stopped:
    return Stopped(stage=stage, why=bounded_text(why.replace("\n", " "), _WHY))


def _service_stage(service: ServiceEnd, tool: str) -> tuple[Stage, str]:
    broken = next((build for build in service.builds if build != "ok"), "")
    if broken == "refused":
        return Stage.POLICY, service.why
    if broken:
        stage = {"syntax": Stage.SYNTAX, "elaboration": Stage.ELABORATION}.get(broken, Stage.BUILD)
        words = {"syntax": "it does not parse", "elaboration": "it does not elaborate"}
        why = words.get(broken, f"the compiler ended with {broken}")
        return stage, _with_first(why, service.messages)
    if service.stopped:
        return Stage(service.stopped.replace("time", "timeout")), service.why
    if CPU_LIMIT in service.launch_codes:
        return Stage.TIMEOUT, service.why
    if tool == "verilator":
        return Stage.LINT, _with_first(service.why, service.messages, ("error", "warning"))
    if tool:
        return Stage.SYNTHESIS, _with_first(service.why, service.messages)
    failed = [test for test in service.tests if test.status == "failed"]
    crashed = any(code > 128 for code in service.launch_codes)
    lost = [test for test in service.tests if test.status == "error"]
    if crashed or (lost and not failed):
        return Stage.SIMULATION, service.why
    if failed:
        counted = sum(test.counts for test in service.tests)
        first = failed[0]
        said = f": {first.message}" if first.message else ""
        return Stage.TESTS, f"{len(failed)} of {counted} tests failed, first {first.name}{said}"
    return Stage.TESTS, service.why


def _with_first(
    why: str, messages: Sequence[ToolMessage], severities: Sequence[str] = ("error",)
) -> str:
    first = next((message for message in messages if message.severity in severities), None)
    return why if first is None else f"{why}: {first}"


def details(
    stopped: Stopped | None, tests: Sequence[TestResult], messages: Sequence[ToolMessage]
) -> dict[str, Any]:
    """
    Fields of a reward's evidence (docs/results.md), of bounded size.

    Names and messages of tests come from the hidden harness: never show them to the policy.
    """
    return {
        "stage": stopped.stage.value if stopped else "",
        "stage_why": stopped.why if stopped else "",
        **shown_tests(tests),
        **shown_messages(messages),
    }
