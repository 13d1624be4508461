"""Codes: Gray counting, linear feedback, cyclic redundancy checks, running parity."""

from __future__ import annotations

import random

from ..clocking import draw_clocking
from ..draft import Draft
from ..drafting import clocked, comb, inp, out, reg


def gray_code(rng: random.Random) -> Draft:
    """Binary to Gray of a sum with a constant."""
    width = rng.randint(3, 9)
    ones = (1 << width) - 1
    bias = rng.randint(1, ones)
    inverts = rng.random() < 0.3
    b, g = rng.choice(("b", "bin")), rng.choice(("g", "gray"))
    return comb(
        "gray_code",
        rng,
        params={"width": width, "bias": bias, "inverts": inverts},
        difficulty="easy",
        names=("gray_code", "bin2gray", "to_gray"),
        ports=(inp(b, width), out("t", width), out(g, width)),
        says=f"t is {b} plus {bias}, modulo 2^{width}. {g} is the {'inverted ' if inverts else ''}"
        "Gray code of t, where Gray code is t XOR (t shifted right by 1).",
        body=(
            f"assign t = {b} + {width}'d{bias};",
            f"assign {g} = {'~(t ^ (t >> 1))' if inverts else 't ^ (t >> 1)'};",
        ),
        expected=(
            f"t = (i['{b}'] + {bias}) % {1 << width}",
            f"return {{'t': t, '{g}': t ^ t >> 1{f' ^ {ones}' if inverts else ''}}}",
        ),
        tests={"test_counting": f"[{{'{b}': k}} for k in range({1 << width})]"},
    )


def gray_counter(rng: random.Random) -> Draft:
    """A counter whose output is Gray coded."""
    clocking = draw_clocking(rng)
    width = rng.randint(3, 6)
    up, active = rng.random() < 0.5, rng.choice((0, 1))
    start = rng.choice((0, 0, rng.randint(1, (1 << width) - 1)))
    en, g = rng.choice(("en", "step")), rng.choice(("gray", "g"))
    sign = "+" if up else "-"
    return clocked(
        "gray_counter",
        rng,
        clocking,
        params={"width": width, "up": up, "active": active, "start": start},
        difficulty="medium",
        names=("gray_counter", "gray_cnt"),
        ports=(inp(en), out(g, width)),
        resets=f"sets the binary count n to {start}",
        says=f"When {en} is {active}, the {width} bit count n goes {'up' if up else 'down'} by 1 "
        f"and wraps; otherwise it holds. {g} is n XOR (n shifted right by 1).",
        body=(
            f"reg [{width - 1}:0] n;",
            *clocking.process(
                [f"n <= {width}'d{start};"],
                [f"if ({'' if active else '!'}{en}) n <= n {sign} {width}'d1;"],
            ),
            f"assign {g} = n ^ (n >> 1);",
        ),
        reset=(f"s.n = {start}",),
        step=(f"if i['{en}'] == {active}:", f"    s.n = (s.n {sign} 1) % {1 << width}"),
        outputs=(f"return {{'{g}': s.n ^ s.n >> 1}}",),
        tests={"test_whole_cycle": f"vectors({(1 << width) + 2}, {en}={active})"},
        weights={en: 0.7 if active else 0.3},
    )


def lfsr(rng: random.Random) -> Draft:
    """A Fibonacci shift register with drawn taps and seed."""
    clocking = draw_clocking(rng)
    width = rng.randint(4, 8)
    count = rng.choice((2, 2, 3))
    taps = sorted({width - 1, *rng.sample(range(width - 1), count - 1)}, reverse=True)
    inverts, active = rng.random() < 0.3, rng.choice((0, 1))
    top = (1 << width) - 1
    seed = rng.randint(1, top - 1)
    q, en = rng.choice(("q", "state")), rng.choice(("en", "run"))
    xor = " ^ ".join(f"{q}[{t}]" for t in taps)
    bits = " ^ ".join(f"s.q >> {t}" for t in taps)
    words = " XOR ".join(f"{q}[{t}]" for t in taps)
    return clocked(
        "lfsr",
        rng,
        clocking,
        params={
            "width": width,
            "taps": ",".join(map(str, taps)),
            "inverts": inverts,
            "active": active,
            "seed": seed,
        },
        difficulty="medium",
        names=("lfsr", "prbs", "noise"),
        ports=(inp(en), reg(q, width)),
        resets=f"sets {q} to {seed}",
        says=f"When {en} is {active}, {q} shifts left by one and the new bit 0 is "
        f"{'NOT (' if inverts else ''}{words}{')' if inverts else ''} of the old value; "
        f"otherwise {q} holds.",
        body=(
            "wire fb;",
            f"assign fb = {f'~({xor})' if inverts else xor};",
            *clocking.process(
                [f"{q} <= {width}'d{seed};"],
                [f"if ({'' if active else '!'}{en}) {q} <= {{{q}[{width - 2}:0], fb}};"],
            ),
        ),
        reset=(f"s.q = {seed}",),
        step=(
            f"fb = ({bits}{' ^ 1' if inverts else ''}) & 1",
            f"if i['{en}'] == {active}:",
            f"    s.q = (s.q << 1 | fb) & {top}",
        ),
        outputs=(f"return {{'{q}': s.q}}",),
        tests={
            "test_sequence": f"vectors({2 * width + 10}, {en}={active})",
            "test_holds": f"vectors(3, {en}={active}) + vectors(4, {en}={1 - active})",
        },
        weights={en: 0.75 if active else 0.25},
    )


