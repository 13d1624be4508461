"""Verilog and SystemVerilog text as tokens: what is code, and what must never be touched."""

from __future__ import annotations

import re
from typing import Literal

from attrs import frozen

Kind = Literal[
    "space", "comment", "string", "directive", "attribute", "number", "word", "system", "symbol"
]

_DIRECTIVE_LINES = (
    "define|undef|include|timescale|ifdef|ifndef|elsif|line|pragma|default_nettype|begin_keywords"
)
_TOKEN = re.compile(
    rf"""
    (?P<space>\s+)
  | (?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
  | (?P<string>"(?:\\.|[^"\\\n])*(?:"|(?=\n)|\Z))
  | (?P<directive>`(?:{_DIRECTIVE_LINES})\b(?:\\\r?\n|//[^\n]*|[^\n\\]|\\)*|`[A-Za-z_]\w*|`.)
  | (?P<attribute>\(\*(?!\s*\)).*?\*\))
  | (?P<number>
        (?:\d[\d_]*\s*)?'\s*[sS]?[bBoOdDhH]\s*[0-9a-fA-FxXzZ?_]+
      | '[01xXzZ](?!\w)
      | \d[\d_]*\.\d[\d_]*(?:[eE][+-]?\d+)?
      | \d[\d_]*(?:[a-z]+)?
    )
  | (?P<word>[A-Za-z_][\w$]*|\\\S+)
  | (?P<system>\$[A-Za-z_][\w$]*)
  | (?P<symbol>
        <<<=|>>>=|===|!==|==\?|!=\?|<<<|>>>|<<=|>>=|\|->|\|=>|<->|->>
      | <=|>=|==|!=|&&|\|\||\*\*|<<|>>|\+\+|--|\+=|-=|\*=|/=|%=|&=|\|=|\^=|~&|~\||~\^|\^~
      | ->|=>|::|\+:|-:|\.\*|'\{{|.
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_LINE = re.compile(rf"`(?:{_DIRECTIVE_LINES}|else|endif|resetall|celldefine|endcelldefine)\b")
_MUTE: frozenset[str] = frozenset({"space", "comment", "attribute"})


@frozen
class Token:
    """A piece of the text: `text` stands at `start`. All tokens joined give the text back."""

    kind: Kind
    text: str
    start: int

    @property
    def end(self) -> int:
        """Where the next token starts."""
        return self.start + len(self.text)

    @property
    def is_code(self) -> bool:
        """False for blanks, comments, attributes and lines for the preprocessor."""
        return self.kind not in _MUTE and not _LINE.match(self.text)


def tokenize(text: str) -> list[Token]:
    """All tokens in order; nothing is lost, whatever the text holds."""
    return [
        Token(found.lastgroup, found[0], found.start())  # type: ignore[arg-type]
        for found in _TOKEN.finditer(text)
    ]
