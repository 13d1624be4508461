"""`rlvr plugins check NAME`: build every part of a plugin and test what it promises."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.assembly.configure import declare
from rlvr.assembly.prerequisites import check_prerequisites
from rlvr.border.calls import told_by
from rlvr.border.promises import problems_of
from rlvr.cli import audit
from rlvr.cli.options import add_json_flag, from_on
from rlvr.cli.parser import CommandParser
from rlvr.cli.plugins_deadline import Deadline, HungError
from rlvr.cli.plugins_kit import run_kit
from rlvr.cli.plugins_report import Report, named, print_report
from rlvr.cli.watchdog import Watchdog, add_limit_flag, seconds
from rlvr.cli.watched_child import descendants, kill
from rlvr.config.core import CORE_OPTIONS, RunOptions
from rlvr.config.layers import Layer, resolve
from rlvr.errors import ConfigError, PartError, PrerequisiteError
from rlvr.heartbeat import abandon_threads
from rlvr.install import pip_install
from rlvr.log import setup
from rlvr.plugins.host import PluginHost
from rlvr.plugins.registry import Registry
from rlvr.plugins.resolve import load_object
from rlvr.specs import (
    AlgorithmSpec,
    Check,
    CheckResult,
    CommandSpec,
    PartSpec,
    RewardSpec,
    TaskSpec,
)

if TYPE_CHECKING:
    from rlvr.testing.offered import Offered
    from rlvr.verifier_audit.findings import AuditFile


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("name", metavar="PLUGIN", help="the plugin's name, as listed")
    parser.add_argument("words", nargs="*", metavar="key=value", help="an option of its parts")
    parser.add_argument("--dataset", metavar="PATH", help="data set (default: the embedded one)")
    parser.add_argument("--task", default="toy", help="problems for a reward that no task names")
    parser.add_argument("--model", default="", metavar="SPEC", help="of its backends and teachers")
    parser.add_argument(
        "--problems", type=from_on(1), default=8, metavar="N",
        help="problems of each task whose verdicts are audited (8)",
    )  # fmt: skip
    parser.add_argument(
        "--slow", type=seconds, default=10.0, metavar="S",
        help="seconds that building a part, listing problems or one verdict may take (10)",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], metavar="PART.NAME=VALUE",
        help="an attribute of the part's contract, such as mine.patience=500",
    )  # fmt: skip
    add_limit_flag(parser, 120.0, "a part that does not return is given up")
    add_json_flag(parser)


def main(args: argparse.Namespace, host: PluginHost, watchdog: Watchdog, folder: str) -> int:
    """
    Check, print a line a part and each finding; exit codes: docs/exit-codes.md.

    Temporary files lie in `folder` if the process may be killed: its parent removes them.
    """
    if watchdog.pipe is not None:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
    setup(verbosity=args.verbosity)
    Registry(host).active(args.name)
    if importlib.util.find_spec("pytest") is None:
        raise PrerequisiteError(
            f"the plugin {args.name} was to be checked.",
            "found: pytest, which the contract kit needs, is not installed",
            pip_install("rlvr[testing]"),
        )
    before = descendants(os.getpid())
    limit = Deadline(args.limit, args.slow, report := Report(), watchdog)
    with watchdog.silenced():
        _check(args, host, report, limit)
    watchdog.end()
    if report.hung or limit.changing:  # what it left running is not waited for
        kill(descendants(os.getpid()) - before)
        abandon_threads()
    return print_report(args, report)


def given_up(args: argparse.Namespace, step: tuple[str, str, str, Report], why: str) -> int:
    """Print the report of a check that had to be ended in a step: exit 7."""
    part, asked, target, report = step
    report.hang(part, asked, why, target)
    report.lack(part, "the check ended here: its other promises, and later parts, were not tried")
    return print_report(args, report)


def _check(args: argparse.Namespace, host: PluginHost, report: Report, limit: Deadline) -> None:
    import pytest  # noqa: F401  # before rlvr.testing: its assertions then show values

    from rlvr.testing.offered import Offered, attributes_of

    dataset = Path(args.dataset) if args.dataset else None
    offered = Offered(
        plugin=args.name,
        host=host,
        dataset=dataset,
        model=args.model,
        task=args.task,
        overrides=args.words,
        attributes=attributes_of(args.set),
    )
    offered.check_overrides()
    for kind in ("algorithms", "checks", "commands"):
        for spec in getattr(host, kind)():
            if spec.provider == args.name:
                _check_record(spec, offered, report, limit)
    if not report.findings:
        asked = "they say what is missing."
        with limit.on("the checks of the machine", asked, offered.module):
            check_prerequisites(host, args.name)
    parts = offered.parts()
    sound = [spec for spec in parts if _builds(spec, offered, report, limit)]
    lost = [s for s in parts if isinstance(s, TaskSpec) and s not in sound]
    lost.sort(key=lambda task: offered.reward_of(task) is not None)
    for spec in [spec for spec in sound if isinstance(spec, RewardSpec)]:
        task = offered.task_of(spec)
        if task not in parts and lost and offered.reward_of(lost[0]) is None:
            task = lost[0]  # that names no reward there is: it may mean this one
        if task in lost:
            report.lack(named(spec), f"{named(task)} gives it no problems: see there")
            sound.remove(spec)
    run_kit(offered, sound, report, limit)
    for spec in [spec for spec in sound if named(spec) not in report.hung]:
        match spec:
            case TaskSpec() if (reward := offered.reward_of(spec)) is not None:
                judges = {named(spec), named(reward)}
            case RewardSpec() if (task := offered.task_of(spec)).provider != args.name:
                judges = {named(spec)}  # a reward of the plugin's own task was audited with it
            case _:
                continue
        if judges & {finding.part for finding in report.findings}:
            report.lack(named(spec), "its verdicts are not audited before the above is mended")
        else:
            _audit(spec, offered, args, report, limit)


def _builds(spec: PartSpec, offered: Offered, report: Report, limit: Deadline) -> bool:
    """Build the part with its default options, and list the problems of a task."""
    part, begun = named(spec), time.perf_counter()
    asked = f"{part} was to be built with its default options."
    try:
        with tempfile.TemporaryDirectory() as folder, limit.on(part, asked, spec.target):
            made = offered.build(spec, Path(folder))
        if isinstance(spec, TaskSpec):
            asked = "the reward that it names is installed."
            if spec.reward:
                Registry(offered.host).find("reward", spec.reward, spec.provider)
            asked = f"{part} was to list its problems."
            with limit.on(part, asked, spec.target):
                problems = problems_of(made, "all")
            if not problems:
                raise PartError("Task.problems('all') yields none")
    except HungError as error:
        report.hang(part, asked, error, spec.target)
        return False
    except Exception as error:  # the plugin border
        if refusal := offered.unfit(spec, error):
            report.refuse(part, refusal)
        else:
            report.add_raised(part, asked, error, spec.target)
        return False
    report.built_s[part] = spent_s = time.perf_counter() - begun
    report.hold(part)
    if spent_s > limit.note_s:
        report.add(
            part,
            f"building it and listing its problems may take {limit.note_s:g} s.",
            f"{spent_s:.1f} s",
            f"leave work in {spec.target} for when it is needed, or raise --slow",
        )
    return True


def _check_record(spec: Any, offered: Offered, report: Report, limit: Deadline) -> None:
    """Hold an algorithm, a check or a command to what its record says."""
    part = named(spec)
    try:
        match spec:
            case AlgorithmSpec():
                asked = "the parts it names are installed, and its values are values of options."
                records: dict[str, type] = dict(CORE_OPTIONS)
                names = {kind: getattr(spec, kind) for kind in ("sampler", "advantage", "loss")}
                names["checkpointer"] = RunOptions().checkpointer
                registry = Registry(offered.host)
                own = [registry.find(kind, n, spec.provider) for kind, n in names.items()]
                declare(records, own)
                known = {k: v for k, v in spec.values.items() if k.partition(".")[0] in records}
                resolve(records, [Layer(part, known)])
            case Check():
                asked = "it gives a CheckResult."
                with limit.on(part, asked, spec.target):
                    told_by(spec, spec.target, CheckResult, "a CheckResult")
            case CommandSpec():
                asked = "it can be imported, and called with a list of words."
                with limit.on(part, asked, spec.target):
                    found = load_object(spec.target, spec.provider)
                if not callable(found):
                    raise TypeError(f"{spec.target} cannot be called")
                inspect.signature(found).bind([])
    except HungError as error:
        report.hang(part, asked, error, spec.target)
    except Exception as error:  # the plugin border
        target = f"{part} in {offered.module}" if isinstance(spec, AlgorithmSpec) else spec.target
        report.add_raised(part, asked, error, target)
    else:
        report.hold(part)


def _audit(
    spec: TaskSpec | RewardSpec, offered: Offered, args: argparse.Namespace, report: Report,
    limit: Deadline,
) -> None:  # fmt: skip
    """Run `rlvr audit` on a few problems: the reference is right, nothing is not, none wavers."""
    part = named(spec)
    task = spec if isinstance(spec, TaskSpec) else offered.task_of(spec)
    command, asked = f"rlvr audit --task {task.full_name}", "the answers to a problem are judged."
    try:
        with limit.on(part, asked, spec.target):
            ids = [problem.id for problem in offered.build(task).problems("all")]
            file, done, has_failed = _audited(task, spec, ids, offered, args, limit)
    except HungError as error:
        report.hang(part, asked, error, spec.target)
        return
    except (ConfigError, PrerequisiteError) as error:
        report.refuse(part, error)
        return
    except Exception as error:  # the plugin border
        report.add_raised(part, f"{command} was to be run.", error, spec.target)
        return
    report.audited[part] = len(done), len(ids)
    for name in done:
        record = file.problems[name]
        report.hold(part, "hold" if not record["reasons"] else "problem")
        if record["reasons"]:
            report.add(
                part,
                "the reference is judged right, garbage and mutants wrong, the same each time.",
                f"problem {name}: {'; '.join(record['reasons'])}",
                f"mend {spec.target}; see {command} --only {name}",
            )
        verdicts = sum(k["judged"] + k["failed"] for k in record["kinds"].values()) + 4
        if (each_s := record["seconds"] / verdicts) > args.slow:
            report.add(
                part,
                f"a verdict may take {args.slow:g} s.",
                f"{each_s:.1f} s on average (problem {name})",
                f"make {spec.target} faster, or raise --slow",
                f"{part}: slow verdicts",
            )
    if has_failed:
        report.add(
            part,
            "the verifier runs on references, empty answers and mutants.",
            "too many verifications could not run",
            f"see {command}",
        )


def _audited(
    task: TaskSpec, spec: PartSpec, ids: Sequence[str], offered: Offered, args: argparse.Namespace,
    limit: Deadline,
) -> tuple[AuditFile, list[str], bool]:  # fmt: skip
    words = ["-q", "--task", task.full_name, "--only", json.dumps(ids[: args.problems])]
    words += ["--mutants", "5", "--repeats", "2"]
    if isinstance(spec, RewardSpec):
        words += ["--reward", spec.full_name]
    if args.dataset and task.provider == args.name:
        words += ["--dataset", args.dataset]
    parser = CommandParser(prog="rlvr audit")
    audit.configure(parser)

    def told() -> None:
        if limit.has_fired:  # the verifier took the interruption for a failure to judge
            raise HungError(f"an answer was not judged within {limit.limit_s:g} s")
        limit.beat()

    return audit.audited(parser.parse_args([*words, *args.words]), offered.host, told)
