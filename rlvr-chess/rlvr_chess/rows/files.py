"""Text files to numbered lines, and which kind of data they hold."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path

from attrs import frozen

from rlvr_chess.rows.row import Unsupported

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
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_SNIFFED = 4096


class FileError(ValueError):
    """A file of which nothing can be read; the text says why."""


@frozen(kw_only=True)
class Lines:
    """
    Lines with something on them (number from 1, text without its end), and the broken ones.

    `text` is the whole file with a mark in place of each broken byte.
    """

    good: tuple[tuple[int, str], ...]
    broken: tuple[Unsupported, ...] = ()
    text: str = ""

    @property
    def first(self) -> str:
        """The first line that is no comment, "" where there is none."""
        return next((text.strip() for _, text in self.good if not text.startswith("#")), "")


def read_lines(path: Path) -> Lines:
    """
    The lines of a UTF-8 file; `.gz` is unpacked, a byte order mark and Windows ends are no mistake.

    Raises:
        FileError: It cannot be read, is packed in a damaged way, is UTF-16 or no text at all.
    """
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if raw.startswith(_UTF16):
        raise FileError("is UTF-16 text; try: iconv -f UTF-16 -t UTF-8")
    if b"\0" in raw[:_SNIFFED]:
        raise FileError("is no text: it holds zero bytes")
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    good, broken = [], []
    for number, line in enumerate(raw.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            good.append((number, line.decode().rstrip("\r")))
        except UnicodeDecodeError as error:
            byte = f"byte {error.start + 1} is 0x{line[error.start]:02x}"
            reason = f"line {number}: not UTF-8: {byte}"
            broken.append(Unsupported(id=f"line {number}", reason=reason, line=number))
    return Lines(good=tuple(good), broken=tuple(broken), text=raw.decode(errors="replace"))


def kind_of(path: Path, first_line: str) -> str:
    """The kind of a file (a key of `KINDS`), "" where neither its content nor its name says."""
    for kind, pattern in _CONTENT:
        if pattern.match(first_line.lstrip("\ufeff")):
            return kind
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    return _SUFFIXES.get(suffix.lower(), "")
