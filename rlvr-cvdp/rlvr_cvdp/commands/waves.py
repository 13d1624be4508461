"""`rlvr cvdp waves`: the waveform of a failing test of one answer."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import asdict

from rlvr import BuildContext, Problem, RlvrError, Trajectory, UnknownNameError, VerifierError
from rlvr_cvdp.commands.arguments import parser_of
from rlvr_cvdp.commands.completions import read_completion
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.launch.service import RunSettings
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.results.stage import Stage, failed_stage
from rlvr_cvdp.results.tests import TestResult
from rlvr_cvdp.sandbox import Limits, open_sandbox
from rlvr_cvdp.sandbox.choose import add_sandbox_options, judged_with, sandbox_keywords
from rlvr_cvdp.task import CvdpTask
from rlvr_cvdp.verify.reward import read_answer
from rlvr_cvdp.waves.record import FORMS, Recording, record_waves

_COPIES = 6
"""Waveforms that lie in a sandbox at the same time, at most."""


def waves(argv: list[str]) -> int:
    """Judge one answer with waves on; copies the waveforms and prints its tests."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.sample and options.completions is None:
        parser.error("--sample picks a line of --completions")
    task = CvdpTask(
        CvdpConfig(references=options.references), BuildContext(dataset=options.dataset)
    )
    problem = _problem(task, options.id)
    record: CvdpProblem = problem.payload
    answer = read_answer(record, _trajectory(task, problem, options))
    if not answer.files:
        raise VerifierError(f"{record.id}: nothing to simulate: {answer.why_none}")
    config = CvdpConfig(
        timeout_s=options.timeout_s,
        file_mb=options.file_mb,
        disk_mb=_COPIES * options.file_mb,
        warm=1,  # one start of Python for pytest and all the launches
        **sandbox_keywords(options),
    )
    recording = asyncio.run(_record(record, answer.files, config, options))
    _print(recording, as_json=options.json)
    if not recording.waves:
        raise _error_of_none(record, recording, options.test)
    return 0


async def _record(
    problem: CvdpProblem, files: Mapping[str, str], config: CvdpConfig, options: argparse.Namespace
) -> Recording:
    """Record in the sandbox that the options ask for, and name it on stderr."""
    async with open_sandbox(config) as sandbox:
        print(judged_with(sandbox), file=sys.stderr)
        return await record_waves(
            problem,
            files,
            RunSettings(
                sandbox=sandbox,
                stack=sandbox.toolchain.stack_for(problem),
                limits=Limits.of(config),
                seed=options.seed,
            ),
            out=options.out,
            test=options.test,
            form=options.format,
        )


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "waves",
        "Judge one answer with waves on and copy the waveforms of failing simulations "
        "(of the first, where none fails). For debugging: no kept verdict is read or written.",
        "waves --id cvdp_starter_bitwise_0001 --golden --out waves",
        "waves --dataset d.jsonl --id ID --completions eval.jsonl --sample 3 --out w",
        "waves --dataset d.jsonl --id ID --files my/folder --test test_reset --out w",
    )
    parser.add_argument("--references", default="", help="references, where --dataset has none")
    parser.add_argument("--id", required=True, help="the problem")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--completions",
        type=Path,
        help="JSON Lines of rlvr eval --out, of a run's trajectories/, or as for rlvr score",
    )
    source.add_argument("--golden", action="store_true", help="the reference")
    source.add_argument("--files", type=Path, help="folder with the answer's files (rtl/...)")
    parser.add_argument(
        "--sample",
        type=int,
        default=0,
        metavar="N",
        help="which answer to the problem in --completions; the first is 0 (%(default)s)",
    )
    parser.add_argument("--test", default="", help="only simulations that hold this cocotb test")
    parser.add_argument("--out", type=Path, required=True, help="folder for the waveforms")
    parser.add_argument(
        "--format", choices=FORMS, default="fst", help="vcd: readable after a timeout as well"
    )
    parser.add_argument("--seed", default="1", help="seed of the tests (%(default)s)")
    parser.add_argument(
        "--file-mb", type=int, default=512, help="largest waveform, in MB (%(default)s)"
    )
    parser.add_argument(
        "--timeout-s", type=float, default=120.0, help="CPU seconds of a process (%(default)s)"
    )
    add_sandbox_options(parser)
    return parser


def _problem(task: CvdpTask, name: str) -> Problem:
    for problem in task.problems("all"):
        if problem.id == name:
            if problem.payload.is_comprehension:
                raise UnknownNameError(f"{name} is a question: it has no simulation")
            return problem
    why = task.unsupported().get(name)
    raise UnknownNameError(
        f"the waveform of an answer to {name!r} was asked for.",
        f"found: it cannot be verified: {why}" if why else "found: no such problem",
        "try: rlvr cvdp list",
    )


def _trajectory(task: CvdpTask, problem: Problem, options: argparse.Namespace) -> Trajectory:
    if options.golden:
        reference = task.reference(problem)
        if reference is None:
            raise UnknownNameError(f"{problem.id}: the data set holds no reference")
        return reference
    if options.files is not None:
        found = {
            target: (options.files / target).read_text(encoding="utf-8", errors="replace")
            for target in problem.payload.targets
            if (options.files / target).is_file()
        }
        if not found:
            wanted = ", ".join(problem.payload.targets)
            raise UnknownNameError(f"{options.files} holds none of {wanted}")
        return Trajectory(problem_id=problem.id, files=found)
    return read_completion(options.completions, problem, options.sample)


def _print(recording: Recording, *, as_json: bool) -> None:
    tests = [test for result in recording.services for test in result.tests]
    if as_json:
        found = [
            {"service": w.service, "launch": w.launch, "failed": w.is_failed, "path": str(w.path)}
            for w in recording.waves
        ]
        print(json.dumps({"tests": [asdict(test) for test in tests], "waves": found}))
        return
    for line in _table(tests):
        print(line)
    for wave in recording.waves:
        launch = f"launch {wave.launch}" if wave.launch else "last launch"
        print(f"{wave.path}: {wave.service}, {launch}")


def _table(tests: Sequence[TestResult]) -> list[str]:
    width = max((len(test.name) for test in tests), default=0)
    return [
        f"{test.status:8} {test.service:10} launch {test.launch:<4} {test.name:{width}} "
        f"{test.sim_time_ns:12.0f} ns  {test.message.partition(chr(10))[0]}".rstrip()
        for test in tests
    ]


def _error_of_none(problem: CvdpProblem, recording: Recording, test: str) -> RlvrError:
    asked = f"waveforms of an answer to {problem.id} were asked for."
    stopped = failed_stage(
        services=recording.services, tools={s.name: s.tool for s in problem.services}
    )
    do = "rlvr score --out gives the verdict with every message of the compiler"
    if stopped is not None and stopped.stage in (Stage.OUTPUT, Stage.DISK, Stage.TIMEOUT):
        do = "a waveform larger than --file-mb ends its simulation: try a larger one"
    if stopped is not None and not any(result.launches for result in recording.services):
        found = f"no simulation ran, it was stopped at the stage {stopped.stage.value}: "
        return VerifierError(asked, f"found: {found}{stopped.why}", do)
    names = sorted({test.name for result in recording.services for test in result.tests})
    if test and names and test not in names:
        found = f"found: no simulation holds a test named {test!r}, only {', '.join(names)}"
        return UnknownNameError(asked, found, "try one of these, or leave --test out")
    return VerifierError(asked, "found: the simulations wrote none", do)
