"""Selection: multiplexers, decoders, priority encoders, shifters with a chosen amount."""

from __future__ import annotations

import random

from ..draft import Draft
from ..drafting import comb, inp, out, reg


def mux(rng: random.Random) -> Draft:
    """Three or four inputs in a drawn order, an enable, and a value while disabled."""
    width = rng.randint(1, 8)
    count = rng.choice((3, 4))
    active = rng.choice((0, 1))
    idle = rng.choice((0, (1 << width) - 1, rng.randint(0, (1 << width) - 1)))
    order = rng.sample("abcd"[:count], count)
    y, sel, en = rng.choice(("y", "q")), rng.choice(("sel", "s")), rng.choice(("en", "ena"))
    words = ", ".join(f"{name} for {k}" for k, name in enumerate(order))
    if count == 3:
        words += f", {order[2]} for 3"
    arms = [f"    2'd{k}: {y} = {name};" for k, name in enumerate(order[:-1])]
    picks = ", ".join(f"i['{name}']" for name in [*order, order[-1]][:4])
    return comb(
        "mux",
        rng,
        params={
            "width": width,
            "order": "".join(order),
            "active": active,
            "idle": idle,
        },
        difficulty="easy",
        names=("mux", "chooser", "data_mux"),
        ports=(*(inp(n, width) for n in "abcd"[:count]), inp(sel, 2), inp(en), reg(y, width)),
        says=f"When {en} is {1 - active}, {y} is {width}'d{idle}. Otherwise {sel} chooses {y}: "
        f"{words}.",
        body=(
            "always_comb begin",
            f"  if ({'!' if active else ''}{en}) {y} = {width}'d{idle};",
            f"  else case ({sel})",
            *arms,
            f"    default: {y} = {order[-1]};",
            "  endcase",
            "end",
        ),
        expected=(
            f"if i['{en}'] == {1 - active}:",
            f"    return {{'{y}': {idle}}}",
            f"return {{'{y}': ({picks})[i['{sel}']]}}",
        ),
        tests={
            "test_disabled": f"vectors(30, {en}={1 - active})",
            "test_enabled": f"vectors(60, {en}={active})",
        },
    )


def decoder(rng: random.Random) -> Draft:
    """One-hot or thermometer code of a number, with polarity and an enable."""
    size = rng.choice((2, 3, 3))
    count = 1 << size
    mode = rng.choice(("bit", "below", "up to", "from"))
    offset = rng.randint(0, count - 1) if mode == "bit" else 0
    low_out, active = rng.random() < 0.5, rng.choice((0, 1))
    y, en = rng.choice(("y", "dec")), rng.choice(("en", "gate"))
    ones = (1 << count) - 1
    base = f"sel + {size}'d{offset}" if offset else "sel"
    forms = {
        "bit": (f"{count}'d1 << k", "1 << k"),
        "below": (f"({count}'d1 << k) - 1", "(1 << k) - 1"),
        "up to": (f"({count}'d2 << k) - 1", "(2 << k) - 1"),
        "from": (f"{count}'d{ones} << k", f"{ones} << k"),
    }
    verilog, python = forms[mode]
    where = f"bit (sel + {offset}) modulo {count}" if offset else "bit sel"
    words = {
        "bit": f"only {where}",
        "below": "every bit below bit sel",
        "up to": "every bit from 0 up to and including bit sel",
        "from": f"every bit from bit sel up to bit {count - 1}",
    }[mode]
    test = en if active else f"!{en}"
    inv = "~" if low_out else ""
    return comb(
        "decoder",
        rng,
        params={
            "size": size,
            "mode": mode,
            "offset": offset,
            "low_out": low_out,
            "active": active,
        },
        difficulty="easy",
        names=("decoder", "line_dec", "select_lines"),
        ports=(inp("sel", size), inp(en), out(y, count)),
        says=f"When {en} is {active}, {words} of {y} is active; otherwise no bit is. "
        f"Active bits of {y} are {int(not low_out)}, the others {int(low_out)}.",
        body=(
            f"wire [{size - 1}:0] k;",
            f"wire [{count - 1}:0] hot;",
            f"assign k = {base};",
            f"assign hot = {verilog};",
            f"assign {y} = {test} ? {inv}hot : {count}'d{ones if low_out else 0};",
        ),
        expected=(
            f"k = (i['sel'] + {offset}) % {count}",
            f"hot = ({python}) & {ones} if i['{en}'] == {active} else 0",
            f"return {{'{y}': hot{f' ^ {ones}' if low_out else ''}}}",
        ),
        tests={
            "test_enabled": f"[{{'sel': k, '{en}': {active}}} for k in range({count})]",
            "test_disabled": f"[{{'sel': k, '{en}': {1 - active}}} for k in range({count})]",
        },
    )


