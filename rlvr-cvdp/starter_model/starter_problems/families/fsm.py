"""Finite state machines: sequence detectors, phase sequencers, a coin counter."""

from __future__ import annotations

import random

from ..clocking import draw_clocking
from ..draft import Draft
from ..drafting import clocked, inp, out, reg


def _next_state(pattern: str, state: int, bit: str, overlapping: bool) -> int:
    """Length of the longest prefix of the pattern that ends the bits seen."""
    seen = pattern[:state] + bit
    if seen == pattern and not overlapping:
        return 0
    for length in range(min(len(seen), len(pattern) - 1), 0, -1):
        if seen.endswith(pattern[:length]):
            return length
    return 0


def _overlaps(pattern: str) -> bool:
    """Whether a match can begin inside another one."""
    return any(pattern.startswith(pattern[n:]) for n in range(1, len(pattern)))


def sequence_detector(rng: random.Random) -> Draft:
    """Finds a bit pattern in a stream, overlapping or not."""
    clocking = draw_clocking(rng)
    length = rng.choice((3, 3, 4))
    pattern = format(rng.randrange(1 << length), f"0{length}b")
    overlapping = rng.random() < 0.5
    later = rng.random() < 0.5
    d, hit = rng.choice(("d", "bit_in")), rng.choice(("hit", "found"))
    arms = []
    for state in range(length):
        one, zero = (_next_state(pattern, state, bit, overlapping) for bit in "10")
        label = f"2'd{state}" if state < length - 1 else "default"
        arms.append(f"{label}: st <= {d} ? 2'd{one} : 2'd{zero};")
    match = f"(st == 2'd{length - 1}) && {'' if pattern[-1] == '1' else '!'}{d}"
    resets, moves = ["st <= 2'd0;"], ["case (st)", *(f"  {a}" for a in arms), "endcase"]
    if later:
        resets.append(f"{hit} <= 1'b0;")
        moves.insert(0, f"{hit} <= {match};")
    how = "is a register that is 1 for one clock after" if later else "is combinational, 1 during"
    return clocked(
        "sequence_detector",
        rng,
        clocking,
        params={
            "pattern": pattern,
            "overlapping": overlapping or not _overlaps(pattern),
            "later": later,
        },
        difficulty="hard",
        names=("seq_detect", "pattern_fsm", "finder"),
        ports=(inp(d), reg(hit) if later else out(hit)),
        resets="forgets all bits seen" + (f" and sets {hit} to 0" if later else ""),
        says=f"Each clock edge takes one bit {d}. {hit} {how} the last bit of the pattern "
        f"{pattern}, first bit leftmost. Matches may "
        f"{'overlap' if overlapping else 'not overlap: a match starts the search anew'}.",
        body=(
            "reg [1:0] st;",
            *(() if later else (f"assign {hit} = {match};",)),
            *clocking.process(resets, moves),
        ),
        reset=("s.seen, s.hit = '', 0",),
        step=(
            f"s.seen += str(i['{d}'])",
            f"s.hit = int(s.seen.endswith('{pattern}'))",
            *(() if overlapping else ("if s.hit:", "    s.seen = ''")),
        ),
        outputs=(
            f"return {{'{hit}': s.hit}}"
            if later
            else f"return {{'{hit}': int((s.seen + str(i['{d}'])).endswith('{pattern}'))}}",
        ),
        tests={
            "test_one_match": f"[{{'{d}': int(b)}} for b in '{pattern}']",
            "test_repeats": f"[{{'{d}': int(b)}} for b in '{pattern}' * 4]",
            "test_overlaps": f"[{{'{d}': int(b)}} for n in range(1, {length})"
            f" for b in '{pattern}' + '{pattern}'[n:] * 2]",
        },
    )


