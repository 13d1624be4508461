"""Registers that move bits: shift registers, rotators, delay lines."""

from __future__ import annotations

import random

from ..clocking import draw_clocking
from ..draft import Draft
from ..drafting import clocked, inp, out, reg
from ..style import span


def shift_register(rng: random.Random) -> Draft:
    """Serial in, parallel and serial out, with an enable and a reset value."""
    clocking = draw_clocking(rng)
    width = rng.randint(3, 10)
    left, active = rng.random() < 0.5, rng.choice((0, 1))
    start = rng.choice((0, (1 << width) - 1, rng.randint(1, (1 << width) - 2)))
    q, si, en = rng.choice(("q", "data")), rng.choice(("si", "din")), rng.choice(("en", "shift"))
    top = width - 1
    moved = f"{{{q}[{top - 1}:0], {si}}}" if left else f"{{{si}, {q}[{top}:1]}}"
    python = f"(s.q << 1 | i['{si}']) & {(1 << width) - 1}"
    if not left:
        python = f"s.q >> 1 | i['{si}'] << {top}"
    return clocked(
        "shift_register",
        rng,
        clocking,
        params={"width": width, "left": left, "active": active, "start": start},
        difficulty="easy",
        names=("shift_reg", "serial_reg", "sipo"),
        ports=(inp(si), inp(en), reg(q, width), out("so")),
        resets=f"sets {q} to {start}",
        says=f"When {en} is {active}, {q} shifts one place to the {'left' if left else 'right'} "
        f"and {si} enters at bit {0 if left else top}; otherwise {q} holds. "
        f"so is bit {top if left else 0} of {q}.",
        body=(
            f"assign so = {q}[{top if left else 0}];",
            *clocking.process(
                [f"{q} <= {width}'d{start};"],
                [f"if ({'' if active else '!'}{en}) {q} <= {moved};"],
            ),
        ),
        reset=(f"s.q = {start}",),
        step=(f"if i['{en}'] == {active}:", f"    s.q = {python}"),
        outputs=(f"return {{'{q}': s.q, 'so': s.q >> {top if left else 0} & 1}}",),
        tests={
            "test_shift_ones": f"vectors({width + 1}, {en}={active}, {si}=1)",
            "test_hold": f"vectors(4, {en}={active}) + vectors(4, {en}={1 - active})",
        },
        weights={en: 0.75 if active else 0.25},
    )


def rotator(rng: random.Random) -> Draft:
    """A register that loads a word or rotates it by a constant."""
    clocking = draw_clocking(rng)
    width = rng.randint(4, 10)
    by = rng.randint(1, width - 1)
    load_first, load_on = rng.random() < 0.5, rng.choice((0, 1))
    start = rng.randint(0, (1 << width) - 1)
    q, load = rng.choice(("q", "word")), rng.choice(("load", "ld"))
    turn = rng.choice(("rot", "go"))
    cut = width - by
    moved = f"{q} <= {{{q}[{cut - 1}:0], {q}[{width - 1}:{cut}]}};"
    tests = [f"if ({'' if load_on else '!'}{load}) {q} <= d;", f"if ({turn}) {moved}"]
    python = [
        (f"i['{load}'] == {load_on}", "i['d']"),
        (f"i['{turn}']", f"(s.q << {by} | s.q >> {cut}) & {(1 << width) - 1}"),
    ]
    words = [
        f"when {load} is {load_on}, {q} takes d",
        f"when {turn} is 1, {q} rotates left by {by}",
    ]
    if not load_first:
        tests, python, words = tests[::-1], python[::-1], words[::-1]
    return clocked(
        "rotator",
        rng,
        clocking,
        params={
            "width": width,
            "by": by,
            "load_first": load_first,
            "load_on": load_on,
            "start": start,
        },
        difficulty="medium",
        names=("rotator", "rot_reg", "ring"),
        ports=(inp(load), inp(turn), inp("d", width), reg(q, width)),
        resets=f"sets {q} to {start}",
        says=f"First, {words[0]}. Else, {words[1]}. Else {q} holds.",
        body=clocking.process([f"{q} <= {width}'d{start};"], [tests[0], f"else {tests[1]}"]),
        reset=(f"s.q = {start}",),
        step=(
            f"if {python[0][0]}:",
            f"    s.q = {python[0][1]}",
            f"elif {python[1][0]}:",
            f"    s.q = {python[1][1]}",
        ),
        outputs=(f"return {{'{q}': s.q}}",),
        tests={
            "test_load": f"vectors(10, {load}={load_on}, {turn}=0)",
            "test_rotate": f"vectors(1, {load}={load_on}, {turn}=0, d=1)"
            f" + vectors({width}, {load}={1 - load_on}, {turn}=1)",
            "test_both": f"vectors(3, {load}={load_on}, {turn}=0)"
            f" + vectors(6, {load}={load_on}, {turn}=1)",
        },
        weights={load: 0.3 if load_on else 0.7},
    )


def delay_line(rng: random.Random) -> Draft:
    """A word delayed by a number of enabled clock cycles."""
    clocking = draw_clocking(rng)
    width, depth = rng.randint(1, 8), rng.randint(2, 4)
    active, inverts = rng.choice((0, 1)), rng.random() < 0.4
    fill = rng.choice((0, (1 << width) - 1))
    d, q, en = rng.choice(("d", "din")), rng.choice(("q", "dout")), rng.choice(("en", "ce"))
    stages = [f"r{k}" for k in range(depth)]
    moves = [f"{b} <= {a};" for a, b in zip([d, *stages[:-1]], stages, strict=True)]
    ones = (1 << width) - 1
    return clocked(
        "delay_line",
        rng,
        clocking,
        params={
            "width": width,
            "depth": depth,
            "active": active,
            "inverts": inverts,
            "fill": fill,
        },
        difficulty="medium",
        names=("delay_line", "pipe", "delay"),
        ports=(inp(d, width), inp(en), out(q, width)),
        resets=f"sets all stages to {fill}",
        says=f"{depth} register stages in a row; {d} enters the first. All stages move when {en} "
        f"is {active} and hold otherwise. {q} is the {'inverted ' if inverts else ''}last stage.",
        body=(
            f"reg {span(width)}{', '.join(stages)};",
            *clocking.process(
                [f"{stage} <= {width}'d{fill};" for stage in stages],
                [f"if ({'' if active else '!'}{en}) begin", *(f"  {m}" for m in moves), "end"],
            ),
            f"assign {q} = {'~' if inverts else ''}{stages[-1]};",
        ),
        reset=(f"s.r = [{fill}] * {depth}",),
        step=(f"if i['{en}'] == {active}:", f"    s.r = [i['{d}'], *s.r[:-1]]"),
        outputs=(f"return {{'{q}': s.r[-1]{f' ^ {ones}' if inverts else ''}}}",),
        tests={
            "test_moves": f"vectors(12, {en}={active})",
            "test_holds": f"vectors({depth}, {en}={active}) + vectors(5, {en}={1 - active})",
        },
        weights={en: 0.7 if active else 0.3},
    )


FAMILIES = (shift_register, rotator, delay_line)
