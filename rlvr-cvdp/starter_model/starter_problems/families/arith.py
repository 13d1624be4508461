"""Arithmetic: add and subtract, minimum and distance, saturation, windows, scaling, an ALU."""

from __future__ import annotations

import random

from ..draft import Draft
from ..drafting import comb, inp, out, reg


def add_sub(rng: random.Random) -> Draft:
    """A sum or a difference, chosen by a mode input, with the carry or borrow."""
    width = rng.randint(2, 10)
    adds_on = rng.choice((0, 1))
    swapped = rng.random() < 0.5
    extra = rng.choice((0, 0, 1, 2, 3))
    mode, y = rng.choice(("mode", "sub", "sel")), rng.choice(("y", "res"))
    minus = "b - a" if swapped else "a - b"
    python = "i['b'] - i['a']" if swapped else "i['a'] + 0 - i['b']"
    plus = f"a + b + {extra}" if extra else "a + b"
    test = mode if adds_on else f"!{mode}"
    return comb(
        "add_sub",
        rng,
        params={"width": width, "adds_on": adds_on, "swapped": swapped, "extra": extra},
        difficulty="easy",
        names=("add_sub", "adder", "sum_diff"),
        ports=(inp("a", width), inp("b", width), inp(mode), out(y, width), out("carry")),
        says=f"When {mode} is {adds_on}, {{carry, {y}}} is {plus}; otherwise it is {minus}. "
        f"carry is bit {width} of the {width + 1} bit result.",
        body=(f"assign {{carry, {y}}} = {test} ? {plus} : {minus};",),
        expected=(
            f"r = i['a'] + i['b'] + {extra} if i['{mode}'] == {adds_on} else {python}",
            f"return {{'{y}': r & {(1 << width) - 1}, 'carry': r >> {width} & 1}}",
        ),
        tests={
            "test_add": f"vectors(40, {mode}={adds_on})",
            "test_subtract": f"vectors(40, {mode}={1 - adds_on})",
        },
    )


def min_max(rng: random.Random) -> Draft:
    """Minimum, maximum or distance of two numbers, unsigned or signed, plus a constant."""
    width = rng.randint(2, 10)
    op = rng.choice(("minimum", "maximum", "absolute difference"))
    signed = op != "absolute difference" and rng.random() < 0.5
    flag, sign = rng.choice((("lt", "<"), ("gt", ">"), ("le", "<="), ("ge", ">=")))
    y = rng.choice(("y", "m"))
    bias = rng.choice((0, 0, 1, 2, 3))
    a, b = ("$signed(a)", "$signed(b)") if signed else ("a", "b")
    values = {
        "minimum": ("less ? a : b", "min(a, b)"),
        "maximum": ("less ? b : a", "max(a, b)"),
        "absolute difference": ("less ? b - a : a - b", "abs(a - b)"),
    }
    verilog, python = values[op]
    if bias:
        verilog = f"({verilog}) + {bias}"
    half, full = 1 << (width - 1), 1 << width
    lift = f"a, b = (x - {full} if x >= {half} else x for x in (a, b))" if signed else "pass"
    note = " plus " + str(bias) + f", modulo 2^{width}" if bias else ""
    return comb(
        "min_max",
        rng,
        params={"width": width, "op": op, "signed": signed, "flag": flag, "bias": bias},
        difficulty="easy",
        names=("min_max", "pick", "distance"),
        ports=(inp("a", width), inp("b", width), out(y, width), out(flag)),
        says=f"a and b are {'signed' if signed else 'unsigned'}. {y} is the {op} of a and b{note}. "
        f"{flag} is 1 when a {sign} b.",
        body=(
            "wire less;",
            f"assign less = {a} < {b};",
            f"assign {y} = {verilog};",
            f"assign {flag} = {a} {sign} {b};",
        ),
        expected=(
            "a, b = i['a'], i['b']",
            lift,
            f"return {{'{y}': {python} + {bias} & {full - 1}, '{flag}': int(a {sign} b)}}",
        ),
        tests={
            "test_equal": f"[dict(a=x, b=x) for x in range({min(full, 32)})]",
            "test_neighbours": f"[dict(a=x, b=x + 1) for x in range({min(full, 33) - 1})]",
        },
    )


