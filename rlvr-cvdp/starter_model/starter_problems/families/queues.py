"""Queues and stacks with flags."""

from __future__ import annotations

import random

from ..clocking import draw_clocking
from ..draft import Draft
from ..drafting import clocked, inp, out, reg
from ..style import span


def fifo(rng: random.Random) -> Draft:
    """A queue of two to eight words with full, empty and a fill flag."""
    clocking = draw_clocking(rng)
    size, width = rng.randint(1, 3), rng.randint(2, 8)
    depth = 1 << size
    mark = rng.randint(1, depth)
    push, pop = rng.choice((("push", "pop"), ("wr", "rd")))
    flag = rng.choice(("half", "mark"))
    return clocked(
        "fifo",
        rng,
        clocking,
        params={"depth": depth, "width": width, "mark": mark},
        difficulty="hard",
        names=("fifo", "queue", "buffer_q"),
        ports=(
            *(inp(push), inp(pop), inp("d", width), out("q", width)),
            *(out("full"), out("empty"), out(flag)),
        ),
        resets="empties the queue",
        says=f"A first-in first-out queue of {depth} words. {push} stores d unless full; {pop} "
        f"drops the oldest word unless empty; both may happen at one edge. q shows the oldest "
        f"word. full, empty: as named. {flag} is 1 while the queue holds at least {mark}.",
        body=(
            f"reg [{width - 1}:0] mem [0:{depth - 1}];",
            f"reg [{size}:0] wp, rp;",
            f"wire [{size}:0] n;",
            "assign n = wp - rp;",
            f"assign full = n == {size + 1}'d{depth};",
            f"assign empty = n == {size + 1}'d0;",
            f"assign {flag} = n >= {size + 1}'d{mark};",
            f"assign q = mem[rp[{size - 1}:0]];" if size > 1 else "assign q = mem[rp[0]];",
            *clocking.process(
                [f"wp <= {size + 1}'d0;", f"rp <= {size + 1}'d0;"],
                [
                    f"if ({push} && !full) begin",
                    f"  mem[wp[{size - 1}:0]] <= d;" if size > 1 else "  mem[wp[0]] <= d;",
                    f"  wp <= wp + {size + 1}'d1;",
                    "end",
                    f"if ({pop} && !empty) rp <= rp + {size + 1}'d1;",
                ],
            ),
        ),
        reset=("s.q = []",),
        step=(
            f"takes = i['{push}'] and len(s.q) < {depth}",
            f"if i['{pop}']:",
            "    s.q = s.q[1:]",
            "if takes:",
            "    s.q = [*s.q, i['d']]",
        ),
        outputs=(
            f"flags = {{'full': int(len(s.q) == {depth}), 'empty': int(not s.q)}}",
            f"flags['{flag}'] = int(len(s.q) >= {mark})",
            "return {**flags, 'q': s.q[0]} if s.q else flags",
        ),
        tests={
            "test_fill": f"vectors({depth + 2}, {push}=1, {pop}=0)",
            "test_fill_and_drain": f"vectors({depth + 1}, {push}=1, {pop}=0)"
            f" + vectors({depth + 2}, {push}=0, {pop}=1)",
            "test_both": f"vectors(1, {push}=1, {pop}=0) + vectors(12, {push}=1, {pop}=1)",
            "test_full_and_both": f"vectors({depth}, {push}=1, {pop}=0)"
            f" + vectors(4, {push}=1, {pop}=1)",
        },
        weights={push: 0.6},
    )


def stack(rng: random.Random) -> Draft:
    """A stack with a depth count; push or pop may win when both are asked for."""
    clocking = draw_clocking(rng)
    size, width = rng.randint(1, 3), rng.randint(2, 8)
    depth = 1 << size
    push_wins = rng.random() < 0.5
    push, pop = rng.choice((("push", "pop"), ("put", "get")))
    n = rng.choice(("n", "used"))
    one, last = f"{size + 1}'d1", f"{size + 1}'d{depth}"
    puts = [
        f"if ({push} && {n} != {last}) begin",
        f"  mem[{n}{f'[{size - 1}:0]' if size > 1 else '[0]'}] <= d;",
        f"  {n} <= {n} + {one};",
        "end",
    ]
    if not push_wins:
        puts[0] = f"else {puts[0]}"
        body = [f"if ({pop} && {n} != {size + 1}'d0) {n} <= {n} - {one};", *puts]
    else:
        body = [*puts, f"else if ({pop} && {n} != {size + 1}'d0) {n} <= {n} - {one};"]
    first, second = (push, pop) if push_wins else (pop, push)
    branches = {
        push: (f"i['{push}'] and len(s.q) < {depth}", "s.q = [*s.q, i['d']]"),
        pop: (f"i['{pop}'] and s.q", "s.q = s.q[:-1]"),
    }
    return clocked(
        "stack",
        rng,
        clocking,
        params={"depth": depth, "width": width, "push_wins": push_wins},
        difficulty="hard",
        names=("stack", "lifo", "pile"),
        ports=(inp(push), inp(pop), inp("d", width), out("q", width), reg(n, size + 1)),
        resets="empties the stack",
        says=f"A stack of {depth} words; {n} is how many it holds. {push} puts d on top and is "
        f"possible unless full; {pop} drops the top word and is possible unless empty. "
        f"If both are asked for and possible, only {first} happens. q shows the top word.",
        body=(
            f"reg [{width - 1}:0] mem [0:{depth - 1}];",
            f"wire {span(size)}top;",
            f"assign top = {n} - {one};",
            "assign q = mem[top];",
            *clocking.process([f"{n} <= {size + 1}'d0;"], body),
        ),
        reset=("s.q = []",),
        step=(
            f"if {branches[first][0]}:",
            f"    {branches[first][1]}",
            f"elif {branches[second][0]}:",
            f"    {branches[second][1]}",
        ),
        outputs=(
            f"used = {{'{n}': len(s.q)}}",
            "return {**used, 'q': s.q[-1]} if s.q else used",
        ),
        tests={
            "test_fill": f"vectors({depth + 2}, {push}=1, {pop}=0)",
            "test_fill_and_drain": f"vectors({depth + 1}, {push}=1, {pop}=0)"
            f" + vectors({depth + 2}, {push}=0, {pop}=1)",
            "test_both": f"vectors({depth + 2}, {push}=1, {pop}=1)"
            f" + vectors({depth + 2}, {push}=1, {pop}=0) + vectors(5, {push}=1, {pop}=1)",
        },
        weights={push: 0.6},
    )


FAMILIES = (fifo, stack)