def crc_serial(rng: random.Random) -> Draft:
    """A checksum updated one bit at a time, with a synchronous clear."""
    clocking = draw_clocking(rng)
    width = rng.randint(4, 8)
    top = (1 << width) - 1
    poly = rng.randint(1, top // 2) * 2 + 1
    start, active = rng.choice((0, top)), rng.choice((0, 1))
    crc, valid = rng.choice(("crc", "sum")), rng.choice(("valid", "en"))
    return clocked(
        "crc_serial",
        rng,
        clocking,
        params={"width": width, "poly": poly, "start": start, "active": active},
        difficulty="hard",
        names=("crc_serial", "crc_bit", "checksum"),
        ports=(inp("clear"), inp(valid), inp("d"), reg(crc, width)),
        resets=f"sets {crc} to {start}",
        says=f"When clear is 1, {crc} becomes {start}. Else, when {valid} is {active}, {crc} is "
        f"shifted left by 1 with a 0 coming in, and XORed with {poly} if (old bit {width - 1} "
        "XOR d) is 1. Otherwise it holds.",
        body=(
            "wire fb;",
            f"wire [{width - 1}:0] moved;",
            f"assign fb = {crc}[{width - 1}] ^ d;",
            f"assign moved = {{{crc}[{width - 2}:0], 1'b0}};",
            *clocking.process(
                [f"{crc} <= {width}'d{start};"],
                [
                    f"if (clear) {crc} <= {width}'d{start};",
                    f"else if ({'' if active else '!'}{valid}) "
                    f"{crc} <= fb ? moved ^ {width}'d{poly} : moved;",
                ],
            ),
        ),
        reset=(f"s.crc = {start}",),
        step=(
            f"fb = s.crc >> {width - 1} ^ i['d']",
            "if i['clear']:",
            f"    s.crc = {start}",
            f"elif i['{valid}'] == {active}:",
            f"    s.crc = (s.crc << 1 ^ fb * {poly}) & {top}",
        ),
        outputs=(f"return {{'{crc}': s.crc}}",),
        tests={
            "test_message": f"vectors({width + 8}, clear=0, {valid}={active})",
            "test_holds": f"vectors(5, clear=0, {valid}={active})"
            f" + vectors(5, clear=0, {valid}={1 - active})",
            "test_clear": "vectors(9, clear=0) + vectors(3, clear=1)",
        },
        weights={"clear": 0.1, valid: 0.7 if active else 0.3},
    )


def running_parity(rng: random.Random) -> Draft:
    """Parity of the words seen so far, and how many words there were."""
    clocking = draw_clocking(rng)
    width, size = rng.randint(1, 8), rng.randint(3, 5)
    odd, active = rng.choice((0, 1)), rng.choice((0, 1))
    valid, par = rng.choice(("valid", "en")), rng.choice(("par", "p"))
    fold = "d" if width == 1 else "(^d)"
    return clocked(
        "running_parity",
        rng,
        clocking,
        params={"width": width, "size": size, "odd": odd, "active": active},
        difficulty="easy",
        names=("parity_acc", "parity_run", "bit_parity"),
        ports=(inp(valid), inp("d", width), reg(par), reg("n", size)),
        resets=f"sets {par} to {odd} and n to 0",
        says=f"At each edge with {valid} at {active}, {par} flips if d has an odd number of ones, "
        f"and n goes up by 1 and wraps. Otherwise both hold.",
        body=clocking.process(
            [f"{par} <= 1'b{odd};", f"n <= {size}'d0;"],
            [
                f"if ({'' if active else '!'}{valid}) begin",
                f"  {par} <= {par} ^ {fold};",
                f"  n <= n + {size}'d1;",
                "end",
            ],
        ),
        reset=(f"s.p, s.n = {odd}, 0",),
        step=(
            f"if i['{valid}'] == {active}:",
            "    s.p ^= bin(i['d']).count('1') & 1",
            f"    s.n = (s.n + 1) % {1 << size}",
        ),
        outputs=(f"return {{'{par}': s.p, 'n': s.n}}",),
        tests={
            "test_words": f"vectors(12, {valid}={active})",
            "test_holds": f"vectors(3, {valid}={active}) + vectors(4, {valid}={1 - active})",
        },
        weights={valid: 0.7 if active else 0.3},
    )


FAMILIES = (gray_code, gray_counter, lfsr, crc_serial, running_parity)
