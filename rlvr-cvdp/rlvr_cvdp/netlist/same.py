"""
Shows that an answer is the same circuit as the given design, even if its text differs.

Both are read as the simulator's preprocessor leaves them, without comments and attributes: yosys
sees no other text than the simulator. First their netlists are compared as they are, but for names
(inside/rlvr_same.py). Then yosys makes a miter of the two, in which abc merges what it can show to
be equal; the rest is constant 0 exactly where they are equal in each state that can come.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from attrs import evolve, frozen

from rlvr_cvdp.hdl.names import code, tokens
from rlvr_cvdp.hdl.ports import parameters_of
from rlvr_cvdp.results.plain import read_plain
from rlvr_cvdp.sandbox import Limits, SandboxLease

_READ = """\
read_verilog -sv -defer /code/src/.rlvr_{side}.sv
hierarchy -top {top} {parameters}
proc
flatten
{initial}
opt_expr
"""
_STASH = """\
memory
opt_clean
rename -top {side}
design -stash {side}
"""
_MITER = """\
design -copy-from gold gold
design -copy-from gate gate
select -set more gate/x:* {ports}
delete -port @more
miter -equiv -flatten gold gate miter
hierarchy -top miter
clk2fflogic
setundef -init -zero
opt_expr
design -save miter
"""
_WRITE = """\
design -load miter
setundef -undriven -{value}
opt -full
techmap
opt -fast
aigmap
opt_clean
write_aiger -zinit /rlvr/out/{value}.aig
"""
_STRUCTURE = """\
opt_merge
memory_collect
opt_clean
rename -top {side}
write_json /rlvr/out/{side}.json
design -reset
"""
_TRY = "read_aiger {0}; strash; sim -F 64 -W 8 -T 2 -L {0}.log"
"""Random inputs, which tell most wrong answers from the given design in some milliseconds."""
_ABC = "read_aiger {0}; strash; scorr; dc2; scorr; fraig; write_aiger {0}"
_EQUAL = re.compile(r"aig \d+ \d+ 0 1 0\n0\n")
_PLAIN = re.compile(r"[A-Za-z_]\w*")
_STARTS = re.compile(r"\binitial\b|\b(?:reg|logic|bit|int|integer)\b[^;()]*=")
"""Gives a register its first value; matches too often rather than too seldom."""


_CPU_S, _WALL_S = 4.0, 10.0
"""For each tool: an answer that is wrong waits for it. No given design that is public takes 1 s."""
_VALUES = ("zero", "one")
"""The values that stand for undefined bits; the designs must be equal with each."""
_LARGEST = 400_000
"""Characters of the given design's netlist above which no solver is asked."""


@frozen(kw_only=True)
class Circuit:
    """A design as one text after the preprocessor; `ports` must be equal in both designs."""

    text: str
    ports: Collection[str]

    def written(self) -> str:
        """The text without comments and attributes."""
        found = tokens(self.text)
        return "".join(" " if token.kind == "comment" else token.text for token in found)


