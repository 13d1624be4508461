"""Watching a signal in time: edge detection, debouncing, pulse stretching."""

from __future__ import annotations

import random

from ..clocking import draw_clocking
from ..draft import Draft
from ..drafting import clocked, inp, out, reg
from ..style import span


def edge_detector(rng: random.Random) -> Draft:
    """A pulse on rising, falling or any edges of each bit, at once or a cycle later."""
    clocking = draw_clocking(rng)
    width = rng.randint(1, 8)
    kind = rng.choice(("rising", "falling", "any"))
    later = rng.random() < 0.5
    start = rng.choice((0, (1 << width) - 1))
    d, y = rng.choice(("d", "sig")), rng.choice(("pulse", "edge_o"))
    ones = (1 << width) - 1
    verilog = {"rising": f"{d} & ~prev", "falling": f"~{d} & prev", "any": f"{d} ^ prev"}[kind]
    python = {
        "rising": f"i['{d}'] & ~s.prev",
        "falling": f"~i['{d}'] & s.prev",
        "any": f"i['{d}'] ^ s.prev",
    }[kind]
    what = {"rising": "d is 1 and prev is 0", "falling": "d is 0 and prev is 1"}.get(
        kind, "d and prev differ"
    )
    what = what.replace("d ", f"{d} ", 1)
    resets = [f"prev <= {width}'d{start};"]
    moves = [f"prev <= {d};"]
    if later:
        resets.append(f"{y} <= {width}'d0;")
        moves.append(f"{y} <= {verilog};")
        how = f"{y} is a register: at each edge of the clock a bit of {y} becomes 1 if"
    else:
        how = f"{y} is combinational: a bit of {y} is 1 while"
    head = [f"reg {span(width)}prev;"]
    if not later:
        head.append(f"assign {y} = {verilog};")
    return clocked(
        "edge_detector",
        rng,
        clocking,
        params={"width": width, "kind": kind, "later": later, "start": start},
        difficulty="easy",
        names=("edge_detect", "edge_finder", "change"),
        ports=(inp(d, width), reg(y, width) if later else out(y, width)),
        resets=f"sets prev to {start}" + (f" and {y} to 0" if later else ""),
        says=f"prev is {d} of the previous clock edge, bit by bit. "
        f"{how} {what} for this bit, else 0.",
        body=(*head, *clocking.process(resets, moves)),
        reset=(f"s.prev, s.y = {start}, 0",),
        step=(f"s.y = ({python}) & {ones}", f"s.prev = i['{d}']"),
        outputs=(f"return {{'{y}': {'s.y' if later else f'({python}) & {ones}'}}}",),
        tests={
            "test_toggle": f"[{{'{d}': k % 2 * {ones}}} for k in range(8)]",
            "test_steady": f"[{{'{d}': {ones}}}] * 4 + [{{'{d}': 0}}] * 4",
        },
    )


