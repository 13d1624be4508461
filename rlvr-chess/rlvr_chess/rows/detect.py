"""Which kind of data a file holds: by its first line, else by its suffix."""

from __future__ import annotations

import re
from pathlib import Path

KINDS = {
    "jsonl": "JSON Lines of transitions, of action values or of positions ({fen})",
    "positions": "one FEN a line, or EPD with bm, am or points",
    "puzzles": "CSV with the columns PuzzleId, FEN, Moves (database.lichess.org)",
    "pgn": "games in PGN",
    "openings": "opening lines: moves in UCI, one line an opening",
}
"""Kind to what a person would call it."""
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".fen": "positions",
    ".epd": "positions",
    ".csv": "puzzles",
    ".pgn": "pgn",
    ".uci": "openings",
}
_CONTENT = (
    ("jsonl", re.compile(r"\{")),
    ("pgn", re.compile(r'\[\w+ +"|1\. ?[a-hKQRBNO]')),
    ("openings", re.compile(r"[a-h][1-8][a-h][1-8][qrbn]?(\s|$)")),
    ("positions", re.compile(r"[pnbrqkPNBRQK1-8]+(/[pnbrqkPNBRQK1-8]+)+\s+[wb]\s")),
    ("puzzles", re.compile(r"PuzzleId,|(?=.*\bFEN\b).*,.*\bMoves\b")),
)


def kind_of(path: Path, first_line: str) -> str:
    """The kind of a file (a key of `KINDS`), "" where neither its content nor its name says."""
    for kind, pattern in _CONTENT:
        if pattern.match(first_line.lstrip("\ufeff")):
            return kind
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    return _SUFFIXES.get(suffix.lower(), "")
