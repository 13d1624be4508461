"""What a file of chess holds: lines, the kind of data; rows that are questions or games, or not."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from attrs import field, frozen

from rlvr import as_tuple
from rlvr_chess.questions.grammar import parse_environment, parse_policy, policy_text
from rlvr_chess.questions.records import Payload
from rlvr_chess.values import ActionValues

LONGEST_ID = 500
"""Characters of an id: it goes into every verdict, trajectory and checkpoint."""
_LONGEST_REASON = 400
_SHOWN = 20


@frozen(kw_only=True)
class Row:
    """
    A question of a data set.

    Attributes:
        id: Its own, else its line number as text; "17/env" for a position's second question.
        payload: What is asked.
        split: The row's own split ("train", "test"), "" where it has none.
        game: What it came from, where rows of one game must stay in one split.
        is_bare: A position and nothing else: it stands for an environment problem as well.
        line: Its number in the file, 0 where a row is no line.
        is_named: Whether the row gave its id; an id that was made gives way to it.
    """

    id: str
    payload: Payload
    split: str = ""
    game: str = ""
    is_bare: bool = False
    line: int = 0
    is_named: bool = False


@frozen(kw_only=True)
class Unsupported:
    """A row that yields no problem: its id, or `line N`, and why; the rest as of a `Row`."""

    id: str
    reason: str
    line: int = 0
    is_named: bool = False


@frozen(kw_only=True)
class GameLine:
    """
    A game or an opening line, every move of it legal.

    Attributes:
        id: Number of the game in its file (from 1), or of the line.
        start_fen: Six fields before the first move.
        moves: UCI.
        is_opening: True for a line of openings, False for a game that was played.
        split: Where its positions belong, set by the task.
    """

    id: str
    start_fen: str
    moves: tuple[str, ...] = field(converter=as_tuple, repr=False)
    is_opening: bool = False
    split: str = ""


Item: TypeAlias = Row | GameLine | Unsupported


class RowError(ValueError):
    """Why a row cannot become a problem; `name` is its id, `is_named` whether the row gave it."""

    def __init__(self, reason: str, name: str = "", *, is_named: bool = True) -> None:
        super().__init__(reason)
        self.name = name
        self.is_named = bool(name) and is_named


def each(
    lines: Iterable[tuple[int, str]], read: Callable[[str, int], Item | None]
) -> Iterator[Item]:
    """The item that `read` makes of each line (text, number); None: the line is skipped."""
    for number, text in lines:
        try:
            item = read(text, number)
        except ValueError as error:
            item = refused(number, error)
        if item is not None:
            yield item


def refused(number: int, error: Exception) -> Unsupported:
    """The row of a line that was refused; the line's number is always said."""
    name = getattr(error, "name", "")
    is_named = getattr(error, "is_named", False)
    if not name or len(name) > LONGEST_ID:
        name, is_named = f"line {number}", False
    said = str(error)
    if len(said) > _LONGEST_REASON:  # it shows what was found
        said = f"{said[:_LONGEST_REASON]}... ({len(said)} characters)"
    reason = f"line {number}: {said}"
    return Unsupported(id=name, reason=reason, line=number, is_named=is_named)


def free_id(name: str, taken: Container[str]) -> str:
    """The name, or where it is taken the first of `name~2`, `name~3`, ... that is free."""
    found, count = name, 1
    while found in taken:
        count += 1
        found = f"{name}~{count}"
    return found


def check_clock(fen: str, plies: int = 1) -> None:
    """RowError where the position behind so many legal moves has too long a move number."""
    *fields, clock = fen.split(" ")
    number = int(clock) + (plies + (fields[1] == "b")) // 2
    if parse_environment(f"{' '.join(fields)} {number}+0.001+0+0") is None:
        raise RowError(
            f"its move number is {clock}, so that a position behind it has {number}: more digits "
            "than an answer may write; give it a smaller one"
        )


def check_values(values: ActionValues) -> None:
    """RowError where the evaluation of a move has more digits than an answer may write."""
    by_size = sorted(values.moves, key=lambda move: abs(move[2]))
    largest = {kind: (uci, value) for uci, kind, value in by_size}
    for kind, (uci, value) in largest.items():
        if parse_policy(policy_text([uci], [values.score_text(uci)], uci), 1) is None:
            shown = str(value) if len(str(value)) <= _SHOWN else f"{str(value)[:_SHOWN]}..."
            raise RowError(f'"{kind}" {shown} of {uci} has more digits than an answer may write')


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
