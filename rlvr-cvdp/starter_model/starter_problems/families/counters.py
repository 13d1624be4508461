"""Counters: free running, modulo with a flag, loadable."""

from __future__ import annotations

import random

from ..clocking import draw_clocking
from ..draft import Draft
from ..drafting import clocked, inp, out, reg


def counter(rng: random.Random) -> Draft:
    """Up or down by a constant step, with an enable and a reset value."""
    clocking = draw_clocking(rng)
    width = rng.randint(2, 8)
    up, active = rng.random() < 0.5, rng.choice((0, 1))
    by = rng.choice((1, 1, 2, 3))
    start = rng.choice((0, 0, rng.randint(1, (1 << width) - 1)))
    q, en = rng.choice(("count", "q")), rng.choice(("en", "enable"))
    sign = "+" if up else "-"
    return clocked(
        "counter",
        rng,
        clocking,
        params={
            "width": width,
            "step": (by if up else -by) % (1 << width),
            "active": active,
            "start": start,
        },
        difficulty="easy",
        names=("counter", "count_reg", "step_counter"),
        ports=(inp(en), reg(q, width)),
        resets=f"sets {q} to {start}",
        says=f"When {en} is {active}, {q} counts {'up' if up else 'down'} by {by} and wraps; "
        "otherwise it holds.",
        body=clocking.process(
            [f"{q} <= {width}'d{start};"],
            [f"if ({'' if active else '!'}{en}) {q} <= {q} {sign} {width}'d{by};"],
        ),
        reset=(f"s.q = {start}",),
        step=(f"if i['{en}'] == {active}:", f"    s.q = (s.q {sign} {by}) % {1 << width}"),
        outputs=(f"return {{'{q}': s.q}}",),
        tests={
            "test_counts": f"vectors(20, {en}={active})",
            "test_wraps": f"vectors({(1 << width) + 3}, {en}={active})",
        },
        weights={en: 0.7 if active else 0.3},
    )


def mod_counter(rng: random.Random) -> Draft:
    """A counter of a modulus with a flag on its last value."""
    clocking = draw_clocking(rng)
    modulus = rng.randint(3, 30)
    width = (modulus - 1).bit_length()
    up, active = rng.random() < 0.5, rng.choice((0, 1))
    last = modulus - 1
    first, final = (0, last) if up else (last, 0)
    q, tick = rng.choice(("count", "cnt")), rng.choice(("tick", "wrap", "tc"))
    sign = "+" if up else "-"
    test = f"if ({'' if active else '!'}en)"
    return clocked(
        "mod_counter",
        rng,
        clocking,
        params={"modulus": modulus, "up": up, "active": active},
        difficulty="medium",
        names=("mod_counter", "cycle_counter", "timer"),
        ports=(inp("en"), reg(q, width), out(tick)),
        resets=f"sets {q} to {first}",
        says=f"While en is {active}, {q} goes {'up' if up else 'down'} from {first} to {final} "
        f"and starts again at {first}; otherwise it holds. "
        f"{tick} is 1 while {q} is {final}, whatever en is.",
        body=(
            f"assign {tick} = {q} == {width}'d{final};",
            *clocking.process(
                [f"{q} <= {width}'d{first};"],
                [
                    f"{test} begin",
                    f"  if ({tick}) {q} <= {width}'d{first};",
                    f"  else {q} <= {q} {sign} {width}'d1;",
                    "end",
                ],
            ),
        ),
        reset=(f"s.q = {first}",),
        step=(f"if i['en'] == {active}:", f"    s.q = (s.q {sign} 1) % {modulus}"),
        outputs=(f"return {{'{q}': s.q, '{tick}': int(s.q == {final})}}",),
        tests={
            "test_wraps": f"vectors({2 * modulus + 2}, en={active})",
            "test_holds": f"vectors({modulus - 1}, en={active}) + vectors(4, en={1 - active})",
        },
        weights={"en": 0.7 if active else 0.3},
    )


def load_counter(rng: random.Random) -> Draft:
    """Up and down with a parallel load; at its ends it wraps or stays."""
    clocking = draw_clocking(rng)
    width = rng.randint(2, 6)
    top = (1 << width) - 1
    stays, up_on = rng.random() < 0.5, rng.choice((0, 1))
    load_on = rng.choice((0, 1))
    start = rng.choice((0, top))
    q, d, load = rng.choice(("q", "count")), rng.choice(("d", "din")), rng.choice(("load", "ld"))
    rises = "up" if up_on else "!up"
    if stays:
        body = [
            f"else if ({rises}) begin",
            f"  if ({q} != {width}'d{top}) {q} <= {q} + {width}'d1;",
            "end",
            f"else if ({q} != {width}'d0) {q} <= {q} - {width}'d1;",
        ]
        step = (f"    s.q = min(max(s.q + way, 0), {top})",)
        ends = f"stays at {top} and at 0 instead of wrapping"
    else:
        body = [
            f"else if ({rises}) {q} <= {q} + {width}'d1;",
            f"else {q} <= {q} - {width}'d1;",
        ]
        step = (f"    s.q = s.q + way & {top}",)
        ends = f"wraps between {top} and 0"
    return clocked(
        "load_counter",
        rng,
        clocking,
        params={"width": width, "stays": stays, "up_on": up_on, "load_on": load_on, "start": start},
        difficulty="medium",
        names=("load_counter", "updown", "preset_counter"),
        ports=(inp(load), inp("up"), inp(d, width), reg(q, width)),
        resets=f"sets {q} to {start}",
        says=f"When {load} is {load_on}, {q} takes {d}. Otherwise {q} counts up by 1 if up is "
        f"{up_on} and down by 1 if not. {q} {ends}.",
        body=clocking.process(
            [f"{q} <= {width}'d{start};"],
            [f"if ({'' if load_on else '!'}{load}) {q} <= {d};", *body],
        ),
        reset=(f"s.q = {start}",),
        step=(
            f"if i['{load}'] == {load_on}:",
            f"    s.q = i['{d}']",
            "else:",
            f"    way = 1 if i['up'] == {up_on} else -1",
            *step,
        ),
        outputs=(f"return {{'{q}': s.q}}",),
        tests={
            "test_load": f"vectors(10, {load}={load_on})",
            "test_up": f"vectors({top + 3}, {load}={1 - load_on}, up={up_on})",
            "test_down": f"vectors({top + 3}, {load}={1 - load_on}, up={1 - up_on})",
        },
        weights={load: 0.2 if load_on else 0.8},
    )


FAMILIES = (counter, mod_counter, load_counter)
