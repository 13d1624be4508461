"""
Replays the recorded inputs of a harness's tests with other data, beside the reference.

Clocks, resets, handshakes, modes and narrow inputs do the same as in the tests. A wide input that
the tests vary gets another value at each of its changes, between the least and the greatest value
in the tests. The longest part without a reset, and all after it, is repeated. So the replay does
nothing that a request leaves open and no test does (a start while busy, a reset in the middle, an
unused code, a division by zero).

If the reference's own outputs of one bit differ from the recording, a test might have continued in
another way: the replay of a design with a clock ends there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from rlvr_cvdp.datasets.compose import parse_services
from rlvr_cvdp.hdl.clocks import Clocking
from rlvr_cvdp.hdl.ports import Header
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.waves.ports import Trace

_MOST_STEPS = 20_000
_LAUNCHES = 2
_DRAWS = 3
_WIDE = 5
_REPEATED = 4
"""A narrower input, and one whose values come back more often than that, is a code or a mode."""

_TEST = '''\
"""Compares an answer with the golden design under the tests' own inputs with other data."""

import json
import os
import random

import cocotb
from cocotb.triggers import Timer

CLOCKS, OUTPUTS = {clocks}, {outputs}


@cocotb.test()
async def test_replay(dut):
    """Up to {steps} steps; the values of bits that are X in the golden design do not matter."""
    with open("/src/replay.json") as file:
        replay = json.load(file)[int(os.environ["RLVR_REPLAY"])]
    random.seed(os.environ["RLVR_DRAW"] + os.environ["RLVR_SEED"])
    steps, start, done = replay["steps"], replay["start"], 0
    while steps and done < {steps}:
        for inputs, outputs in steps[start if done else 0 :]:
            for group in (True, False):
                changed = [name for name in inputs if (name in CLOCKS) is group]
                for name in changed:
                    port = getattr(dut, f"in_{{name}}")
                    value, top = int(inputs[name], 16), (1 << len(port)) - 1
                    if name in replay["varied"] and random.random() < 0.8:
                        least, most = replay["varied"][name]
                        value = random.randint(int(least, 16), int(most, 16) if most else top)
                    port.value = value & top
                if changed:
                    await Timer(2, unit="ns")
            assert str(dut.same.value) == "1", f"step {{done}}: " + ", ".join(
                f"{{name}} is {{getattr(dut, f'answer_{{name}}').value}}, "
                f"expected {{getattr(dut, f'golden_{{name}}').value}}"
                for name in OUTPUTS
            )
            done += 1
            seen = {{name: str(getattr(dut, f"golden_{{name}}").value) for name in outputs}}
            if CLOCKS and any(seen[name] in "01" and seen[name] != outputs[name] for name in seen):
                return
'''


def replay_problem(
    twin: CvdpProblem, header: Header, clocking: Clocking, traces: Sequence[Trace]
) -> CvdpProblem | None:
    """
    The problem of `twin_problem` with the tests' inputs; None where there are none to vary.

    Args:
        twin: The problem judged by random inputs beside the reference.
        header: Of the reference's top module.
        clocking: Of its inputs.
        traces: What stood at its ports, in each launch of the tests.
    """
    inputs = [port.name for port in header.named("input")]
    outputs = [port.name for port in header.named("output")]
    longest = sorted(traces, key=lambda trace: -sum(map(len, trace.changes.values())))
    replays = [_replay(trace, inputs, outputs, clocking) for trace in longest[:_LAUNCHES]]
    if not any(replay["varied"] for replay in replays):
        return None
    test = _TEST.format(clocks=list(clocking.clocks), outputs=outputs, steps=_MOST_STEPS // 4)
    launches = "".join(
        f"    runner.test(hdl_toplevel=top, test_module=os.environ['MODULE'],\n"
        f"                extra_env={{'RLVR_REPLAY': '{number}', 'RLVR_DRAW': '{draw}'}})\n"
        for number in range(len(replays))
        for draw in range(_DRAWS)
    )
    runner = twin.harness["src/test_runner.py"]
    harness = {
        **twin.harness,
        "src/test_runner.py": runner[: runner.index("    runner.test(")] + launches,
        "src/test_equivalence.py": test,
        "src/replay.json": json.dumps(replays),
    }
    return evolve(twin, harness=harness, services=parse_services(harness))


def _replay(
    trace: Trace, inputs: Sequence[str], outputs: Sequence[str], clocking: Clocking
) -> Mapping[str, Any]:
    """Each step's inputs and the outputs of one bit after it; where to begin again; what varies."""
    control = {*clocking.clocks, *clocking.resets}
    at: dict[int, dict[str, str]] = {}
    for name, changes in trace.changes.items():
        for time, bits in changes:
            at.setdefault(time, {})[name] = bits
    single = [name for name in outputs if trace.widths[name] == 1]
    steps: list[tuple[dict[str, str], dict[str, str]]] = []
    held: dict[str, str] = {}
    turns = [0]
    for _, changed in sorted(at.items())[:_MOST_STEPS]:
        driven = {
            name: hex(int(bits, 2))
            for name, bits in changed.items()
            if name in inputs and not {*bits} - {"0", "1"}
        }
        held |= {name: changed[name] for name in single if name in changed}
        known = {name: bit for name, bit in held.items() if bit in "01"}
        if driven or not steps:
            steps.append((driven, known))
        else:
            steps[-1] = (steps[-1][0], known)
        if clocking.resets.keys() & driven.keys():
            turns.append(len(steps) - 1)
    varied = {
        name: bounds for name in inputs if name not in control and (bounds := _bounds(trace, name))
    }
    # The longest part without a change of a reset: tests may end with a reset.
    ends = [*turns[1:], len(steps)]
    start = max(zip(turns, ends, strict=True), key=lambda part: part[1] - part[0])[0]
    return {"steps": steps, "start": start, "varied": varied}


def _bounds(trace: Trace, name: str) -> tuple[str, str] | None:
    """The least and greatest value of an input that is data; "" for the greatest there is."""
    width = trace.widths[name]
    known = [int(bits, 2) for _, bits in trace.changes[name] if not {*bits} - {"0", "1"}]
    if width < _WIDE or len({*known}) < 2 or len(known) > _REPEATED * len({*known}):
        return None
    return hex(min(known)), "" if max(known) == (1 << width) - 1 else hex(max(known))