def priority_encoder(rng: random.Random) -> Draft:
    """Index of the highest or lowest active request, and whether there is one."""
    count = rng.randint(3, 7)
    size = (count - 1).bit_length()
    highest = rng.random() < 0.5
    low_in = rng.random() < 0.4
    none = rng.randint(0, (1 << size) - 1)
    flag_on = rng.choice((0, 1))
    idx, flag = rng.choice(("idx", "pos")), rng.choice(("valid", "any"))
    order = list(range(count))[:: -1 if highest else 1]
    tests = [f"{'!' if low_in else ''}req[{k}]" for k in order]
    chain = [
        f"  {'else ' if n else ''}if ({t}) {idx} = {size}'d{k};"
        for n, (t, k) in enumerate(zip(tests, order, strict=True))
    ]
    active = f"{'~' if low_in else ''}req"
    ones = (1 << count) - 1
    return comb(
        "priority_encoder",
        rng,
        params={
            "count": count,
            "highest": highest,
            "low_in": low_in,
            "none": none,
            "flag_on": flag_on,
        },
        difficulty="medium",
        names=("prio_enc", "first_one", "encoder"),
        ports=(inp("req", count), reg(idx, size), out(flag)),
        says=f"Requests are active {'low' if low_in else 'high'}. {idx} is the index of the "
        f"{'highest' if highest else 'lowest'} active bit of req, or {none} when there is none. "
        f"{flag} is {flag_on} when at least one bit is active, else {1 - flag_on}.",
        body=(
            "always_comb begin",
            *chain,
            f"  else {idx} = {size}'d{none};",
            "end",
            f"assign {flag} = ({active}) {'!=' if flag_on else '=='} {count}'d0;"
            if low_in
            else f"assign {flag} = {active} {'!=' if flag_on else '=='} {count}'d0;",
        ),
        expected=(
            f"r = i['req']{f' ^ {ones}' if low_in else ''}",
            f"bits = [k for k in range({count}) if r >> k & 1]",
            f"return {{'{idx}': {'max' if highest else 'min'}(bits, default={none}), "
            f"'{flag}': int(bool(bits) == {bool(flag_on)})}}",
        ),
        tests={"test_none": f"[dict(req={ones if low_in else 0})]"},
    )


SHIFTS = {
    "shift left": ("d << n", "d << n"),
    "shift right": ("d >> n", "d >> n"),
    "arithmetic shift right": ("$signed(d) >>> n", "(d - (d >> {t} & 1) * 2 * {h}) >> n"),
    "rotate left": ("(d << n) | (d >> ({w} - n))", "d << n | d >> {w} - n"),
    "rotate right": ("(d >> n) | (d << ({w} - n))", "d >> n | d << {w} - n"),
}


def shifter(rng: random.Random) -> Draft:
    """Two shift or rotate operations by a variable amount, chosen by a mode input."""
    width = rng.choice((4, 5, 6, 7, 8))
    size = 2 if width == 4 else rng.choice((2, 3))
    if width < 8 and size == 3:
        size = 2
    first, second = rng.sample(list(SHIFTS), 2)
    mode, y = rng.choice(("mode", "op")), rng.choice(("y", "q"))
    words = {"w": width, "t": width - 1, "h": 1 << (width - 1)}
    body = [SHIFTS[op][0].format(**words) for op in (first, second)]
    python = [SHIFTS[op][1].format(**words) for op in (first, second)]
    return comb(
        "shifter",
        rng,
        params={"width": width, "size": size, "first": first, "second": second},
        difficulty="medium",
        names=("shifter", "barrel", "shift_rot"),
        ports=(inp("d", width), inp("n", size), inp(mode), reg(y, width)),
        says=f"{y} is d moved by n places. When {mode} is 0: {first}. When {mode} is 1: {second}. "
        "Logical shifts fill with 0.",
        body=(
            "always_comb begin",
            f"  if (!{mode}) {y} = {body[0]};",
            f"  else {y} = {body[1]};",
            "end",
        ),
        expected=(
            "d, n = i['d'], i['n']",
            f"r = {python[1]} if i['{mode}'] else {python[0]}",
            f"return {{'{y}': r & {(1 << width) - 1}}}",
        ),
        tests={
            "test_mode_0": f"vectors(40, {mode}=0)",
            "test_mode_1": f"vectors(40, {mode}=1)",
            "test_no_shift": "vectors(20, n=0)",
        },
    )


def demux(rng: random.Random) -> Draft:
    """Data sent to one of three or four outputs in a drawn order, the others idle."""
    width = rng.randint(1, 6)
    count = rng.choice((3, 4))
    idle = rng.choice((0, (1 << width) - 1))
    order = rng.sample(range(count), count)
    sel, names = rng.choice(("sel", "to")), rng.choice(("y", "o"))
    ports = [f"{names}{k}" for k in range(count)]
    words = ", ".join(f"{ports[k]} for {n}" for n, k in enumerate(order))
    lines = [
        f"assign {ports[k]} = ({sel} == 2'd{order.index(k)}) ? d : {width}'d{idle};"
        for k in range(count)
    ]
    return comb(
        "demux",
        rng,
        params={"width": width, "order": "".join(map(str, order)), "idle": idle},
        difficulty="easy",
        names=("demux", "router", "spread"),
        ports=(inp("d", width), inp(sel, 2), *(out(p, width) for p in ports)),
        says=f"{sel} sends d to one output: {words}. "
        f"Every output that is not selected is {width}'d{idle}.",
        body=lines,
        expected=(
            f"y = dict.fromkeys(OUTPUTS, {idle})",
            f"if i['{sel}'] < {count}:",
            f"    y['{names}%d' % {tuple(order)}[i['{sel}']]] = i['d']",
            "return y",
        ),
        tests={
            "test_first": f"vectors(20, {sel}=0)",
            "test_last": f"vectors(20, {sel}=3)",
        },
    )


FAMILIES = (mux, decoder, priority_encoder, shifter, demux)
