"""State that is written and read: lane enables, register files, accumulators, record values."""

from __future__ import annotations

import random

from ..clocking import draw_clocking
from ..draft import Draft
from ..drafting import clocked, inp, reg


def lane_register(rng: random.Random) -> Draft:
    """A word whose lanes are written one by one."""
    clocking = draw_clocking(rng)
    lanes, size = rng.randint(2, 4), rng.randint(2, 8)
    width = lanes * size
    active, swapped = rng.choice((0, 1)), rng.random() < 0.4
    start = rng.choice((0, (1 << width) - 1))
    be, d, q = rng.choice(("be", "we")), rng.choice(("d", "wdata")), rng.choice(("q", "word"))
    spans = [f"[{(k + 1) * size - 1}:{k * size}]" for k in range(lanes)]
    bits = [lanes - 1 - k if swapped else k for k in range(lanes)]
    mask, every = (1 << size) - 1, (1 << lanes) - 1
    only_0 = 1 << bits[0] if active else every ^ 1 << bits[0]
    return clocked(
        "lane_register",
        rng,
        clocking,
        params={
            "lanes": lanes,
            "size": size,
            "active": active,
            "swapped": swapped,
            "start": start,
        },
        difficulty="medium",
        names=("lane_reg", "byte_reg", "masked_reg"),
        ports=(inp(be, lanes), inp(d, width), reg(q, width)),
        resets=f"sets {q} to all {'ones' if start else 'zeros'}",
        says=f"{q} has {lanes} lanes of {size} bits, lane 0 lowest. Lane k takes the same lane of "
        f"{d} when {be}[{f'{lanes - 1}-k' if swapped else 'k'}] is {active}; otherwise it holds.",
        body=clocking.process(
            [f"{q} <= {{{width}{{1'b{int(start > 0)}}}}};"],
            [
                f"if ({'' if active else '!'}{be}[{bit}]) {q}{part} <= {d}{part};"
                for bit, part in zip(bits, spans, strict=True)
            ],
        ),
        reset=(f"s.q = {start}",),
        step=(
            f"for k, bit in enumerate({bits}):",
            f"    if i['{be}'] >> bit & 1 == {active}:",
            f"        m = {mask} << k * {size}",
            f"        s.q = s.q & ~m | i['{d}'] & m",
        ),
        outputs=(f"return {{'{q}': s.q}}",),
        tests={
            "test_all_lanes": f"vectors(6, {be}={every * active})",
            "test_no_lane": f"vectors(6, {be}={every * (1 - active)})",
            "test_lane_0": f"vectors(6, {be}={only_0})",
        },
    )


def register_file(rng: random.Random) -> Draft:
    """Four or eight words, one write port, one read port, perhaps a constant word 0."""
    clocking = draw_clocking(rng)
    size, width = rng.choice((2, 3)), rng.randint(2, 8)
    count = 1 << size
    fixed, active = rng.random() < 0.5, rng.choice((0, 1))
    const = rng.randint(0, (1 << width) - 1) if fixed else 0
    we, q = rng.choice(("we", "wen")), rng.choice(("q", "rdata"))
    constant = f"{const} if i['ra'] == 0 else " if fixed else ""
    note = f" Reading word 0 always gives {const}." if fixed else ""
    read = f"ra == {size}'d0 ? {width}'d{const} : mem[ra]" if fixed else "mem[ra]"
    return clocked(
        "register_file",
        rng,
        clocking,
        params={"size": size, "width": width, "fixed": fixed, "const": const, "active": active},
        difficulty="hard",
        names=("regfile", "reg_bank", "scratch"),
        ports=(inp(we), inp("wa", size), inp("wd", width), inp("ra", size), reg(q, width)),
        resets=f"sets {q} to 0 and leaves the memory as it is",
        says=f"A memory of {count} words. At each edge without reset {q} takes the old word ra, "
        f"and when {we} is {active}, word wa takes wd.{note}",
        body=(
            f"reg [{width - 1}:0] mem [0:{count - 1}];",
            *clocking.process(
                [f"{q} <= {width}'d0;"],
                [
                    f"{q} <= {read};",
                    f"if ({'' if active else '!'}{we}) mem[wa] <= wd;",
                ],
            ),
        ),
        reset=(
            f"s.mem = getattr(s, 'mem', None) or [None] * {count}",
            "s.q = 0",
        ),
        step=(
            f"s.q = {constant}s.mem[i['ra']]",
            f"if i['{we}'] == {active}:",
            "    s.mem[i['wa']] = i['wd']",
        ),
        outputs=(f"return {{'{q}': s.q}} if s.q is not None else {{}}",),
        tests={
            "test_write_read": f"[dict(wa=k, wd=3 - k & 3, ra=k, {we}={active})"
            f" for k in range({count})]"
            f" + [dict(wa=0, wd=0, ra=k, {we}={1 - active}) for k in range({count})]",
            "test_same_word": f"[dict(wa=1, wd=k & 3, ra=1, {we}={active}) for k in range(9)]",
        },
        weights={we: 0.6 if active else 0.4},
    )


