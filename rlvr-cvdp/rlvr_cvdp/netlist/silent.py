"""
Takes the words out of an answer: the same design, but none of its text reaches a tool's log.

A harness reads its counts from what yosys prints. There an answer may speak too: by tasks that
print, names, strings and file names. What a score counts must be there as well when it cannot
(`counted`). No pattern of what is said is involved: every way to speak is taken away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rlvr_cvdp.hdl.names import Token, defined_names, tokens
from rlvr_cvdp.problem import CvdpProblem

_VALUES = """
abs acos allconst allseq anyconst anyseq asin atan atan2 bits cast ceil changed clog2 cos countbits
countones dimensions exp fell floor global_clock high hypot increment initstate isunknown itor left
ln log10 low max min onehot onehot0 past pow random readmemb readmemh realtime right rose rtoi
sampled signed sin size sqrt stable stime tan time unpacked_dimensions unsigned urandom
"""
_IGNORED = "strobe monitor stop finish dumpfile dumpvars dumpon dumpoff dumpall"
_DUMB = frozenset(f"${name}" for name in (_VALUES + _IGNORED).split())
"""Functions, which print nothing, and tasks that yosys ignores whatever their arguments are."""
_WORD = re.compile(r"\w*\Z")
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"?', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "v": "\v", "f": "\f", "a": "\a", "r": "\r"}


def without_words(problem: CvdpProblem, files: Mapping[str, str], tool: str) -> dict[str, str]:
    """
    The files for a scored call of `tool`, unchanged if they print nothing.

    For "verilator" the comments that silence it are taken away, as far as no given file has them.
    For yosys: tasks that print, `line`, strings, and names that no given file has.
    """
    given = "\n".join([*problem.context.values(), *problem.harness.values()])
    if tool == "verilator":
        return {path: _unsilenced(text, given) for path, text in files.items()}
    known = set(re.findall(r"\w+", given))
    joined = "\n".join(files.values())
    macros = set(re.findall(r"`\s*(\w+)", joined))
    own = {name for text in files.values() for name in defined_names(text)} - known - macros
    escaped = {token.text for token in tokens(joined) if token.kind == "escaped"}
    odd = {name for name in escaped if not _WORD.match(name[1:]) and name not in given}
    names = {name: f"rlvr_m{n}" for n, name in enumerate(sorted(own))}
    names |= {f"\\{name}": f"\\{new}" for name, new in names.items()}
    names |= {name: f"\\rlvr_n{n}" for n, name in enumerate(sorted(odd))}
    return {path: _Silencer(names).silenced(text) for path, text in files.items()}


def _unsilenced(text: str, given: str) -> str:
    """The text without comments and directives for Verilator, except those of given files."""
    kept = []
    for token in tokens(text):
        is_pragma = token.kind == "comment" and "verilator" in token.text
        if is_pragma and token.text not in given:
            kept.append(re.sub(r"[^\n]+", " ", token.text))
        else:
            kept.append("" if token.text.startswith("`verilator") else token.text)
    return "".join(kept)


class _Silencer:
    """Takes the words out of one file."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._found: list[Token] = []
        self._closers: dict[int, int] = {}

    def silenced(self, text: str) -> str:
        """The text without words of its own."""
        self._found = tokens(text)
        opened: list[int] = []
        for index, token in enumerate(self._found):
            if token.text == "(":
                opened.append(index)
            elif token.text == ")" and opened:
                self._closers[opened.pop()] = index
        made: list[str] = []
        place, is_file = 0, 0
        while place < len(self._found):
            token = self._found[place]
            place += 1
            if token.kind == "macro" and token.text == "`line":
                place = self._line_end(place)
            elif token.kind == "system" and token.text not in _DUMB:
                end = self._arguments_end(place)
                # Where a macro holds the arguments, a task that is ignored takes them.
                made.append('$write("")' if end > place else "$dumpvars")
                place = end
            elif token.kind == "string":
                made.append(token.text if place <= is_file else _number(token.text))
            elif token.kind == "comment" and token.text.startswith("(*"):
                made.append(_STRING.sub(_plain, token.text))
            else:
                if token.text in ("`include", "$readmemh", "$readmemb") and place > is_file:
                    is_file = self._line_end(place)
                made.append(self._names.get(token.text, token.text))
        return "".join(made)

    def _line_end(self, place: int) -> int:
        """The place of the first blank with a line's end."""
        while place < len(self._found) and "\n" not in self._found[place].text:
            place += 1
        return place

    def _arguments_end(self, place: int) -> int:
        """The place after the brackets that follow, `place` itself if none follow."""
        start = place
        while start < len(self._found) and self._found[start].kind in ("blank", "comment"):
            start += 1
        return self._closers.get(start, place - 1) + 1


def _plain(match: re.Match[str]) -> str:
    """A string of an attribute; empty if it is more than a word."""
    return match[0] if _WORD.match(match[0].strip('"')) else '""'


def _number(text: str) -> str:
    """A string as the number that it stands for; a single word is left."""
    inner = text.removeprefix('"').removesuffix('"')
    if _WORD.match(inner):
        return text
    said = _ESCAPE.sub(
        lambda m: chr(int(m[1], 8) % 256) if m[1] else _LETTERS.get(m[2], m[2]), inner
    )
    data = said.encode(errors="replace")
    return f"{8 * len(data)}'h{data.hex()}"
