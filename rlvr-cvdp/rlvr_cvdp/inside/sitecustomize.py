"""Runs at the start of every Python inside the sandbox: seeds, and old names for cocotb 2.

Harnesses of CVDP v1.0.x were written for development versions of cocotb 2.0 and use names that
2.0 dropped. Nothing is imported here that the harness does not import itself: each patch waits
for its module. Only names that are missing are added, so harnesses that need none see no change.
Standard library only; never imported outside the sandbox.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import random
import sys
import time
import types
from collections.abc import Callable, Mapping
from typing import Any

_DAY_S = 86400
_seed_with = random.seed


def _seed() -> int:
    return int(os.environ.get("RLVR_SEED", "1"))


def _fix_seeds() -> None:
    """`random.seed()` and `random.seed(time.time())` mean the run's seed."""

    def seed(a: Any = None, version: int = 2) -> None:
        if a is None or (isinstance(a, (int, float)) and abs(a - time.time()) < _DAY_S):
            a = _seed()
        _seed_with(a, version)

    random.seed = seed
    reseed()


def reseed() -> None:
    """Begin the sequence that the environment's seed asks for."""
    _seed_with(_seed())


def _add(owner: Any, **names: Any) -> None:
    for name, value in names.items():
        if not hasattr(owner, name):
            setattr(owner, name, value)


def _patch_cocotb(module: Any) -> None:
    _add(module, coroutine=lambda function: function)
    _add(module, fork=lambda coroutine: module.start_soon(coroutine))


def _patch_logic(module: Any) -> None:
    _add(
        module.Logic,
        integer=property(int),
        signed_integer=property(lambda self: -int(self)),
        binstr=property(str),
        to_unsigned=lambda self: int(self),
        to_signed=lambda self: -int(self),
    )


def _patch_logic_array(module: Any) -> None:
    _add(
        module.LogicArray,
        integer=property(lambda self: self.to_unsigned()),
        signed_integer=property(lambda self: self.to_signed()),
        binstr=property(str),
    )


def _patch_clock(module: Any) -> None:
    """An odd number of steps a period: the shorter half is high, instead of an error."""
    from fractions import Fraction

    from cocotb.utils import get_sim_steps

    init = module.Clock.__init__

    def __init__(self: Any, signal: Any, period: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("period_high") is None:
            unit: Any = kwargs.get("units") or kwargs.get("unit") or (args[0] if args else "step")
            try:
                steps = int(get_sim_steps(period, unit))
            except (TypeError, ValueError):
                steps = 0
            if steps > 1 and steps % 2:
                kwargs["period_high"] = Fraction(period) * Fraction(steps // 2, steps)
        init(self, signal, period, *args, **kwargs)

    module.Clock.__init__ = __init__


def _patch_result(module: Any) -> None:
    class TestComplete(Exception):
        """Base of what ends a test."""

    class TestFailure(TestComplete, AssertionError):
        """The test failed."""

    class TestError(TestComplete, RuntimeError):
        """The test is broken."""

    for kind in (TestComplete, TestFailure, TestError):
        module.__dict__.setdefault(kind.__name__, kind)


def _patch_runner(module: Any) -> None:
    """`defines={"NAME": None}` defines NAME as nothing."""
    literal = module._as_sv_literal
    module._as_sv_literal = lambda value: "" if value is None else literal(value)


def _binary() -> Any:
    module: Any = types.ModuleType("cocotb.binary")
    module.BinaryValue = importlib.import_module("cocotb.types").LogicArray
    return module


def _patch_reporter(module: Any) -> None:
    """Report the results that a simulation writes to the program that started it as well."""
    write = module.XUnitReporter.write

    def reported(self: Any) -> None:
        import rlvr_record

        rlvr_record.report("results", module.ET.tostring(self.results, encoding="unicode"))
        write(self)
        rlvr_record.end_report()

    module.XUnitReporter.write = reported


def _patch_regression(module: Any) -> None:
    """Report the numbers that cocotb prints at the end as well."""
    log = module.RegressionManager._log_test_summary

    def logged(self: Any) -> None:
        import rlvr_record

        rlvr_record.report("summary", [self.passed, self.failures])
        log(self)

    module.RegressionManager._log_test_summary = logged


_MOVED: Mapping[str, Callable[[], Any]] = {
    "cocotb.runner": lambda: importlib.import_module("cocotb_tools.runner"),
    "cocotb.sim_time_utils": lambda: importlib.import_module("cocotb.utils"),
    "cocotb.binary": _binary,
}
_PATCHES: Mapping[str, Callable[[Any], None]] = {
    "cocotb": _patch_cocotb,
    "cocotb.types._logic": _patch_logic,
    "cocotb.types._logic_array": _patch_logic_array,
    "cocotb.clock": _patch_clock,
    "cocotb.result": _patch_result,
    "cocotb_tools.runner": _patch_runner,
}

_REPORTING: Mapping[str, Callable[[Any], None]] = {
    "cocotb._xunit_reporter": _patch_reporter,
    "cocotb.xunit_reporter": _patch_reporter,
    "cocotb.regression": _patch_regression,
}


class _Moved(importlib.abc.Loader):
    """A module that lives under another name now."""

    def create_module(self, spec: Any) -> Any:
        return _MOVED[spec.name]()

    def exec_module(self, module: Any) -> None:
        pass


def _patched(loader: Any, patch: Callable[[Any], None]) -> Callable[[Any], None]:
    """What runs a module's code, and then the patch."""
    run = loader.exec_module

    def exec_module(module: Any) -> None:
        run(module)
        patch(module)

    return exec_module


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(
        self,
        patches: Mapping[str, Callable[[Any], None]],
        moved: Mapping[str, Callable[[], Any]],
    ) -> None:
        self._patches, self._moved = patches, moved

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name in self._moved:
            return importlib.machinery.ModuleSpec(name, _Moved())
        if name in self._patches:
            spec: Any = importlib.machinery.PathFinder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader.exec_module = _patched(spec.loader, self._patches[name])
            return spec
        return None


_fix_seeds()
if os.environ.get("RLVR_COCOTB") == "2" and os.environ.get("RLVR_SHIM", "1") == "1":
    sys.meta_path.insert(0, _Finder({**_REPORTING, **_PATCHES}, _MOVED))
else:
    sys.meta_path.insert(0, _Finder(_REPORTING, {}))
if os.environ.get("RLVR_ZYGOTE"):
    import rlvr_zygote

    rlvr_zygote.serve()