def accumulator(rng: random.Random) -> Draft:
    """A running sum or difference, with a clear that may add at once and an overflow flag."""
    clocking = draw_clocking(rng)
    width, extra = rng.randint(2, 6), rng.randint(1, 4)
    size = width + extra
    minus, loads = rng.random() < 0.35, rng.random() < 0.5
    active = rng.choice((0, 1))
    clear, acc = rng.choice(("clear", "first")), rng.choice(("acc", "total"))
    sign = "-" if minus else "+"
    fresh, loaded = ("i['d']", "d") if loads else ("0", f"{size}'d0")
    return clocked(
        "accumulator",
        rng,
        clocking,
        params={"width": width, "size": size, "minus": minus, "loads": loads, "active": active},
        difficulty="easy",
        names=("accumulator", "summer", "acc_reg"),
        ports=(inp("en"), inp(clear), inp("d", width), reg(acc, size)),
        resets=f"sets {acc} to 0",
        says=f"When en is {1 - active}, {acc} holds. Otherwise, if {clear} is 1, {acc} becomes "
        f"{'d' if loads else '0'}, and if not, {acc} becomes {acc} {'minus' if minus else 'plus'} "
        f"d, modulo 2^{size}.",
        body=clocking.process(
            [f"{acc} <= {size}'d0;"],
            [
                f"if ({'' if active else '!'}en) begin",
                f"  if ({clear}) {acc} <= {loaded};",
                f"  else {acc} <= {acc} {sign} d;",
                "end",
            ],
        ),
        reset=("s.acc = 0",),
        step=(
            f"if i['en'] == {active}:",
            f"    s.acc = {fresh} if i['{clear}'] else (s.acc {sign} i['d']) % {1 << size}",
        ),
        outputs=(f"return {{'{acc}': s.acc}}",),
        tests={
            "test_adds": f"vectors(20, en={active}, {clear}=0)",
            "test_clear": f"vectors(5, en={active}, {clear}=0)"
            f" + vectors(2, en={active}, {clear}=1)",
            "test_holds": f"vectors(3, en={active}, {clear}=0) + vectors(6, en={1 - active})",
        },
        weights={"en": 0.8 if active else 0.2, clear: 0.12},
    )


def record_keeper(rng: random.Random) -> Draft:
    """The largest or smallest word so far and how often the record changed."""
    clocking = draw_clocking(rng)
    width, size = rng.randint(3, 8), rng.randint(2, 4)
    largest, active, ties = rng.random() < 0.5, rng.choice((0, 1)), rng.random() < 0.4
    valid, best = rng.choice(("valid", "en")), rng.choice(("best", "m"))
    start = 0 if largest else (1 << width) - 1
    sign = (">" if largest else "<") + ("=" if ties else "")
    words = f"{'greater' if largest else 'less'} than {'or equal to ' if ties else ''}{best}"
    return clocked(
        "record_keeper",
        rng,
        clocking,
        params={"width": width, "size": size, "largest": largest, "active": active, "ties": ties},
        difficulty="medium",
        names=("record", "peak", "extreme"),
        ports=(inp(valid), inp("d", width), reg(best, width), reg("n", size)),
        resets=f"sets {best} to {start} and n to 0",
        says=f"d is unsigned. At an edge where {valid} is {active} and d is {words}, {best} takes "
        "d and n goes up by 1 and wraps. Otherwise both hold.",
        body=clocking.process(
            [f"{best} <= {width}'d{start};", f"n <= {size}'d0;"],
            [
                f"if ({'' if active else '!'}{valid} && (d {sign} {best})) begin",
                f"  {best} <= d;",
                f"  n <= n + {size}'d1;",
                "end",
            ],
        ),
        reset=(f"s.best, s.n = {start}, 0",),
        step=(
            f"if i['{valid}'] == {active} and i['d'] {sign} s.best:",
            f"    s.best, s.n = i['d'], (s.n + 1) % {1 << size}",
        ),
        outputs=(f"return {{'{best}': s.best, 'n': s.n}}",),
        tests={
            "test_staircase": f"[{{'d': k if {largest} else {(1 << width) - 1} - k,"
            f" '{valid}': {active}}} for k in range({min(1 << width, 24)})]",
            "test_ignored": f"vectors(8, {valid}={1 - active})",
            "test_ties": f"[{{'d': {(1 << width) // 2}, '{valid}': {active}}}] * 5",
        },
        weights={valid: 0.6 if active else 0.4},
    )


FAMILIES = (lane_register, register_file, accumulator, record_keeper)
