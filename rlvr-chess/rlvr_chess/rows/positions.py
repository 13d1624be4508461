"""Files with a position a line: FEN, or EPD where operations follow it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlvr_chess.rows import epd, fen_list
from rlvr_chess.rows.lines import Lines
from rlvr_chess.rows.row import Item, refused

_SIX = re.compile(r"(\S+\s+){4}(?![A-Za-z])\S+\s+\S+")  # a word in the fifth place is an operation


def read(lines: Lines, name: str) -> Iterator[Item]:
    """The rows of a file, in order; `#` begins a comment line, and a comment behind a FEN."""
    for number, text in lines.good:
        line = text.strip()
        if line.startswith("#"):
            continue
        bare = re.sub(r"\s+#.*", "", line)
        is_fen = _SIX.fullmatch(bare) and ";" not in bare
        try:
            yield fen_list.row(bare, number) if is_fen else epd.row(line, number, name)
        except ValueError as error:
            yield refused(number, error)
