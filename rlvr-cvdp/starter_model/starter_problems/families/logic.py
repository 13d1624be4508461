"""Combinational logic: bitwise expressions, reductions, population counts, bit order."""

from __future__ import annotations

import random

from ..draft import Draft
from ..drafting import comb, inp, out

# name -> Verilog over two operands, Python over two operands
BITWISE = {
    "AND": ("{} & {}", "{} & {}"),
    "OR": ("{} | {}", "{} | {}"),
    "XOR": ("{} ^ {}", "{} ^ {}"),
    "NAND": ("~({} & {})", "~({} & {})"),
    "NOR": ("~({} | {})", "~({} | {})"),
    "XNOR": ("~({} ^ {})", "~({} ^ {})"),
}


def _truth_table(first: str, second: str, inverted: str) -> str:
    """Output bits for abc = 111 down to 000: different words can mean the same function."""
    gates = {
        "AND": lambda p, q: p & q,
        "OR": lambda p, q: p | q,
        "XOR": lambda p, q: p ^ q,
        "NAND": lambda p, q: 1 - (p & q),
        "NOR": lambda p, q: 1 - (p | q),
        "XNOR": lambda p, q: 1 - (p ^ q),
    }
    bits = ""
    for row in range(7, -1, -1):
        a, b, c = (row >> k & 1 ^ int(n == inverted) for k, n in zip((2, 1, 0), "abc", strict=True))
        bits += str(gates[second](gates[first](a, b), c))
    return bits


def bitwise(rng: random.Random) -> Draft:
    """Two bitwise operations over three operands, one of them perhaps inverted."""
    width = rng.randint(1, 8)
    first, second = rng.choice(list(BITWISE)), rng.choice(list(BITWISE))
    inverted = rng.choice(("none", "a", "b", "c"))
    a, b, c = ("~" + n if n == inverted else n for n in "abc")
    t, y = rng.choice(("t", "mid")), rng.choice(("y", "f"))
    note = "" if inverted == "none" else f" Input {inverted} is inverted before it is used."
    pa, pb, pc = (f"i['{n}']" if n[0] != "~" else f"~i['{n[1]}']" for n in (a, b, c))
    return comb(
        "bitwise",
        rng,
        params={"width": width, "table": _truth_table(first, second, inverted)},
        difficulty="easy",
        names=("bit_logic", "gates", "logic_fn"),
        ports=(inp("a", width), inp("b", width), inp("c", width), out(y, width)),
        says=f"Bit by bit, {y} is (a {first} b) {second} c.{note}",
        body=(
            f"wire {f'[{width - 1}:0] ' if width > 1 else ''}{t};",
            f"assign {t} = {BITWISE[first][0].format(a, b)};",
            f"assign {y} = {BITWISE[second][0].format(t, c)};",
        ),
        expected=(
            f"t = {BITWISE[first][1].format(pa, pb)}",
            f"return {{'{y}': ({BITWISE[second][1].format('t', pc)}) & {(1 << width) - 1}}}",
        ),
        tests={"test_c_low": "vectors(30, c=0)", "test_a_equals_b": "vectors(30, a=1, b=1)"},
    )


