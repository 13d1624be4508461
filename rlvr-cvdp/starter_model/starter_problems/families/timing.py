"""Time made by counting: pulse width modulation, dividers, watchdogs."""

from __future__ import annotations

import random

from ..clocking import draw_clocking
from ..draft import Draft
from ..drafting import clocked, inp, out, reg


def pwm(rng: random.Random) -> Draft:
    """A counter of a period compared with a duty input."""
    clocking = draw_clocking(rng)
    period = rng.randint(4, 24)
    width = (period - 1).bit_length()
    out_on, late = rng.choice((0, 1)), rng.random() < 0.3
    duty, y = rng.choice(("duty", "level")), rng.choice(("pwm", "y"))
    sign = "<" if not late else ">="
    python = f"s.n {sign} i['{duty}']"
    verilog = f"n {sign} {duty}"
    return clocked(
        "pwm",
        rng,
        clocking,
        params={"period": period, "below": (out_on == 1) != late},
        difficulty="medium",
        names=("pwm_gen", "dimmer", "duty_gen"),
        ports=(inp(duty, width), out(y), out("first")),
        resets="sets the counter n to 0",
        says=f"n counts from 0 to {period - 1} and starts again at 0, one step a clock. "
        f"{y} is {out_on} while n is {'less than' if not late else 'at least'} {duty}, "
        f"else {1 - out_on}. first is 1 while n is 0.",
        body=(
            f"reg [{width - 1}:0] n;",
            *clocking.process(
                [f"n <= {width}'d0;"],
                [f"if (n == {width}'d{period - 1}) n <= {width}'d0;", f"else n <= n + {width}'d1;"],
            ),
            f"assign {y} = {verilog if out_on else f'!({verilog})'};",
            f"assign first = n == {width}'d0;",
        ),
        reset=("s.n = 0",),
        step=(f"s.n = (s.n + 1) % {period}",),
        outputs=(f"return {{'{y}': int(({python}) == {bool(out_on)}), 'first': int(s.n == 0)}}",),
        tests={
            "test_half": f"vectors({2 * period}, {duty}={period // 2})",
            "test_sweep": f"[{{'{duty}': d}} for d in range({1 << width}) for _ in range(5)]",
            "test_off": f"vectors({period + 2}, {duty}=0)",
        },
    )


def divider(rng: random.Random) -> Draft:
    """A strobe each so many enabled cycles, and a square wave that toggles with it."""
    clocking = draw_clocking(rng)
    count = rng.randint(3, 20)
    width = (count - 1).bit_length()
    active, start = rng.choice((0, 1)), rng.choice((0, 1))
    at = rng.choice((0, count - 1))
    tick, wave = rng.choice(("tick", "stb")), rng.choice(("wave", "sq"))
    en = rng.choice(("en", "ce"))
    return clocked(
        "divider",
        rng,
        clocking,
        params={"count": count, "active": active, "start": start, "at": at},
        difficulty="medium",
        names=("divider", "clk_div", "strobe"),
        ports=(inp(en), out(tick), reg(wave)),
        resets=f"sets the counter n to 0 and {wave} to {start}",
        says=f"While {en} is {active}, n counts from 0 to {count - 1} and starts again at 0; "
        f"{wave} toggles each time n returns to 0. Otherwise both hold. "
        f"{tick} is 1 while n is {at}.",
        body=(
            f"reg [{width - 1}:0] n;",
            *clocking.process(
                [f"n <= {width}'d0;", f"{wave} <= 1'b{start};"],
                [
                    f"if ({'' if active else '!'}{en}) begin",
                    f"  if (n == {width}'d{count - 1}) begin",
                    f"    n <= {width}'d0;",
                    f"    {wave} <= ~{wave};",
                    "  end",
                    f"  else n <= n + {width}'d1;",
                    "end",
                ],
            ),
            f"assign {tick} = n == {width}'d{at};",
        ),
        reset=(f"s.n, s.wave = 0, {start}",),
        step=(
            f"if i['{en}'] == {active}:",
            f"    s.n = (s.n + 1) % {count}",
            "    s.wave ^= int(s.n == 0)",
        ),
        outputs=(f"return {{'{tick}': int(s.n == {at}), '{wave}': s.wave}}",),
        tests={
            "test_runs": f"vectors({2 * count + 2}, {en}={active})",
            "test_holds": f"vectors({count - 1}, {en}={active}) + vectors(4, {en}={1 - active})",
        },
        weights={en: 0.8 if active else 0.2},
    )


def watchdog(rng: random.Random) -> Draft:
    """An alarm after so many cycles without a kick, kept or not until the next kick."""
    clocking = draw_clocking(rng)
    limit = rng.randint(3, 20)
    width = limit.bit_length()
    kick_on, alarm_on, restarts = rng.choice((0, 1)), rng.choice((0, 1)), rng.random() < 0.5
    kick, alarm = rng.choice(("kick", "alive")), rng.choice(("alarm", "bark"))
    test = f"if ({'' if kick_on else '!'}{kick}) n <= {width}'d0;"
    if restarts:
        rule = f"At {limit}, n becomes 0 at the next clock instead of going up"
        body = [
            test,
            f"else if (n == {width}'d{limit}) n <= {width}'d0;",
            f"else n <= n + {width}'d1;",
        ]
        step = f"s.n = (s.n + 1) % {limit + 1}"
    else:
        rule = f"At {limit}, n stays"
        body = [test, f"else if (n != {width}'d{limit}) n <= n + {width}'d1;"]
        step = f"s.n = min(s.n + 1, {limit})"
    return clocked(
        "watchdog",
        rng,
        clocking,
        params={"limit": limit, "kick_on": kick_on, "alarm_on": alarm_on, "restarts": restarts},
        difficulty="medium",
        names=("watchdog", "wdt", "guard"),
        ports=(inp(kick), out(alarm)),
        resets="sets the counter n to 0",
        says=f"When {kick} is {kick_on}, n becomes 0. Otherwise n goes up by 1. {rule}. "
        f"{alarm} is {alarm_on} while n is {limit}, else {1 - alarm_on}.",
        body=(
            f"reg [{width - 1}:0] n;",
            *clocking.process([f"n <= {width}'d0;"], body),
            f"assign {alarm} = n {'==' if alarm_on else '!='} {width}'d{limit};",
        ),
        reset=("s.n = 0",),
        step=(
            f"if i['{kick}'] == {kick_on}:",
            "    s.n = 0",
            "else:",
            f"    {step}",
        ),
        outputs=(f"return {{'{alarm}': int((s.n == {limit}) == {bool(alarm_on)})}}",),
        tests={
            "test_no_kick": f"vectors({2 * limit + 4}, {kick}={1 - kick_on})",
            "test_just_in_time": f"(vectors({limit - 1}, {kick}={1 - kick_on})"
            f" + vectors(1, {kick}={kick_on})) * 2 + vectors({limit + 2}, {kick}={1 - kick_on})",
            "test_kick_at_alarm": f"vectors({limit}, {kick}={1 - kick_on})"
            f" + vectors(1, {kick}={kick_on}) + vectors({limit + 2}, {kick}={1 - kick_on})",
        },
        weights={kick: 0.06 if kick_on else 0.94},
    )


FAMILIES = (pwm, divider, watchdog)
