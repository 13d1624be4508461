"""Looks for what a compiled simulation could do beyond simulating the design.

The RTL of an answer can hide a system task behind macros, but not from the compiled form: in
`sim.vvp` every call has its name in plain text. Refused are calls of any system task that is not
known to be harmless (files, the shell), `force` of what is not the answer's own register, and
foreign VPI modules. The problem's own,
unchanged files may call what their text calls: the compiled form names the file of each call.

Honest debugging that reaches out is not refused but turned aside (`quieted`): what an answer dumps
goes to a file that nobody reads, its log files to /dev/null, and to its questions for plusargs the
answer is that there are none.

Standard library only: it also runs inside the sandbox (inside/rlvr_build.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

_NAMES = """
display displayb displayh displayo write writeb writeh writeo strobe strobeb strobeh strobeo
monitor monitorb monitorh monitoro monitoron monitoroff time stime realtime simtime abstime
timeformat printtimescale timezero finish stop fatal error warning info random urandom
urandom_range mti_random mti_dist_uniform dist_chi_square dist_erlang dist_exponential dist_normal
dist_poisson dist_t dist_uniform itor rtoi realtobits bitstoreal bitstoshortreal shortrealtobits
sformat sformatf swrite swriteb swriteh swriteo sscanf countdrivers countbits countones isunknown
onehot onehot0 dimensions unpacked_dimensions high low left right increment size bits clog2 ln
log10 exp sqrt pow floor ceil sin cos tan asin acos atan atan2 hypot sinh cosh tanh asinh acosh
atanh abs min max q_initialize q_add q_remove q_full q_exam signed unsigned cast getpattern
dumpvars dumpon dumpoff dumpall dumplimit dumpflush sampled past rose fell stable changed typename
exit ivlh_attribute_event ivlh_rising_edge ivlh_falling_edge ivlh_shift_left ivlh_shift_right
assertoff asserton assertkill assertcontrol assertpasson assertpassoff assertfailon assertfailoff
"""
HARMLESS = frozenset(f"${name}" for name in _NAMES.split())
_HARMLESS_GROUPS = re.compile(r"\$(ivl_\w+\$\w+|(async|sync)\$(and|nand|or|nor)\$(array|plane))")
_KNOWN_MODULES = {"system", "vhdl_sys", "vhdl_textio", "v2005_math", "va_math", "v2009"}
_CALL = re.compile(r'(?:%vpi_(?:call|func)\S*|\.sfunc\S*)\s+\d+\s+\d+\s+"(\$[^"]+)"(.*)')
_FILE = re.compile(r"(?:%vpi_(?:call|func)\S*|\.sfunc\S*)\s+(\d+)\s")
_PRINT = re.compile(r"\$f(?:flush|close|error|eof|(?:display|write|strobe|monitor)[bho]?)")
_MONITOR = re.compile(r"\$fmonitor[bho]?")
_STACKS = re.compile(r"\{(\d+) (\d+) (\d+)\};?$")
_SCOPE = re.compile(r'(S_\w+) \.scope \w+, "[^"]*" "[^"]*" (\d+) \d+(?:, (\d+) \d+)?')
"""Where an instance stands, and where its module is defined, if that is another place."""
_INSIDE = re.compile(r"\.scope (S_\w+);")
_INPUT = re.compile(r'\.port_info \d+ /(?:INPUT|INOUT) \d+ "([^"]+)"')
_REGISTER = re.compile(r'(v\w+?)(?:_\d+)? \.var\S* "([^"]+)"')
_FORCE = re.compile(r"%force\S* (v\w+?)(?:_\d+)?[;,]")
_PLUSARGS = ("$test$plusargs", "$value$plusargs")
_CONSOLE = (1, 0x8000_0001, 0x8000_0002)
_CONSOLES = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")
_ARGUMENT = re.compile(r',? ("(?:[^"\\]|\\.)*"|S<[^>]*>|&A<[^>]*>|[^,{ ;]+)')
_NUMBER = re.compile(r"(?:\d+'s?b|[-+]?C4<)([01]{1,64})>?")
_VARIABLE = re.compile(r"(\w+) \.(?:var|net)\b")
_PARAMETER = re.compile(r'(\w+) \.param/\w+ "[^"]*" [\d ]+, (.*);')
_CONSTANT = re.compile(r"(\w+) \.functor BUFT 1, C4<([01]+)>, C4<0>, C4<0>, C4<0>;")
_WAVES = re.compile(
    r"(?:.*/)?[^/.]*|.*\.(?:e?vcd|fst|lx[t2]2?|dump|waves?|wlf|vpd|shm|ghw|trn|fsdb)"
)
_LOG = re.compile(r".*\.(?:log|txt|csv|rpt|out|dat|hex|mem)|\w+")
_TABLE = re.compile(r"[\w-]+\.(?:txt|dat|hex|mem|bin|init|data|rom)")
_DATA = re.compile(r"(?:/code/|(?:\.\.?/)*)((?:rtl|verif|docs)/[\w./-]+)")
_MODE = re.compile(r', "[wa][b+]*"(?: \{|$)| \{|$')
_SINK, _NOWHERE = '"/tmp/rlvr_answer.vcd"', '"/dev/null"'
_NO_FILE = "32'sb" + 32 * "0"
_NO_PLUSARG = "rlvr has none of these "
_TASK = re.compile(r"\$[a-zA-Z_][\w$]*|\bforce\b")
_WORD = re.compile(r"`(\w+)(?:[ \t]+(\w+))?")
_DIRECTIVES = {
    "timescale", "default_nettype", "resetall", "celldefine", "endcelldefine", "undef", "elsif",
    "else", "unconnected_drive", "nounconnected_drive", "begin_keywords", "end_keywords",
    "__FILE__", "__LINE__",
}  # fmt: skip


class Call(NamedTuple):
    """
    What a line of a compiled simulation does beyond simulating: words, task, number of its file.

    `place` is the line's number. `line` is what may stand in its place where the task is one that
    can be turned aside; `is_console` that it writes to a number which means the console, or
    nothing, as long as nothing opens a file: only then it is turned aside. `target` is the file of
    the register that it forces.
    """

    words: str
    task: str = ""
    file: int = 0
    place: int = 0
    line: str = ""
    is_console: bool = False
    target: int = -1


def scan(
    lines: Iterable[str],
    trusted: Mapping[str, Collection[str]],
    allowed: Collection[str] = (),
    readable: Collection[str] = (),
    own: Collection[str] = (),
) -> list[str]:
    """
    What is wrong with a compiled simulation, in words; empty where nothing is.

    Args:
        lines: The text of `sim.vvp`, which ends with the names of the files.
        trusted: Files that no answer wrote, each with the system tasks that it may call.
        allowed: Further system tasks that the problem itself asks for (`$test$plusargs`).
        readable: Files of the problem's tree that an answer may read into a memory.
        own: Files that the answer wrote, and nothing else claims to be.
    """
    calls = _foreign(lines, trusted, allowed, readable, own)
    return list(dict.fromkeys(call.words for call in calls if not call.line))


def quieted(
    lines: Sequence[str], trusted: Mapping[str, Collection[str]], allowed: Collection[str] = ()
) -> list[str]:
    """The lines of a simulation, with those of an answer's calls turned aside that can be."""
    changed = list(lines)
    for call in _foreign(lines, trusted, allowed, ()):
        if call.line:
            changed[call.place] = call.line + "\n"
    return changed