def saturate(rng: random.Random) -> Draft:
    """A sum that stops at a limit, or a difference that stops at a floor."""
    width = rng.randint(3, 8)
    adds = rng.random() < 0.5
    top = (1 << width) - 1
    limit = rng.randint(top // 2, top) if adds else rng.randint(0, top // 2)
    y, flag = rng.choice(("y", "s")), rng.choice(("sat", "clip"))
    if adds:
        word, says = "sum", f"the sum a + b, but at most {limit}"
        body = ("assign t = a + b;", f"assign {flag} = t > {limit};")
        python = ("t = i['a'] + i['b']", f"clip = t > {limit}")
    else:
        word, says = "difference", f"the difference a - b, but at least {limit}"
        body = ("assign t = a - b;", f"assign {flag} = a < b + {limit};")
        python = ("t = i['a'] - i['b']", f"clip = t < {limit}")
    return comb(
        "saturate",
        rng,
        params={"width": width, "adds": adds, "limit": limit},
        difficulty="medium",
        names=("sat_add" if adds else "sat_sub", "clamp"),
        ports=(inp("a", width), inp("b", width), out(y, width), out(flag)),
        says=f"All numbers are unsigned. {y} is {says}. "
        f"{flag} is 1 when the exact {word} is {'above' if adds else 'below'} {limit}.",
        body=(
            f"wire [{width}:0] t;",
            *body,
            f"assign {y} = {flag} ? {width}'d{limit} : t[{width - 1}:0];",
        ),
        expected=(*python, f"return {{'{y}': {limit} if clip else t, '{flag}': int(clip)}}"),
        tests={
            "test_near_limit": f"[dict(a=x, b=abs({limit} - x) + d) for x in range({top + 1})"
            f" for d in (0, 1) if abs({limit} - x) + d <= {top}]",
            "test_b_zero": "vectors(20, b=0)",
            "test_below_limit": f"[dict(a=x, b={limit} - x - 1) for x in range({limit})]"
            if adds
            else f"[dict(a=x + {limit}, b=x + d) for x in range({top + 1 - limit}) for d in (0, 1)"
            f" if x + d <= {top}]",
        },
    )


def window(rng: random.Random) -> Draft:
    """Whether a number lies in a constant window, and on which side it falls out."""
    width = rng.randint(4, 10)
    top = (1 << width) - 1
    low = rng.randint(2, top // 2)
    high = rng.randint(low + 3, top - 2)
    open_low, open_high = rng.random() < 0.5, rng.random() < 0.5
    active = rng.choice((0, 1))
    flag, side = rng.choice((("hit", "above"), ("ok", "over")))
    left, right = (">" if open_low else ">="), ("<" if open_high else "<=")
    test = f"(d {left} {low}) && (d {right} {high})"
    words = (
        f"{'greater than' if open_low else 'at least'} {low} and "
        f"{'less than' if open_high else 'at most'} {high}"
    )
    return comb(
        "window",
        rng,
        params={
            "width": width,
            "least": low + int(open_low),
            "most": high - int(open_high),
            "high": high,
            "active": active,
        },
        difficulty="easy",
        names=("window", "in_range", "limits"),
        ports=(inp("d", width), out(flag), out(side)),
        says=f"d is unsigned. {flag} is {active} when d is {words}, otherwise {1 - active}. "
        f"{side} is 1 when d is greater than {high}.",
        body=(
            f"assign {flag} = {test};" if active else f"assign {flag} = !({test});",
            f"assign {side} = d > {high};",
        ),
        expected=(
            "d = i['d']",
            f"hit = d {left} {low} and d {right} {high}",
            f"return {{'{flag}': int(hit == {bool(active)}), '{side}': int(d > {high})}}",
        ),
        tests={
            "test_low_edge": f"[dict(d={low} + k) for k in (-1, 0, 1)]",
            "test_high_edge": f"[dict(d={high} + k) for k in (-1, 0, 1)]",
        },
    )


def scale_add(rng: random.Random) -> Draft:
    """A constant multiple of one input plus or minus another, plus a constant."""
    width = rng.randint(2, 6)
    scale, bias = rng.randint(2, 7), rng.randint(1, 15)
    minus = rng.random() < 0.4
    size = width + 4
    y = rng.choice(("y", "r"))
    sign = "-" if minus else "+"
    return comb(
        "scale_add",
        rng,
        params={"width": width, "scale": scale, "bias": bias, "minus": minus},
        difficulty="easy",
        names=("scale_add", "linear", "mac_const"),
        ports=(inp("a", width), inp("b", width), out(y, size)),
        says=f"All numbers are unsigned. {y} is {scale} times a {'minus' if minus else 'plus'} b, "
        f"plus {bias}, modulo 2^{size}.",
        body=(f"assign {y} = {scale} * a {sign} b + {bias};",),
        expected=(f"return {{'{y}': ({scale} * i['a'] {sign} i['b'] + {bias}) % {1 << size}}}",),
        tests={"test_a_zero": "vectors(20, a=0)", "test_b_zero": "vectors(20, b=0)"},
    )


ALU_OPS = {
    "a + b": "a + b",
    "a - b": "a - b",
    "b - a": "b - a",
    "a & b": "a & b",
    "a | b": "a | b",
    "a ^ b": "a ^ b",
    "~a": "~a",
    "a + 1": "a + 1",
    "b": "b",
}


def alu(rng: random.Random) -> Draft:
    """Four operations on two numbers, chosen by an opcode, with a zero flag."""
    width = rng.randint(3, 8)
    ops = rng.sample(list(ALU_OPS), 4)
    op, y = rng.choice(("op", "sel")), rng.choice(("y", "res"))
    table = "; ".join(f"{k}: {text}" for k, text in enumerate(ops))
    arms = [f"    2'd{k}: {y} = {text};" for k, text in enumerate(ops[:3])]
    picks = ", ".join(ALU_OPS[text] for text in ops)
    return comb(
        "alu",
        rng,
        params={"width": width, "ops": table},
        difficulty="medium",
        names=("alu", "mini_alu", "compute"),
        ports=(inp("a", width), inp("b", width), inp(op, 2), reg(y, width), out("zero")),
        says=f"{y} depends on {op}. {table}. Results wrap to {width} bits. "
        f"zero is 1 when {y} is 0.",
        body=(
            "always_comb begin",
            f"  case ({op})",
            *arms,
            f"    default: {y} = {ops[3]};",
            "  endcase",
            "end",
            f"assign zero = {y} == 0;",
        ),
        expected=(
            "a, b = i['a'], i['b']",
            f"r = ({picks})[i['{op}']] & {(1 << width) - 1}",
            f"return {{'{y}': r, 'zero': int(r == 0)}}",
        ),
        tests={
            "test_first_pair": f"vectors(20, {op}=0) + vectors(20, {op}=1)",
            "test_second_pair": f"vectors(20, {op}=2) + vectors(20, {op}=3)",
            "test_equal": f"[dict(a=x, b=x, {op}=k) for x in range(8) for k in range(4)]",
            "test_one_apart": f"[dict(a=x + 1, b=x, {op}=k) for x in range(7) for k in range(4)]",
        },
    )


FAMILIES = (add_sub, min_max, saturate, window, scale_add, alu)
