"""The cocotb harness of a draft: one simulator launch, several tests, a model written in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import Factory, frozen

from .clocking import Clocking
from .style import Port


@frozen(kw_only=True)
class CombChecks:
    """
    Checks of a combinational module.

    ``expected`` are Python statements that end in a return of {output: value}; ``i`` holds the
    inputs. ``tests`` maps a test's name to a Python expression for its input vectors.
    """

    expected: Sequence[str]
    tests: Mapping[str, str] = Factory(dict)
    weights: Mapping[str, float] = Factory(dict)


@frozen(kw_only=True)
class ClockedChecks:
    """
    Checks of a clocked module.

    ``reset``, ``step`` and ``outputs`` are Python statements over the state ``s`` and the inputs
    ``i``; ``outputs`` may leave out an output while it is undefined. ``weights`` gives the odds
    that a one-bit input is 1. ``between_resets`` are the input vectors of round
    ``turn`` in the test that resets again and again.
    """

    clocking: Clocking
    reset: Sequence[str]
    step: Sequence[str]
    outputs: Sequence[str]
    tests: Mapping[str, str] = Factory(dict)
    weights: Mapping[str, float] = Factory(dict)
    between_resets: str = "vectors(turn + 9)"


COMPOSE = """\
services:
  direct:
    image: __OSS_SIM_IMAGE__
    volumes:
      - ./src/:/src/:ro
    working_dir: /code/rundir
    env_file: ./src/.env
    command: pytest -s -o cache_dir=/rundir/harness/.cache /src/test_runner.py -v
"""

ENV = """\
SIM             = icarus
TOPLEVEL_LANG   = verilog
VERILOG_SOURCES = /code/{target}
TOPLEVEL        = {name}
MODULE          = test_{name}
PYTHONPATH      = /src
"""

RUNNER = '''\
"""Builds the design and runs its cocotb tests, in one launch of the simulator."""

import os

from cocotb_tools.runner import get_runner


def test_runner():
    top = os.environ["TOPLEVEL"]
    runner = get_runner(os.environ.get("SIM", "icarus"))
    runner.build(
        sources=os.environ["VERILOG_SOURCES"].split(),
        hdl_toplevel=top,
        always=True,
        clean=True,
        timescale=("1ns", "1ns"),
        log_file="build.log",
    )
    runner.test(hdl_toplevel=top, test_module=os.environ["MODULE"])
'''

SHARED = '''

def vectors(count, **fixed):
    """Random inputs, the same in every run; one in eight is a corner."""
    rng = random.Random(f"{count} {sorted(fixed)}")
    drawn = []
    for _ in range(count):
        i = {}
        for name, width in INPUTS.items():
            top = (1 << width) - 1
            if width == 1:
                i[name] = int(rng.random() < WEIGHTS.get(name, 0.5))
            else:
                i[name] = rng.choice((0, top)) if rng.random() < 0.125 else rng.randint(0, top)
        drawn.append({**i, **fixed})
    return drawn


def compare(dut, wanted, context):
    for name, value in wanted.items():
        got = getattr(dut, name).value
        assert got.is_resolvable, f"{name} is {got}, expected {value} ({context})"
        assert int(got) == value, f"{name} is {int(got)}, expected {value} ({context})"


@cocotb.test()
async def test_ports(dut):
    """Every port exists and has its width."""
    for name, width in PORTS.items():
        port = getattr(dut, name)
        found = len(port) if hasattr(port, "__len__") else 1
        assert found == width, f"{name} is {found} bits wide, expected {width}"
'''

COMB = """

async def check(dut, sequence):
    for i in sequence:
        for name, value in i.items():
            getattr(dut, name).value = value
        await Timer(1, unit="step")
        compare(dut, expected(i), i)
"""

CLOCKED = '''

async def drive(dut, i, in_reset):
    getattr(dut, RESET).value = RESET_ON if in_reset else 1 - RESET_ON
    for name, value in i.items():
        getattr(dut, name).value = value
    await Timer(1, unit="step")


async def set_clock(dut, level):
    getattr(dut, CLOCK).value = level
    await Timer(1, unit="step")


async def power_up(dut):
    """Reset the design with some inputs; give the model's state."""
    await set_clock(dut, 1 - ACTIVE)
    some = vectors(1)[0]
    await drive(dut, some, True)
    await set_clock(dut, ACTIVE)
    s = SimpleNamespace()
    reset(s)
    compare(dut, outputs(s, some), "after reset")
    await set_clock(dut, 1 - ACTIVE)
    return s


async def run(dut, sequence, s=None):
    s = s or await power_up(dut)
    for cycle, i in enumerate(sequence):
        await drive(dut, i, False)
        compare(dut, outputs(s, i), f"cycle {cycle} before the edge, {i}")
        await set_clock(dut, ACTIVE)
        step(s, i)
        compare(dut, outputs(s, i), f"cycle {cycle} after the edge, {i}")
        await set_clock(dut, 1 - ACTIVE)
        compare(dut, outputs(s, i), f"cycle {cycle} after the other edge, {i}")
    return s


