"""A harness from a golden design: design and answer side by side, under random stimulus."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr_cvdp.hdl.clocks import Clocking
from rlvr_cvdp.hdl.names import defined_names, renamed_types
from rlvr_cvdp.hdl.ports import Header

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

_ENV = """\
SIM             = icarus
TOPLEVEL_LANG   = verilog
VERILOG_SOURCES = {sources}
TOPLEVEL        = {bench}
MODULE          = test_equivalence
PYTHONPATH      = /src
"""

_RUNNER = '''\
"""Builds golden design and answer, and runs the comparison in one launch of the simulator."""

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
        timescale=("1ns", "1ps"),
        build_args=["-u"],
        log_file="build.log",
    )
    runner.test(hdl_toplevel=top, test_module=os.environ["MODULE"])
'''

_TEST = '''\
"""Compares an answer with the golden design; bits that are X in the golden one do not matter."""

import random

import cocotb
from cocotb.triggers import Timer

{settings}

def draw(widths, held):
    """The next inputs: new, held, all zeros or ones, or one bit changed."""
    inputs = {{}}
    for name, width in widths.items():
        kind = random.random()
        top = (1 << width) - 1
        if kind < 0.6:
            inputs[name] = random.getrandbits(width)
        elif kind < 0.75:
            inputs[name] = held[name]
        elif kind < 0.9:
            inputs[name] = random.choice((0, top))
        else:
            inputs[name] = held[name] ^ (1 << random.randrange(width))
    return inputs


class Bench:
    """Drives both designs and compares them after each change."""

    def __init__(self, dut):
        self.dut = dut
        self.widths = {{name: len(getattr(dut, f"in_{{name}}")) for name in INPUTS}}
        self.inputs = dict.fromkeys(INPUTS, 0)
        self.step = self.seen = 0

    def set(self, name, value):
        getattr(self.dut, f"in_{{name}}").value = value

    async def wake(self):
        """Change every input but clocks once: `always @*` runs at no time 0."""
        for name in [*INPUTS, *RESETS]:
            old = int(getattr(self.dut, f"in_{{name}}").value)
            width = len(getattr(self.dut, f"in_{{name}}"))
            for value in (old ^ ((1 << width) - 1), old):
                self.set(name, value)
                await Timer(1, unit="ns")

    async def settle(self):
        await Timer(5, unit="ns")
        self.step += 1
        if self.seen + 1 < 1 << len(OUTPUTS):
            self.seen |= int(self.dut.known.value)
        assert str(self.dut.same.value) == "1", f"step {{self.step}}: " + ", ".join(
            f"{{name}} is {{getattr(self.dut, f'answer_{{name}}').value}}, "
            f"expected {{getattr(self.dut, f'golden_{{name}}').value}}"
            for name in OUTPUTS
        )

    async def drive(self, inputs):
        self.inputs = inputs
        for name, value in inputs.items():
            self.set(name, value)
        await self.settle()

    async def clock(self):
        names = CLOCKS if len(CLOCKS) < 2 else random.sample(CLOCKS, random.randint(1, len(CLOCKS)))
        for level in (1, 0):
            for name in names:
                self.set(name, level)
            if names:
                await self.settle()

    async def reset(self, cycles=3):
        for on in (False, True):
            for name, active in RESETS.items():
                self.set(name, active if on else 1 - active)
            await self.settle()
        for _ in range(cycles):
            await self.drive(draw(self.widths, self.inputs))
            for name in CLOCKS:
                self.set(name, 1)
            await self.settle()
            for name in CLOCKS:
                self.set(name, 0)
            await self.settle()
        for name, active in RESETS.items():
            self.set(name, 1 - active)
        await self.settle()

    async def run(self, cycles):
        for _ in range(cycles):
            await self.drive(draw(self.widths, self.inputs))
            await self.clock()

    def finish(self):
        unknown = [name for bit, name in enumerate(OUTPUTS) if not self.seen >> bit & 1]
        assert not unknown, f"the golden design never gives a value for {{unknown}}"


@cocotb.test()
async def test_ports(dut):
    """Every port has the width of the golden design's."""
    for name in [*INPUTS, *CLOCKS, *RESETS, *OUTPUTS]:
        ports = [getattr(dut, inst)[name] for inst in ("answer", "{golden}")]
        widths = [len(port) if hasattr(port, "__len__") else 1 for port in ports]
        assert widths[0] == widths[1], f"{{name}}: {{widths[0]}} bits, expected {{widths[1]}}"