def debouncer(rng: random.Random) -> Draft:
    """An output that follows its input after several equal samples."""
    clocking = draw_clocking(rng)
    need = rng.randint(2, 12)
    width = (need - 1).bit_length()
    start, inverts = rng.choice((0, 1)), rng.random() < 0.3
    d, q = rng.choice(("d", "btn")), rng.choice(("q", "clean"))
    shown = f"{'inverted ' if inverts else ''}state"
    return clocked(
        "debouncer",
        rng,
        clocking,
        params={"need": need, "start": start, "inverts": inverts},
        difficulty="hard",
        names=("debouncer", "debounce", "settle"),
        ports=(inp(d), out(q)),
        resets=f"sets state to {start} and the count to 0",
        says=f"At an edge where {d} equals state, the count becomes 0. Otherwise the count goes "
        f"up by 1, but at the {need}th such edge in a row state takes {d} and the count becomes "
        f"0. {q} is the {shown}.",
        body=(
            "reg state;",
            f"reg {span(width)}n;",
            *clocking.process(
                [f"state <= 1'b{start};", f"n <= {width}'d0;"],
                [
                    f"if ({d} == state) n <= {width}'d0;",
                    f"else if (n == {width}'d{need - 1}) begin",
                    f"  state <= {d};",
                    f"  n <= {width}'d0;",
                    "end",
                    f"else n <= n + {width}'d1;",
                ],
            ),
            f"assign {q} = {'~' if inverts else ''}state;",
        ),
        reset=(f"s.state, s.n = {start}, 0",),
        step=(
            f"s.n = 0 if i['{d}'] == s.state else s.n + 1",
            f"if s.n == {need}:",
            f"    s.state, s.n = i['{d}'], 0",
        ),
        outputs=(f"return {{'{q}': s.state{' ^ 1' if inverts else ''}}}",),
        tests={
            "test_steady": f"[{{'{d}': 1}}] * {2 * need} + [{{'{d}': 0}}] * {2 * need}"
            f" + [{{'{d}': 1}}] * {need}",
            "test_glitches": f"[{{'{d}': v}} for n in ({need - 1}, {need}, {need + 1}, 1, {need})"
            f" for v in [1] * n + [0] * ({need} - 1) + [1] + [0] * n]",
            "test_too_short": f"([{{'{d}': {1 - start}}}] * {need - 1} + [{{'{d}': {start}}}]) * 3",
        },
        between_resets=f"[{{'{d}': {1 - start}}}] * ({need} - turn % 2)",
    )


def pulse_stretcher(rng: random.Random) -> Draft:
    """A trigger makes a pulse of a number of cycles; a new trigger may extend it."""
    clocking = draw_clocking(rng)
    length = rng.randint(2, 15)
    width = length.bit_length()
    again, trig_on, out_on = rng.random() < 0.5, rng.choice((0, 1)), rng.choice((0, 1))
    trig, y = rng.choice(("trig", "start")), rng.choice(("busy", "y"))
    test = f"{'' if trig_on else '!'}{trig}"
    if not again:
        test = f"({test}) && n == {width}'d0" if not trig_on else f"{trig} && n == {width}'d0"
    rule = (
        f"{trig} = {trig_on} sets n to {length}, also while n is not 0"
        if again
        else f"{trig} = {trig_on} sets n to {length}, but only if n is 0"
    )
    return clocked(
        "pulse_stretcher",
        rng,
        clocking,
        params={"length": length, "again": again, "trig_on": trig_on, "out_on": out_on},
        difficulty="medium",
        names=("stretcher", "one_shot", "pulse_gen"),
        ports=(inp(trig), out(y)),
        resets="sets the counter n to 0",
        says=f"{rule}. Otherwise n goes down by 1 until it is 0. {y} is {out_on} while n is not "
        f"0 and {1 - out_on} when n is 0.",
        body=(
            f"reg [{width - 1}:0] n;",
            *clocking.process(
                [f"n <= {width}'d0;"],
                [
                    f"if ({test}) n <= {width}'d{length};",
                    f"else if (n != {width}'d0) n <= n - {width}'d1;",
                ],
            ),
            f"assign {y} = n {'!=' if out_on else '=='} {width}'d0;",
        ),
        reset=("s.n = 0",),
        step=(
            f"if i['{trig}'] == {trig_on}{'' if again else ' and s.n == 0'}:",
            f"    s.n = {length}",
            "else:",
            "    s.n = max(s.n - 1, 0)",
        ),
        outputs=(f"return {{'{y}': {'int' if out_on else '1 - int'}(s.n > 0)}}",),
        tests={
            "test_one_pulse": f"[{{'{trig}': {trig_on}}}] + [{{'{trig}': {1 - trig_on}}}]"
            f" * {length + 3}",
            "test_second_trigger": f"([{{'{trig}': {trig_on}}}] + [{{'{trig}': {1 - trig_on}}}]"
            f" * {length // 2}) * 2 + [{{'{trig}': {1 - trig_on}}}] * {length + 3}",
            "test_idle": f"vectors(6, {trig}={1 - trig_on})",
        },
        weights={trig: 0.15 if trig_on else 0.85},
    )


FAMILIES = (edge_detector, debouncer, pulse_stretcher)