def phase_sequencer(rng: random.Random) -> Draft:
    """Three phases of drawn lengths, each with its output code, that follow each other."""
    clocking = draw_clocking(rng)
    times = [rng.randint(1, 8) for _ in range(3)]
    codes = rng.sample(range(8), 3)
    waits = rng.choice(("go", "en"))
    y = rng.choice(("lights", "phase"))
    listed = ", then ".join(f"{c} for {t}" for c, t in zip(codes, times, strict=True))
    steps = []
    for k in range(3):
        after, last = (k + 1) % 3, k == 2
        label = "default" if last else f"3'd{codes[k]}"
        steps += [
            f"{label}: begin",
            f"  {y} <= 3'd{codes[after]};",
            f"  n <= 3'd{times[after] - 1};",
            "end",
        ]
    first = [f"{y} <= 3'd{codes[0]};", f"n <= 3'd{times[0] - 1};"]
    moves = [
        "if (n != 3'd0) n <= n - 3'd1;",
        f"else case ({y})",
        *(f"  {line}" for line in steps),
        "endcase",
    ]
    if waits == "en":
        rule = "While en is 0, everything holds."
        body = ["if (en) begin", *(f"  {line}" for line in moves), "end"]
        control = ["if i['en']:"]
    else:
        rule = "When go is 1, the first phase starts anew."
        body = ["if (go) begin", *(f"  {line}" for line in first), "end"]
        body += [f"else {moves[0]}", *moves[1:]]
        control = ["if i['go']:", "    s.k, s.t = 0, 0", "else:"]
    return clocked(
        "phase_sequencer",
        rng,
        clocking,
        params={
            "times": ",".join(map(str, times)),
            "codes": ",".join(map(str, codes)),
            "waits": waits,
        },
        difficulty="hard",
        names=("sequencer", "phases", "signals"),
        ports=(inp(waits), reg(y, 3)),
        resets="starts the first phase",
        says=f"{y} shows three phases, again and again: {listed} clocks. {rule}",
        body=(
            "reg [2:0] n;",
            *clocking.process(first, body),
        ),
        reset=("s.k, s.t = 0, 0",),
        step=(
            *control,
            "    s.t += 1",
            f"    if s.t == {times}[s.k]:",
            "        s.k, s.t = (s.k + 1) % 3, 0",
        ),
        outputs=(f"return {{'{y}': {codes}[s.k]}}",),
        tests={
            "test_cycle": f"[dict({'en=1' if waits == 'en' else 'go=0'})] * {2 * sum(times) + 2}",
            "test_interrupted": f"vectors({3 * sum(times)})",
        },
        weights={"en": 0.8, "go": 0.06},
    )


def coin_counter(rng: random.Random) -> Draft:
    """Collects two kinds of coins up to a price, then gives one pulse."""
    clocking = draw_clocking(rng)
    small = rng.randint(1, 2)
    big = rng.randint(small + 1, 5)
    price = rng.randint(big + 1, 14)
    keeps = rng.random() < 0.5
    width = (price + big + small).bit_length()
    vend = rng.choice(("vend", "done"))
    a, b = rng.choice(("nickel", "c0")), rng.choice(("dime", "c1"))
    rest = f"t - {width}'d{price}" if keeps else f"{width}'d0"
    return clocked(
        "coin_counter",
        rng,
        clocking,
        params={"small": small, "big": big, "price": price, "keeps": keeps},
        difficulty="hard",
        names=("coin_counter", "vending", "credit"),
        ports=(inp(a), inp(b), reg(vend), reg("sum", width)),
        resets=f"sets sum and {vend} to 0",
        says=f"At each edge, t is sum plus {small} if {a} is 1 plus {big} if {b} is 1. If t is at "
        f"least {price}, {vend} becomes 1 and sum becomes {f't minus {price}' if keeps else '0'}; "
        f"otherwise {vend} becomes 0 and sum becomes t.",
        body=(
            f"wire [{width - 1}:0] t;",
            f"assign t = sum + ({a} ? {width}'d{small} : {width}'d0) "
            f"+ ({b} ? {width}'d{big} : {width}'d0);",
            *clocking.process(
                ["sum <= " + f"{width}'d0;", f"{vend} <= 1'b0;"],
                [
                    f"{vend} <= t >= {width}'d{price};",
                    f"sum <= (t >= {width}'d{price}) ? {rest} : t;",
                ],
            ),
        ),
        reset=("s.sum, s.vend = 0, 0",),
        step=(
            f"t = s.sum + {small} * i['{a}'] + {big} * i['{b}']",
            f"s.vend = int(t >= {price})",
            f"s.sum = {f't - {price}' if keeps else '0'} if s.vend else t",
        ),
        outputs=(f"return {{'sum': s.sum, '{vend}': s.vend}}",),
        tests={
            "test_small_coins": f"vectors(16, {a}=1, {b}=0)",
            "test_big_coins": f"vectors(16, {a}=0, {b}=1)",
            "test_both_coins": f"vectors(16, {a}=1, {b}=1)",
        },
    )


FAMILIES = (sequence_detector, phase_sequencer, coin_counter)