def _foreign(
    lines: Iterable[str],
    trusted: Mapping[str, Collection[str]],
    allowed: Collection[str],
    readable: Collection[str],
    own: Collection[str] = (),
) -> list[Call]:
    """The calls of files that may not make them."""
    reader = _Reader(allowed, readable)
    calls = [call for place, line in enumerate(lines) for call in reader.read(line.strip(), place)]
    files = dict(enumerate(reader.files or []))
    foreign = [
        c
        for c in calls
        if c.task not in trusted.get(files.get(c.file, ""), ())
        and not (c.target >= 0 and os.path.realpath(files.get(c.target, "")) in own)
    ]
    opens = any("open" in call.task and not (call.line and call in foreign) for call in calls)
    return [call for call in foreign if opens or not call.is_console]


class _Reader:
    """Reads a simulation line by line; remembers what parameters and constants are."""

    def __init__(self, allowed: Collection[str], readable: Collection[str]) -> None:
        self._allowed, self._readable = allowed, readable
        self._values: dict[str, str] = {}
        self._variables: set[str] = set()
        self._constants: dict[str, int] = {}
        self._scopes: dict[str, int] = {}
        self._registers: dict[str, int] = {}
        self._file, self._inputs = -1, set[str]()
        self.files: list[str] | None = None

    def read(self, text: str, place: int) -> list[Call]:
        """What a line does that is not known to be harmless."""
        if self.files is not None:
            self.files.append(text.rstrip(";").strip('"'))
        elif text.startswith(":file_names"):
            self.files = []
        elif text.startswith(":vpi_module"):
            name = text.rpartition("/")[2].partition(".")[0].strip('";')
            return [] if name in _KNOWN_MODULES else [Call(f"loads the VPI module {name}")]
        elif found := _SCOPE.match(text):
            self._file = self._scopes[found[1]] = int(found[3] or found[2])
            self._inputs = set()
        elif found := _INPUT.match(text):
            self._inputs.add(found[1])
        elif text.startswith("%force"):
            found = _FORCE.match(text)
            target = self._registers.get(found[1], -1) if found else -1
            return [Call("forces a signal", "force", self._file, place, target=target)]
        elif found := _INSIDE.match(text):
            self._file = self._scopes.get(found[1], -1)
        elif found := _VARIABLE.match(text):
            self._variables.add(found[1])
            if (register := _REGISTER.match(text)) and register[2] not in self._inputs:
                self._registers[register[1]] = self._file
        elif found := _PARAMETER.match(text):
            self._values[found[1]] = found[2]
        elif found := _CONSTANT.match(text):
            self._constants[found[1]] = len(found[2])
        elif "%vpi" in (code := text.partition('"')[0]) or ".sfunc" in code:
            return self._call(text, place)
        return []

    def _call(self, text: str, place: int) -> list[Call]:
        found, file = _CALL.search(text), _FILE.search(text)
        if found is None or file is None:
            return [Call(f"calls what cannot be read: {text[:60]}")]
        name = found[1]
        if name in HARMLESS or name in self._allowed or _HARMLESS_GROUPS.fullmatch(name):
            return []
        call = Call(f"calls {name}", name, int(file[1]), place)
        if _MONITOR.fullmatch(name) and (stacks := _STACKS.search(text)):
            # Icarus has no such task, and would end there: it drops the arguments instead.
            counts = zip(("vec4", "real", "str"), stacks.groups(), strict=True)
            pops = [f"%pop/{kind} {count};" for kind, count in counts if count != "0"]
            return [call._replace(line="\n".join(pops) or "%noop;")]
        start = found.start(2)
        if ".sfunc" in text.partition('"')[0]:
            return [call._replace(line=self._silent(text, place) if name in _PLUSARGS else "")]
        if "%vpi_func" in text:  # its width, or nothing for a real one, stands before the rest
            start += len(text[start:]) - len(text[start:].lstrip(" 0123456789"))
        first = _ARGUMENT.match(text, start)
        written = first[1] if first else ""
        value = self._values.get(written, written)
        is_known = value != written or written[:1] in ('"', "S") or written in self._variables
        name_of = value[1:-1] if value.startswith('"') else ""
        head, rest = (text[: first.start(1)], text[first.end() :]) if first else (text, "")
        line = ""
        if name == "$dumpfile" and (not first or (is_known and _WAVES.fullmatch(name_of))):
            line = head + _SINK + rest if first else ""
            return [call._replace(line=line)] if first else []
        is_question = rest.startswith(" {") if name == _PLUSARGS[0] else "%" in (name_of or "%")
        if name in _PLUSARGS and first and is_known and is_question:
            line = f'{head}"{_NO_PLUSARG}{name_of or "%d"}"{rest}'
        elif name in ("$fopen", "$writememh", "$writememb") and first:
            # A name that is made while it runs leads nowhere, too, whatever it would be.
            is_log = not name_of or name_of in _CONSOLES or _LOG.fullmatch(name_of)
            is_write = name != "$fopen" or _MODE.match(rest)
            line = head + _NOWHERE + rest if is_log and is_write else ""
        elif name in ("$readmemh", "$readmemb"):
            data = _DATA.fullmatch(name_of)
            if data and ".." not in data[1] and data[1] in self._readable:
                return []
            line = head + _NOWHERE + rest if _TABLE.fullmatch(name_of) else ""
        elif _PRINT.fullmatch(name):
            number = _NUMBER.fullmatch(value)
            if not first or (number and int(number[1], 2) in _CONSOLE):
                return []  # standard output and error, which are open without $fopen
            # Where a file is open, whatever number it is means none of its descriptors.
            is_variable = written in self._variables or written.startswith("&A<")
            line = head + _NO_FILE + rest if is_variable else ""
            return [call._replace(line=line, is_console=True)]
        return [call._replace(line=line)]

    def _silent(self, text: str, place: int) -> str:
        """A question for a plusarg in a continuous assignment, for one that cannot be there."""
        head, _, label = text.rstrip(";").rpartition(", ")
        bits = self._constants.get(label, 0)
        if not bits or bits % 8:
            return ""
        constant = f"C4<{'01111111' * (bits // 8)}>, C4<0>, C4<0>, C4<0>"
        return f"L_rlvr{place} .functor BUFT 1, {constant};\n{head}, L_rlvr{place};"


def tasks_of(text: str) -> set[str]:
    """
    System tasks that the text of a file calls, and `force`; none where another could put some in.

    That is so where it includes files, and where it uses macros that it does not itself define,
    before and unconditionally.
    """
    own: set[str] = set()
    depth = 0
    for word, name in _WORD.findall(text):
        if word in ("ifdef", "ifndef"):
            depth += 1
        elif word == "endif":
            depth -= 1
        elif word == "define":
            own |= set() if depth else {name}
        elif word not in _DIRECTIVES | own:
            return set()
    return set(_TASK.findall(text))
