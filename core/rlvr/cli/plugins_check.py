"""`rlvr plugins check NAME`: build every part of a plugin and test what it promises."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from attrs import define, field

from rlvr.assembly.configure import declare
from rlvr.assembly.prerequisites import check_prerequisites
from rlvr.border.calls import told_by
from rlvr.border.promises import problems_of
from rlvr.cli import audit
from rlvr.cli.options import add_json_flag
from rlvr.cli.output import print_json
from rlvr.cli.parser import CommandParser
from rlvr.cli.plugins_report import Report, mended_by, named, print_report, said
from rlvr.config.core import CORE_OPTIONS, RunOptions
from rlvr.config.layers import Layer, resolve
from rlvr.errors import ConfigError, PartError, PrerequisiteError
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

_HERE = "the plugin itself"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("name", metavar="PLUGIN", help="the plugin's name, as listed")
    parser.add_argument("words", nargs="*", metavar="key=value", help="an option of its parts")
    parser.add_argument("--dataset", metavar="PATH", help="data set (default: the embedded one)")
    parser.add_argument("--task", default="toy", help="problems for a reward that no task names")
    parser.add_argument("--model", default="", metavar="SPEC", help="of its backends and teachers")
    parser.add_argument(
        "--problems", type=int, default=8, metavar="N",
        help="problems of each task whose verdicts are audited (8)",
    )  # fmt: skip
    parser.add_argument(
        "--slow", type=float, default=10.0, metavar="S",
        help="seconds that building a part, listing problems or one verdict may take (10)",
    )  # fmt: skip
    parser.add_argument(
        "--set", action="append", default=[], metavar="PART.NAME=VALUE",
        help="an attribute of the part's contract, such as mine.patience=500",
    )  # fmt: skip
    add_json_flag(parser)


def main(args: argparse.Namespace, host: PluginHost) -> int:
    """Check, print a line a part and each finding; exit codes: docs/exit-codes.md."""
    setup(verbosity=args.verbosity)
    Registry(host).active(args.name)
    if importlib.util.find_spec("pytest") is None:
        raise PrerequisiteError(
            f"the plugin {args.name} was to be checked.",
            "found: pytest, which the contract kit needs, is not installed",
            pip_install("rlvr[testing]"),
        )
    report = _checked(args, host)
    if args.json:
        print_json(report)
    else:
        print_report(args, report)
    return report.exit_code


def _checked(args: argparse.Namespace, host: PluginHost) -> Report:
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
    report = Report()
    for kind in ("algorithms", "checks", "commands"):
        for spec in getattr(host, kind)():
            if spec.provider == args.name:
                _check_record(spec, offered, report)
    if not report.findings:
        check_prerequisites(host, args.name)
    parts = offered.parts()
    sound = [spec for spec in parts if _builds(spec, offered, report, args.slow)]
    for spec in [spec for spec in sound if isinstance(spec, RewardSpec)]:
        if (task := offered.task_of(spec)) in parts and task not in sound:
            report.lack(named(spec), f"{named(task)} gives it no problems: see there")
            sound.remove(spec)
    _run_kit(offered, sound, report)
    for spec in sound:
        match spec:
            case TaskSpec() if offered.reward_of(spec) is not None:
                _audit(spec, offered, args, report)
            case RewardSpec() if offered.task_of(spec).provider != args.name:  # else with its task
                _audit(spec, offered, args, report)
    return report


def _builds(spec: PartSpec, offered: Offered, report: Report, slow_s: float) -> bool:
    """Build the part with its default options, and list the problems of a task."""
    part, begun = named(spec), time.perf_counter()
    asked = f"{part} was to be built with its default options."
    try:
        with tempfile.TemporaryDirectory() as folder:
            made = offered.build(spec, Path(folder))
        if isinstance(spec, TaskSpec):
            asked = "the reward that it names is installed."
            if spec.reward:
                Registry(offered.host).find("reward", spec.reward)
            asked = f"{part} was to list its problems."
            if not problems_of(made, "all"):
                raise PartError("Task.problems('all') yields none")
    except Exception as error:  # the plugin border
        if refusal := offered.unfit(spec, error):
            report.refuse(part, refusal)
        else:
            report.add(part, asked, said(error), mended_by(error, spec.target))
        return False
    report.built_s[part] = spent_s = time.perf_counter() - begun
    report.hold(part)
    if spent_s > slow_s:
        report.add(
            part,
            f"building it and listing its problems may take {slow_s:g} s.",
            f"{spent_s:.1f} s",
            f"leave work in {spec.target} for when it is needed, or raise --slow",
        )
    return True


def _check_record(spec: Any, offered: Offered, report: Report) -> None:
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
                declare(records, [registry.find(kind, name) for kind, name in names.items()])
                known = {k: v for k, v in spec.values.items() if k.partition(".")[0] in records}
                resolve(records, [Layer(part, known)])
            case Check():
                asked = "it gives a CheckResult."
                told_by(spec, spec.target, CheckResult, "a CheckResult")
            case CommandSpec():
                asked = "it can be imported and called."
                if not callable(load_object(spec.target, spec.provider)):
                    raise TypeError(f"{spec.target} cannot be called")
    except Exception as error:  # the plugin border
        target = f"{part} in {offered.module}" if isinstance(spec, AlgorithmSpec) else spec.target
        report.add(part, asked, said(error), mended_by(error, target))
    else:
        report.hold(part)


@define
class _Kit:
    """A plugin of pytest: gives it the contracts to run, and takes down what became of them."""

    offered: Offered
    parts: Sequence[PartSpec]
    report: Report
    contracts: Mapping[str, Any] = field(factory=dict, init=False)

    def pytest_configure(self) -> None:
        self.contracts = self.offered.contracts(self.parts)
        module = sys.modules["rlvr_contracts"] = ModuleType("rlvr_contracts")
        vars(module).update(self.contracts)

    def _part(self, nodeid: str) -> tuple[str, str]:
        spec = vars(self.contracts[nodeid.split("::")[1]]).get("spec")
        return (named(spec), spec.target) if spec else (_HERE, self.offered.module)

    def pytest_runtest_logreport(self, report: Any) -> None:
        part, _ = self._part(report.nodeid)
        if report.skipped:
            reason = report.longrepr[2].removeprefix("Skipped: ")
            self.report.skip(part, reason, report.nodeid.split("::")[-1])
        elif report.passed and report.when == "call":
            self.report.hold(part)

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        part, target = self._part(node.nodeid)
        error = call.excinfo.value
        spec = vars(self.contracts[node.nodeid.split("::")[1]]).get("spec")
        if spec is not None and (refusal := self.offered.unfit(spec, error)):
            self.report.refuse(part, refusal)
            return
        promise = (node.obj.__doc__ or node.name).strip().splitlines()[0]
        do = mended_by(error, target)
        contract = self.contracts[node.nodeid.split("::")[1]].__mro__[1]
        if own := [n for n, v in vars(contract).items() if type(v) is bool]:
            do += f"; or say how it differs: --set {part.split()[1]}.NAME=VALUE ({', '.join(own)})"
        self.report.add(part, promise, said(error), do)


def _run_kit(offered: Offered, parts: Sequence[PartSpec], report: Report) -> None:
    import pytest

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_ADDOPTS", raising=False)  # "-n 2" would run it out of our sight
        Path(folder, "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        file = Path(folder, f"test_{Path(folder).name}.py")  # modules of one name are one
        file.write_text("from rlvr_contracts import *\n", encoding="utf-8")
        words = ["-p", "no:terminal", "-p", "no:cacheprovider", "--import-mode=importlib"]
        words += ["--basetemp", f"{folder}/files"]
        kit = _Kit(offered, parts, report)
        status = pytest.main(["-c", f"{folder}/pytest.ini", *words, str(file)], plugins=[kit])
    if status == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"the contract kit did not run: pytest ended with {status!r}")


def _audit(
    spec: TaskSpec | RewardSpec, offered: Offered, args: argparse.Namespace, report: Report
) -> None:
    """Run `rlvr audit` on a few problems: the reference is right, nothing is not, none wavers."""
    part = named(spec)
    task = spec if isinstance(spec, TaskSpec) else offered.task_of(spec)
    ids = [problem.id for problem in offered.build(task).problems("all")][: args.problems]
    words = ["-q", "--task", task.full_name, "--only", json.dumps(ids)]
    words += ["--mutants", "5", "--repeats", "2"]
    if isinstance(spec, RewardSpec):
        words += ["--reward", spec.full_name]
    if args.dataset and task.provider == args.name:
        words += ["--dataset", args.dataset]
    parser = CommandParser(prog="rlvr audit")
    audit.configure(parser)
    command = f"rlvr audit --task {task.full_name}"
    try:
        file, done, has_failed = audit.audited(
            parser.parse_args([*words, *args.words]), offered.host
        )
    except (ConfigError, PrerequisiteError) as error:
        report.refuse(part, error)
        return
    except Exception as error:  # the plugin border
        do = mended_by(error, spec.target)
        report.add(part, f"{command} was to be run.", said(error), do)
        return
    for name in done:
        record = file.problems[name]
        report.hold(part, "hold" if not record["reasons"] else "problem")
        if record["reasons"]:
            report.add(
                part,
                "the reference is judged right, garbage and mutants wrong, the same each time.",
                "; ".join(record["reasons"]),
                f"mend {spec.target}; see {command} --only {name}",
            )
        verdicts = sum(k["judged"] + k["failed"] for k in record["kinds"].values()) + 4
        if (each_s := record["seconds"] / verdicts) > args.slow:
            report.add(
                part,
                f"a verdict may take {args.slow:g} s.",
                f"{each_s:.1f} s on average (problem {name})",
                f"make {spec.target} faster, or raise --slow",
            )
    if has_failed:
        report.add(
            part,
            "the verifier runs on references, empty answers and mutants.",
            "too many verifications could not run",
            f"see {command}",
        )