def reduce_bits(rng: random.Random) -> Draft:
    """Reductions of a slice of a vector to one bit each."""
    width = rng.randint(3, 12)
    low = rng.randint(0, width - 3)
    high = rng.randint(low + 2, width - 1)
    texts = {"AND": "&", "OR": "|", "XOR": "^"}
    python = {"AND": "int(v == full)", "OR": "int(v != 0)", "XOR": "bin(v).count('1') & 1"}
    first, second = rng.sample(list(texts), 2)
    inverted = rng.random() < 0.5
    p, q = rng.choice((("p", "q"), ("x", "y"), ("r0", "r1")))
    full = (1 << (high - low + 1)) - 1
    note = f"the inverted {second}" if inverted else f"the {second}"
    return comb(
        "reduce_bits",
        rng,
        params={
            "width": width,
            "low": low,
            "high": high,
            "first": first,
            "second": second,
            "inverted": inverted,
        },
        difficulty="easy",
        names=("reducer", "bit_reduce", "slice_test"),
        ports=(inp("d", width), out(p), out(q)),
        says=f"{p} is the {first} of the bits d[{high}:{low}]. {q} is {note} of all bits of d.",
        body=(
            f"assign {p} = {texts[first]}d[{high}:{low}];",
            f"assign {q} = {'~' if inverted else ''}{texts[second]}d;",
        ),
        expected=(
            f"v, full = i['d'] >> {low} & {full}, {full}",
            f"p = {python[first]}",
            f"v, full = i['d'], {(1 << width) - 1}",
            f"return {{'{p}': p, '{q}': ({python[second]}){' ^ 1' if inverted else ''}}}",
        ),
        tests={
            "test_one_bit_off": f"[dict(d={(1 << width) - 1} ^ 1 << b) for b in range({width})]",
            "test_slice_full": f"[dict(d={full << low} | 1 << b) for b in range({width})]",
            "test_slice_clear": f"[dict(d={((1 << width) - 1) ^ (full << low)} ^ 1 << b)"
            f" for b in range({width})]",
        },
    )


def popcount(rng: random.Random) -> Draft:
    """Number of ones or zeros, and a flag against a threshold."""
    width = rng.randint(3, 8)
    bit = rng.choice((0, 1))
    limit = rng.randint(1, width - 1)
    word, sign = rng.choice((("at least", ">="), ("more than", ">"), ("exactly", "==")))
    size = width.bit_length()
    flag = rng.choice(("flag", "hit", "major"))
    note = "" if bit else "~"
    terms = " + ".join(f"n[{k}]" for k in range(width))
    return comb(
        "popcount",
        rng,
        params={
            "width": width,
            "bit": bit,
            "limit": limit + int(sign == ">"),
            "exactly": sign == "==",
        },
        difficulty="medium",
        names=("popcount", "bit_count", "vote"),
        ports=(inp("d", width), out("count", size), out(flag)),
        says=f"count is the number of bits of d that are {bit}. "
        f"{flag} is 1 when count is {word} {limit}, else 0.",
        body=(
            f"wire [{width - 1}:0] n;",
            f"assign n = {note}d;",
            f"assign count = {terms};",
            f"assign {flag} = count {sign} {limit};",
        ),
        expected=(
            f"n = bin(i['d']).count('1'){'' if bit else f' * -1 + {width}'}",
            f"return {{'count': n, '{flag}': int(n {sign} {limit})}}",
        ),
        tests={
            "test_thermometer": f"[dict(d=(1 << b) - 1) for b in range({width + 1})]",
        },
    )


def bit_order(rng: random.Random) -> Draft:
    """Bits reversed or rotated by a constant, then XORed with a constant."""
    width = rng.randint(4, 8)
    amount = rng.randint(1, width - 1)
    order = rng.choice(("reverse", "left", "right"))
    mask = rng.randint(1, (1 << width) - 1)
    y = rng.choice(("y", "z"))
    if order == "reverse":
        words = "the bits of d in reverse order"
        moved = "{" + ", ".join(f"d[{k}]" for k in range(width)) + "}"
        cut = 0
        python = f"int(format(d, '0{width}b')[::-1], 2)"
    else:
        words = f"d rotated {order} by {amount}"
        cut = width - amount if order == "left" else amount
        moved = f"{{d[{cut - 1}:0], d[{width - 1}:{cut}]}}"
        python = f"(d >> {cut} | d << {width - cut}) & {(1 << width) - 1}"
    return comb(
        "bit_order",
        rng,
        params={
            "width": width,
            "left": width - cut if cut else 0,
            "mask": mask,
        },
        difficulty="easy",
        names=("bit_mix", "swizzle", "scramble"),
        ports=(inp("d", width), out("t", width), out(y, width)),
        says=f"t is {words}. {y} is t XOR {width}'d{mask}.",
        body=(f"assign t = {moved};", f"assign {y} = t ^ {width}'d{mask};"),
        expected=("d = i['d']", f"t = {python}", f"return {{'t': t, '{y}': t ^ {mask}}}"),
    )


FAMILIES = (bitwise, reduce_bits, popcount, bit_order)