@cocotb.test()
async def test_episodes(dut):
    """Random inputs from reset, several times."""
    bench = Bench(dut)
    await bench.wake()
    for _ in range(EPISODES):
        await bench.reset()
        await bench.run(CYCLES)
    bench.finish()


@cocotb.test()
async def test_interrupted(dut):
    """Resets that come at any time and last for one cycle."""
    bench = Bench(dut)
    await bench.wake()
    await bench.reset()
    for _ in range(EPISODES):
        await bench.run(random.randint(1, max(1, CYCLES // 8)))
        await bench.reset(random.randint(0, 1))


@cocotb.test()
async def test_all_inputs(dut):
    """Each combination of inputs where there is no clock and they are few, in a random order."""
    bench = Bench(dut)
    await bench.wake()
    total = 0 if CLOCKS else sum(bench.widths.values())
    if total <= 12:
        for number in random.sample(range(1 << total), 1 << total):
            inputs = {{}}
            for name, width in bench.widths.items():
                inputs[name] = number & ((1 << width) - 1)
                number >>= width
            await bench.drive(inputs)
'''


def equivalence_harness(
    golden: str,
    top: str,
    header: Header,
    clocking: Clocking,
    *,
    target: str,
    given: Sequence[str] = (),
    suffix: str,
    cycles: int,
    episodes: int,
) -> dict[str, str]:
    """
    The harness's files by path.

    Both designs are in one simulation, each file a compilation unit of its own. The names by which
    a reference from the answer would have to begin (the bench, the golden instance, all that the
    golden text defines) carry `suffix`, which cannot be guessed without that text. `given` are
    Verilog files of the context, in the order of compilation.
    """
    design = renamed_types(golden, defined_names(golden), suffix)
    bench = f"bench{suffix}"
    sources = ["/src/golden.sv", *(f"/code/{path}" for path in given), f"/code/{target}"]
    settings = _settings(header, clocking, cycles, episodes)
    test = _TEST.format(settings=settings, golden=f"golden{suffix}")
    return {
        "docker-compose.yml": COMPOSE,
        "src/.env": _ENV.format(sources=f'"{" ".join(sources)}"', bench=bench),
        "src/test_runner.py": _RUNNER,
        "src/test_equivalence.py": test,
        "src/golden.sv": f"{design.rstrip()}\n\n{_bench(top, header, bench, suffix)}",
    }


def _settings(header: Header, clocking: Clocking, cycles: int, episodes: int) -> str:
    control = {*clocking.clocks, *clocking.resets}
    lines = [
        f"INPUTS = {[port.name for port in header.named('input') if port.name not in control]}",
        f"OUTPUTS = {[port.name for port in header.named('output')]}",
        f"CLOCKS = {list(clocking.clocks)}",
        f"RESETS = {dict(clocking.resets)}",
        f"CYCLES, EPISODES = {cycles}, {episodes}",
    ]
    return "\n".join(lines) + "\n"


def _bench(top: str, header: Header, bench: str, suffix: str) -> str:
    lines = [f"module {bench};"]
    lines += [f"  localparam {name} = {text};" for name, text in header.parameters.items()]
    for port in header.named("input"):
        lines.append(f"  reg [{port.width}-1:0] in_{port.name} = 0;")
    outputs = header.named("output")
    for port in outputs:
        a, g = f"answer_{port.name}", f"golden_{port.name}"
        lines.append(f"  wire [{port.width}-1:0] {a}, {g};")
        lines.append(f"  wire same_{port.name} = {g} === ({g} ^ {a} ^ {g});")
    lines.append(f"  wire same = {' & '.join(f'same_{port.name}' for port in outputs)};")
    known = ", ".join(f"(^golden_{port.name}) !== 1'bx" for port in reversed(outputs))
    lines.append(f"  wire [{len(outputs)}-1:0] known = {{{known}}};")
    for module, name, mark in (
        (top, "answer", "answer"),
        (top + suffix, f"golden{suffix}", "golden"),
    ):
        links = [f".{port.name}(in_{port.name})" for port in header.named("input")]
        links += [f".{port.name}({mark}_{port.name})" for port in outputs]
        lines.append(f"  {module} {name} ({', '.join(links)});")
    return "\n".join([*lines, "endmodule"]) + "\n"