@cocotb.test()
async def test_reset_holds(dut):
    """While reset is on, clock edges change nothing."""
    s = await power_up(dut)
    for i in vectors(6):
        await drive(dut, i, True)
        await set_clock(dut, ACTIVE)
        compare(dut, outputs(s, i), "in reset")
        await set_clock(dut, 1 - ACTIVE)


@cocotb.test()
async def test_first_cycles(dut):
    """The first cycles after reset."""
    await run(dut, vectors(6))
'''

MIDWAY = '''

@cocotb.test()
async def test_reset_midway(dut):
    """Reset comes between two edges: at once if asynchronous, at the edge otherwise."""
    s = await power_up(dut)
    for turn in range(8):
        before = <between_resets>
        s = await run(dut, before, s)
        for i in vectors(3):
            await drive(dut, i, True)
            if RESET_IS_ASYNC:
                reset(s)
            compare(dut, outputs(s, i), "reset before the edge")
            await set_clock(dut, ACTIVE)
            reset(s)
            compare(dut, outputs(s, i), "reset after the edge")
            await set_clock(dut, 1 - ACTIVE)


@cocotb.test()
async def test_random(dut):
    """Many random cycles."""
    await run(dut, vectors(240))
'''


def harness_files(
    name: str, target: str, ports: Sequence[Port], checks: CombChecks | ClockedChecks
) -> dict[str, str]:
    """Harness files by path: compose file, environment, runner and tests."""
    return {
        "docker-compose.yml": COMPOSE,
        "src/.env": ENV.format(name=name, target=target),
        "src/test_runner.py": RUNNER,
        f"src/test_{name}.py": _test_text(name, ports, checks),
    }


def _test_text(name: str, ports: Sequence[Port], checks: CombChecks | ClockedChecks) -> str:
    control = set()
    clocked = isinstance(checks, ClockedChecks)
    if isinstance(checks, ClockedChecks):
        control = {checks.clocking.clock, checks.clocking.reset}
    inputs = {p.name: p.width for p in ports if p.direction == "input" and p.name not in control}
    outputs = {p.name: p.width for p in ports if p.direction == "output"}
    extra = "".join(f', "{name}": 1' for name in sorted(control))
    ports_line = f"PORTS = {{**INPUTS, **OUTPUTS{extra}}}"
    lines = [f'"""Checks {name} against a model of its specification."""', "", "import random"]
    lines += ["from types import SimpleNamespace"] if clocked else []
    lines += ["", "import cocotb", "from cocotb.triggers import Timer", ""]
    lines += [
        f"INPUTS = {inputs}",
        f"OUTPUTS = {outputs}",
        ports_line,
        f"WEIGHTS = {dict(checks.weights)}",
    ]
    if isinstance(checks, ClockedChecks):
        c = checks.clocking
        lines += [f'CLOCK, ACTIVE = "{c.clock}", {int(not c.is_falling)}']
        reset = f'"{c.reset}", {int(not c.is_low)}, {c.is_async}'
        lines += [f"RESET, RESET_ON, RESET_IS_ASYNC = {reset}"]
        lines += _function("reset(s)", checks.reset)
        lines += _function("step(s, i)", checks.step)
        lines += _function("outputs(s, i)", checks.outputs)
        midway = MIDWAY.replace("<between_resets>", checks.between_resets)
        directed = "".join(_directed(n, e, "run") for n, e in checks.tests.items())
        return "\n".join(lines) + "\n" + SHARED + CLOCKED + directed + midway
    lines += _function("expected(i)", checks.expected)
    bits = sum(inputs.values())
    tests = {"test_zeros": "[dict.fromkeys(INPUTS, 0)]", "test_few": "vectors(3)"}
    tests["test_walking_one"] = (
        "[{**dict.fromkeys(INPUTS, 0), n: 1 << b} for n, w in INPUTS.items() for b in range(w)]"
    )
    tests.update(checks.tests)
    if bits > 8:
        tests["test_random"] = "vectors(250)"
    else:
        split = "k >> sum(list(INPUTS.values())[:j]) & (1 << w) - 1"
        tests["test_all_inputs"] = (
            f"[{{n: {split} for j, (n, w) in enumerate(INPUTS.items())}}"
            f" for k in range({1 << bits})]"
        )
    directed = "".join(_directed(n, e, "check") for n, e in tests.items())
    return "\n".join(lines) + "\n" + SHARED + COMB + directed


def _function(head: str, body: Sequence[str]) -> list[str]:
    return ["", "", f"def {head}:", *(f"    {line}" for line in body)]


def _directed(name: str, expression: str, runner: str) -> str:
    return f"\n\n@cocotb.test()\nasync def {name}(dut):\n    await {runner}(dut, {expression})\n"
