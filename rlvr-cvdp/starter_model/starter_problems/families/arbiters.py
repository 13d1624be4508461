"""Arbiters: fixed priority and round robin."""

from __future__ import annotations

import random

from ..clocking import draw_clocking
from ..draft import Draft
from ..drafting import clocked, inp, out, reg


def fixed_arbiter(rng: random.Random) -> Draft:
    """A registered one-hot grant in a drawn order of priority."""
    clocking = draw_clocking(rng)
    count = rng.randint(3, 4)
    order = rng.sample(range(count), count)
    low, active = rng.random() < 0.3, rng.choice((0, 1))
    req, gnt = rng.choice(("req", "r")), rng.choice(("gnt", "grant"))
    en = rng.choice(("en", "open"))
    words = ", ".join(map(str, order))
    chain = [f"else if ({'!' if low else ''}{req}[{k}]) {gnt} <= {count}'d{1 << k};" for k in order]
    return clocked(
        "fixed_arbiter",
        rng,
        clocking,
        params={"order": words, "low": low, "active": active},
        difficulty="medium",
        names=("arbiter", "fixed_arb", "prio_arb"),
        ports=(inp(req, count), inp(en), reg(gnt, count)),
        resets=f"sets {gnt} to 0",
        says=f"At each edge, if {en} is {1 - active}, {gnt} becomes 0. Otherwise {gnt} becomes "
        f"one-hot for the first bit of {req} that is {int(not low)}, in the order {words}; "
        "0 if there is none.",
        body=clocking.process(
            [f"{gnt} <= {count}'d0;"],
            [
                f"if ({'!' if active else ''}{en}) {gnt} <= {count}'d0;",
                *chain,
                f"else {gnt} <= {count}'d0;",
            ],
        ),
        reset=("s.gnt = 0",),
        step=(
            f"r = i['{req}']{f' ^ {(1 << count) - 1}' if low else ''}",
            f"asked = [k for k in {order} if r >> k & 1]",
            f"s.gnt = 1 << asked[0] if asked and i['{en}'] == {active} else 0",
        ),
        outputs=(f"return {{'{gnt}': s.gnt}}",),
        tests={
            "test_single": f"[{{'{req}': 1 << k{f' ^ {(1 << count) - 1}' if low else ''},"
            f" '{en}': {active}}} for k in range({count})]",
            "test_all_requests": f"[{{'{req}': k, '{en}': {active}}} for k in range({1 << count})]",
            "test_closed": f"vectors(3, {en}={active}) + vectors(4, {en}={1 - active})",
        },
        weights={en: 0.8 if active else 0.2},
    )


def round_robin(rng: random.Random) -> Draft:
    """A combinational one-hot grant that moves on after each granted cycle."""
    clocking = draw_clocking(rng)
    count = rng.randint(2, 8)
    start, waits = rng.randint(0, count - 1), rng.random() < 0.5
    req, gnt = rng.choice(("req", "r")), rng.choice(("gnt", "grant"))
    full = (1 << count) - 1
    fresh = full & ~((1 << start) - 1)
    search = (
        f"order = [(s.p + n) % {count} for n in range({count})]",
        f"k = next((k for k in order if i['{req}'] >> k & 1), None)",
    )
    acknowledged = " and i['ack']" if waits else ""
    test = f"({gnt} != {count}'d0)"
    test = f"if (ack && {test})" if waits else f"if {test}"
    ports = (inp(req, count), *((inp("ack"),) if waits else ()), out(gnt, count))
    return clocked(
        "round_robin",
        rng,
        clocking,
        params={"count": count, "start": start, "waits": waits},
        difficulty="hard",
        names=("round_robin", "rr_arb", "fair_arb"),
        ports=ports,
        resets=f"sets the start p to {start}",
        says=f"{gnt} is combinational and one-hot: the first bit set in {req}, searching upwards "
        f"from bit p and going on at bit 0 after bit {count - 1}; 0 if none is set. At an edge "
        f"with a grant{' and ack at 1' if waits else ''}, p becomes the bit after the granted one.",
        body=(
            f"reg [{count - 1}:0] mask;",
            f"wire [{count - 1}:0] above, pick;",
            f"assign above = {req} & mask;",
            f"assign pick = (above != {count}'d0) ? above : {req};",
            f"assign {gnt} = pick & (~pick + {count}'d1);",
            *clocking.process(
                [f"mask <= {count}'d{fresh};"],
                [f"{test} mask <= ~({gnt} | ({gnt} - {count}'d1));"],
            ),
        ),
        reset=(f"s.p = {start}",),
        step=(
            *search,
            f"if k is not None{acknowledged}:",
            f"    s.p = (k + 1) % {count}",
        ),
        outputs=(*search, f"return {{'{gnt}': 0 if k is None else 1 << k}}"),
        tests={
            "test_all_request": f"vectors({2 * count}, {req}={full}{', ack=1' if waits else ''})",
            "test_single": f"[{{**v, '{req}': 1 << k}} for v in vectors(4)"
            f" for k in range({count})]",
            "test_none": f"vectors(3, {req}=0)",
        },
        weights={"ack": 0.7},
    )


FAMILIES = (fixed_arbiter, round_robin)