async def is_same_circuit(
    given: Circuit, answer: Circuit, top: str, *, asked: Collection[str], is_known: bool,
    slot: SandboxLease, limits: Limits, python: str,
) -> bool:  # fmt: skip
    """
    Whether two designs are shown to do the same; False if nothing can be shown.

    Ignored differences: initial values of registers if the given design has none (they begin at 0),
    ports of neither design, and delays. Parameters that both designs have or that `asked` names
    also get other values, and a difference with these counts.

    Args:
        given: The design before the answer.
        answer: The answer.
        top: Their top module.
        asked: Words of the harness.
        is_known: They are known to be equal with their own parameters.
        slot: A slot; files of their own are put into its tree, and taken out again.
        limits: Of the slot; each tool has four seconds of processor time at most.
        python: A Python inside of the slot.
    """
    named = [name for name in given.ports if _PLAIN.fullmatch(name)]
    if not named or len(named) < len(given.ports) or not _PLAIN.fullmatch(top):
        return is_known
    kept = dict.fromkeys([*named, *answer.ports])
    places = {"gold": given, "gate": answer}
    src = slot.folder / "tree" / "src"
    for side, design in places.items():
        (src / f".rlvr_{side}.sv").write_text(design.written(), encoding="utf-8", errors="replace")
    has_starts = _STARTS.search(" ".join(token.text for token in code(given.text))) is not None
    old, new = parameters_of(given.text, top), parameters_of(answer.text, top)
    new = {name: value for name, value in new.items() if name in old or name in asked}
    place = _Place(
        slot=slot, limits=limits, python=python, top=top, ports=kept, has_starts=has_starts
    )
    is_same = is_known or await place.compare({}) is True
    for factor, term in ((2, 0), (1, 1)) if new else ():
        other = {name: factor * value + term for name, value in new.items()}
        sides = {"gold": {n: v for n, v in other.items() if n in old}, "gate": other}
        if is_same:
            is_same = await place.compare(sides) is not False
    for side in places:
        (src / f".rlvr_{side}.sv").unlink(missing_ok=True)
    return is_same


@frozen(kw_only=True)
class _Place:
    """The slot in which the two are compared, and how they are read there."""

    slot: SandboxLease
    limits: Limits
    python: str
    top: str
    ports: Collection[str]
    has_starts: bool

    async def yosys(self, script: str) -> bool:
        (self.slot.folder / "tree" / "src" / ".rlvr_same.ys").write_text(script, encoding="utf-8")
        words = ["/rlvr/real/yosys", "-q", "-s", "/code/src/.rlvr_same.ys"]
        return await runs(words, self.slot, self.limits)

    async def compare(self, parameters: Mapping[str, Mapping[str, int]]) -> bool | None:
        """Whether the two are shown to be equal with these parameters; None if no tool can tell."""
        reads = {}
        for side in ("gold", "gate"):
            sets = [f"-chparam {name} {value}" for name, value in parameters.get(side, {}).items()]
            reads[side] = _READ.format(
                side=side,
                top=self.top,
                parameters=" ".join(sets),
                initial="" if self.has_starts else "setattr -unset init w:*",
            )
        out = self.slot.folder / "out"
        script = "".join(text + _STRUCTURE.format(side=side) for side, text in reads.items())
        if not await self.yosys(script):
            return None
        words = [self.python, "-I", "-S", "/rlvr/python/rlvr_same.py", *self.ports]
        if await runs(words, self.slot, self.limits):
            return True
        if len(read_plain(out / "gold.json", most=_LARGEST)) == _LARGEST:
            return None
        script = "".join(text + _STASH.format(side=side) for side, text in reads.items())
        script += _MITER.format(ports=" ".join(f"gate/w:{name} %d" for name in self.ports))
        script += "".join(_WRITE.format(value=value) for value in _VALUES)
        made = [out / f"{value}.aig" for value in _VALUES]
        for place in made:
            place.unlink(missing_ok=True)
        if not await self.yosys(script):
            return None
        for place in made:
            inside, said = f"/rlvr/out/{place.name}", out / f"{place.name}.log"
            said.unlink(missing_ok=True)
            await runs(["yosys-abc", "-q", _TRY.format(inside)], self.slot, self.limits)
            if read_plain(said, most=7) == "snl_SAT":
                return False
            # If abc runs out of time, the file stays as yosys wrote it: not shown to be equal.
            await runs(["yosys-abc", "-q", _ABC.format(inside)], self.slot, self.limits)
            if not _EQUAL.match(read_plain(place, most=200)):
                return False
        return True


async def runs(argv: list[str], slot: SandboxLease, limits: Limits) -> bool:
    """Whether a tool ends with 0 within four seconds of processor time, ten with waiting."""
    wall_s = min(limits.wall_s, _WALL_S)  # a text may include a pipe
    limits = evolve(limits, cpu_s=min(limits.cpu_s, _CPU_S), wall_s=wall_s)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/code/rundir"}
    ended = await slot.run(argv, environment=environment, limits=limits)
    return ended.rc == 0
