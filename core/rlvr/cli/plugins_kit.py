"""The contract kit as a run of pytest within `rlvr plugins check`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from attrs import define, field
from pluggy import HookimplMarker

from rlvr.border.calls import label, spec_of
from rlvr.cli.plugins_deadline import Deadline, HungError
from rlvr.cli.plugins_report import Report, named
from rlvr.errors import PartError, PluginError
from rlvr.plugins import author_error
from rlvr.plugins.host import PluginHost
from rlvr.plugins.registry import Registry
from rlvr.specs import PartSpec

if TYPE_CHECKING:
    from rlvr.testing.offered import Offered

pytest_hook = HookimplMarker("pytest")
HERE = "the plugin itself"
_LIBRARIES = {".cache", ".config", ".local"}
"""Folders that libraries make in an empty home."""
_MOST_PRINTED = 100_000
"""Characters that a part may print while one promise is tried."""


@define
class _Kit:
    """A plugin of pytest: gives it the contracts to run, and takes down what became of them."""

    offered: Offered
    parts: Sequence[PartSpec]
    report: Report
    limit: Deadline
    contracts: Mapping[str, Any] = field(factory=dict, init=False)
    misjudging: set[str] = field(factory=set, init=False)
    printing: set[str] = field(factory=set, init=False)

    def pytest_configure(self, config: Any) -> None:
        config.option.tbstyle = "value"  # the report tells of a failure: nobody reads its lines
        asked = "the problems of its tasks are listed for the contract kit."
        try:
            with self.limit.on(
                HERE, asked, self.offered.module
            ):  # within pytest: it makes assertions show values
                self.contracts = self.offered.contracts(self.parts)
        except HungError as error:
            self.report.hang(HERE, asked, error, self.offered.module)
        module = sys.modules["rlvr_contracts"] = ModuleType("rlvr_contracts")
        vars(module).update(self.contracts)

    def _part(self, nodeid: str) -> tuple[str, str]:
        spec = vars(self.contracts[nodeid.split("::")[1]]).get("spec")
        return (named(spec), spec.target) if spec else (HERE, self.offered.module)

    def pytest_runtest_setup(self, item: Any) -> None:
        part, _ = self._part(item.nodeid)
        if part in self.report.hung | self.misjudging:
            import pytest

            from rlvr.testing.tools import NOT_CHECKED

            why = (
                "it did not return above"
                if part in self.report.hung
                else "its verdict failed above"
            )
            pytest.skip(f"{NOT_CHECKED}{why}; its other promises were not tried")

    @pytest_hook(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Generator[None, Any, Any]:
        part, target = self._part(item.nodeid)
        asked = _promise(item)
        try:
            with self.limit.on(part, asked, target):
                return (yield)
        except HungError as error:
            self.report.hang(part, asked, error, target)
            raise _Overdue from None
        except Exception as error:
            try:
                str(error)
            except Exception:  # the plugin border: its __str__ is the plugin's; pytest fails at it
                raise PartError(author_error.said(error)) from None
            raise

    def pytest_runtest_logreport(self, report: Any) -> None:
        part, _ = self._part(report.nodeid)
        printed = len(report.capstdout) + len(report.capstderr)
        if printed > _MOST_PRINTED and part not in self.printing:
            self.printing.add(part)
            self.report.warn(
                part,
                f"it printed {printed} characters while one promise was tried; a run shows "
                "what parts print: leave it out, or log it with logging.debug",
            )
        if report.skipped:
            reason = report.longrepr[2].removeprefix("Skipped: ")
            self.report.skip(part, reason, report.nodeid.split("::")[-1])
        elif report.passed and report.when == "call":
            self.report.hold(part)

    def pytest_warning_recorded(self, warning_message: Any, nodeid: str) -> None:
        from rlvr.testing.process import KitWarning  # here: only the check pays for it

        if issubclass(warning_message.category, KitWarning):
            self.report.warn(self._part(nodeid)[0], str(warning_message.message))

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        import pytest

        from rlvr.testing.contract import NoVerdictError  # here: it needs pytest

        part, target = self._part(node.nodeid)
        error = call.excinfo.value
        if isinstance(error, _Overdue):
            return
        if isinstance(error, pytest.fail.Exception):
            text = str(error.msg).replace("DID NOT RAISE", "it did what it is to refuse with")
            error = AssertionError(text)
        spec = vars(self.contracts[node.nodeid.split("::")[1]]).get("spec")
        if spec is not None and (refusal := self.offered.unfit(spec, error)):
            self.report.refuse(part, refusal)
            return
        do = cause = ""
        if (judge := spec_of(getattr(node.instance, "judge", None), "reward")) is not None:
            self.misjudging.add(named(judge))
            cause = f"verdicts of the {named(judge)}"
            is_judges = isinstance(error, PartError) and str(error).startswith(
                label(judge, "reward")
            )
            if is_judges or isinstance(error, NoVerdictError):
                part, target = named(judge), judge.target
            else:
                target = f"{judge.target}, or {target}, whose answers it judges"
        contract = self.contracts[node.nodeid.split("::")[1]].__mro__[1]
        if own := [n for n, v in vars(contract).items() if type(v) is bool]:
            do += f"; or say how it differs: --set {part.split()[1]}.NAME=VALUE ({', '.join(own)})"
        self.report.add_raised(part, _promise(node), error, target, do, cause)


class _Overdue(Exception):
    """The promise of a part that did not return: it is in the report already."""


def _promise(test: Any) -> str:
    """What a test of a contract holds: the first line of its docstring."""
    return str(test.obj.__doc__ or test.name).strip().splitlines()[0]


def _run_anew(offered: Offered, parts: Sequence[PartSpec], report: Report, limit: Deadline) -> None:
    """Compare what the parts give in this process with what they give in another one."""
    asked = "a new process gets the same again: a resumed run goes on where it was."
    specs, here = {named(spec): spec for spec in parts}, dict[str, Any]()
    for part, spec in specs.items():
        if "refused" in report.counts.get(part, {}):
            continue
        try:
            with limit.on(part, asked, spec.target):
                given = offered.repeatable(spec)
        except HungError as error:
            report.hang(part, asked, error, spec.target)
        except Exception as error:  # the plugin border
            report.add_raised(part, asked, error, spec.target)
        else:
            here |= {} if given is None else {part: given}
    if not here:
        return
    module = parts[0].target.partition(":")[0]
    try:
        with limit.on(HERE, asked, module):
            there = offered.repeated_anew([*here])
    except HungError as error:
        report.hang(HERE, asked, error, module)
        return
    except ChildProcessError as error:
        report.add(HERE, asked, error, f"mend {module}")
        return
    for part, given in here.items():
        anew = there.get(part) or []
        pairs = zip(given, anew, strict=False)
        differs = [_apart(str(a), str(b)) for a, b in pairs if a != b]
        if len(given) != len(anew):
            differs.append(f"{len(given)} here, {len(anew)} there")
        if not differs:
            report.hold(part)
            continue
        target = specs[part].target
        do = f"mend {target}: hash(), the order of a set, time and process id are others there"
        report.add(part, asked, differs[0], do)


def _apart(here: str, there: str) -> str:
    """Two texts from a little before the place where they part."""
    letters = enumerate(zip(here, there, strict=False))
    at = max(0, next((n for n, (a, b) in letters if a != b), len(here)) - 40)
    return f"{'...' * bool(at)}{here[at:][:150]} here, {there[at:][:150]} there"


def _warn_of_a_taken_name(spec: Any, host: PluginHost, report: Report) -> None:
    try:
        Registry(host).find(spec.kind, spec.name)
    except PluginError as error:
        report.warn(named(spec), f"where these are installed, a command refuses it: {error}")


def _warn_of_taken_commands(offered: Offered, report: Report) -> None:
    from rlvr.cli.main import COMMANDS  # here: it imports the module of this command

    top = [command for command in offered.host.commands() if command.is_top]
    others = [command.name for command in top if command.provider != offered.plugin]
    taken = {*COMMANDS, *(plugin.name for plugin in offered.host.plugins), *others}
    for command in top:
        if command.provider == offered.plugin and command.name in taken:
            text = f"`rlvr {command.name}` is something else already: only `rlvr {offered.plugin} "
            report.warn(named(command), f"{text}{command.name}` calls it")


def _names(place: str) -> set[str]:
    return {*os.listdir(place)} if os.path.isdir(place) else set()


def run_kit(offered: Offered, parts: Sequence[PartSpec], report: Report, limit: Deadline) -> None:
    """Run the contracts of the plugin's module and of the parts; findings go to the report."""
    import pytest

    places = {"the working folder": os.getcwd(), "the home folder": os.path.expanduser("~")}
    if limit.watchdog.pipe is not None:  # then it is the check's own
        places["the folder of temporary files"] = tempfile.gettempdir()
    before = {where: _names(place) for where, place in places.items()}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTEST_ADDOPTS", raising=False)  # "-n 2" would run it out of our sight
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the contracts need none of them
        Path(folder, "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        file = Path(folder, f"test_{Path(folder).name}.py")  # modules of one name are one
        file.write_text("from rlvr_contracts import *\n", encoding="utf-8")
        words = [f"-pno:{name}" for name in ("terminal", "cacheprovider", "faulthandler")]
        words += ["--import-mode=importlib"]
        words += ["--basetemp", f"{folder}/files"]
        words += ["-W", "always::rlvr.testing.process.KitWarning"]
        kit = _Kit(offered, parts, report, limit)
        status = pytest.main(["-c", f"{folder}/pytest.ini", *words, str(file)], plugins=[kit])
    if status == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    is_done = status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if not is_done and not (status == pytest.ExitCode.NO_TESTS_COLLECTED and HERE in report.hung):
        raise RuntimeError(f"the contract kit did not run: pytest ended with {status!r}")
    for where, place in places.items():
        if left := sorted(_names(place) - before[where] - _LIBRARIES):
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            report.warn(
                HERE,
                f"the check left {', '.join(left[:3])}{more} in {where}; a part is to write into "
                "the folder of the run, or into a temporary one that it removes",
            )
    for spec in [*offered.host.algorithms(), *Registry(offered.host).parts()]:
        if spec.provider == offered.plugin:
            _warn_of_a_taken_name(spec, offered.host, report)
    _warn_of_taken_commands(offered, report)
    if not report.findings:  # a new process is for what holds in one
        _run_anew(offered, parts, report, limit)
