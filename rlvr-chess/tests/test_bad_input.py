"""Every kind of bad row is said with its line, and the rows around it are problems as ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import chess
import pytest

from rlvr import ConfigError
from rlvr_chess.rows import Row, Unsupported, read_data, read_rows

START = chess.STARTING_FEN
AFTER_A4 = "rnbqkbnr/pppppppp/8/8/P7/8/1PPPPPPP/RNBQKBNR b KQkq - 0 1"
MATED = "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"
HEADINGS = "PuzzleId,FEN,Moves,Rating"
FEN = "6k1/p1p2ppp/1pqp2r1/3Q4/8/1P6/P1P2PPP/4RK2 b - - 8 22"
LATE = AFTER_A4[:-1] + "9999"
MOVES = [[move.uci(), "cp", 0] for move in chess.Board().legal_moves]
REST = [move for move in MOVES if move[0] != "e2e4"]


def split_up(found: list[Row | Unsupported]) -> tuple[list[str], dict[str, str]]:
    """Ids of the good rows; of the others the reasons by id."""
    good = [row.id for row in found if isinstance(row, Row)]
    return good, {row.id: row.reason for row in found if isinstance(row, Unsupported)}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "JSON"),
        ("[1]", "wanted a JSON object"),
        ({"uci": "e2e4"}, 'no "fen"'),
        ({"fen": 7}, 'no "fen"'),
        ({"fen": "8/8/8/8/8/8/8/8 w - - 0 1"}, "no king"),
        ({"fen": START[:-2]}, "5 fields instead of six"),
        ({"fen": MATED}, "the game is over: checkmate"),
        ({"fen": START, "id": True}, "its id is neither text nor a number"),
        ({"fen": START, "id": "a\nb"}, "its id is no plain text"),
        ({"fen": START, "split": "dev"}, "split 'dev'"),
        ({"fen": START, "uci": 5}, '"uci" is no plain text'),
        ({"fen": START, "uci": "e2e4", "history": [1]}, '"history"'),
        (
            {"fen": START, "uci": "e2e4", "reward": 1.0},
            'its "reward" is 1.0, by the rules it is 0.001',
        ),
        ({"fen": START, "uci": "e2e5", "truncated": 0}, '"truncated" is 0, by the rules it is 1'),
        ({"fen": START, "uci": "e2e4", "terminated": "no"}, "\"terminated\" is 'no'"),
        ({"fen": START, "uci": "e2e4", "new_fen": START}, f"{START!r}, by the rules it is 'rnbqkb"),
        ({"fen": START, "moves": MOVES[1:]}, "no value of 1 legal moves: g1h3"),
        ({"fen": START, "moves": [*MOVES, ["e2e5", "cp", 1]]}, "not legal here: 'e2e5'"),
        ({"fen": START, "moves": [*MOVES, MOVES[0]]}, "has two values"),
        ({"fen": START, "moves": [["e2e4", "cp", "1"]]}, '"moves" wants'),
        ({"fen": START, "moves": [["e2e4", "mate", 0]]}, '"moves" wants'),
        (
            f'{{"fen": "{START}", "uci": "e2e4", "reward": 1{"0" * 400}}}',
            "(401 characters), by the rules it is 0.001",
        ),
        (
            f'{{"fen": "{START}", "uci": "e2e4", "truncated": {"9" * 400}}}',
            "(400 characters), by the rules it is 0",
        ),
        ({"fen": LATE, "uci": "g8f6"}, "its move number is 9999"),
        ({"fen": LATE}, "a position behind it has 10000"),
        ({"fen": START, "moves": [["e2e4", "cp", -1_000_000], *REST]}, '"cp" -1000000 of e2e4'),
        ({"fen": START, "moves": [["e2e4", "mate", 10_000], *REST]}, '"mate" 10000 of e2e4'),
        ({"fen": START, "moves": [["e2e4", "cp", 10**400], *REST]}, "more digits than an answer"),
        ({"fen": START, "uci": "a2a3+8/8"}, "ends a field of the question"),
        ({"fen": START, "uci": "e2e4", "history": "junk+junk e2e4"}, "holds 'junk+junk'"),
        ({"fen": START, "uci": "e2e4", "category": {"a": 1}}, "\"category\" is no text: {'a': 1}"),
    ],
)
def test_a_broken_json_row(write: Any, row: Any, said: str) -> None:
    """The reason names the line and what is wrong; the row before and the row after stay."""
    good = {"fen": START}
    ids, reasons = split_up(read_rows(write("d.jsonl", good, row, good)))
    assert ids == ["1", "3"]
    (reason,) = reasons.values()
    assert reason.startswith("line 2: ")
    assert said in reason


@pytest.mark.parametrize(
    ("name", "good", "bad", "said"),
    [
        ("p.fen", START, "rnbqkbnr/pppppppp w KQkq - 0 1", "no position"),
        ("p.fen", START, MATED, "over"),
        ("p.fen", START, START.replace(" w ", " W "), "no position"),
        ("s.epd", START[:-4] + " bm e4;", START[:-4] + ' bm e5; id "x";', "e5"),
        ("s.epd", START[:-4] + " bm e4;", START[:-4] + ' bm e4; am e4; id "x";', "both to play"),
        ("s.epd", START[:-4] + " bm e4;", '8/8/8/8/8/8/8/8 w - - bm e4; id "x";', "no king"),
        (
            "s.epd",
            START[:-4] + " bm e4;",
            START[:-4] + ' c8 "100 1"; c9 "e2e4"; id "x";',
            "2 points (c8) for 1 moves (c9)",
        ),
        (
            "s.epd",
            START[:-4] + " bm e4;",
            START[:-4] + ' c8 "100"; c9 "e2e5"; id "x";',
            "'e2e5', which is not legal",
        ),
        (
            "s.epd",
            START[:-4] + " bm e4;",
            START[:-4] + ' c8 "100"; c9 ""; id "x";',
            "1 points (c8) for 0 moves (c9)",
        ),
        ("s.epd", START[:-4] + " bm e4;", START[:-4] + ' bm e4; c8 "100"; c9;', "for 0 moves (c9)"),
        ("s.epd", START[:-4] + " bm e4;", START[:-4] + " bm 0-0;", "castling is O-O"),
        ("s.epd", START, LATE[:-6] + ' hmvc 0; fmvn 9999; id "x";', "its move number is 9999"),
        ("p.fen", START, LATE, "its move number is 9999"),
        ("l.uci", "e2e4 e7e5", "e2e4 e2e4", "move 2, 'e2e4', is not legal"),
    ],
)
def test_a_broken_line(write: Any, name: str, good: str, bad: str, said: str) -> None:
    """FEN lists, suites and opening lines: the same."""
    ids, reasons = split_up(read_rows(write(name, good, bad)))
    assert ids[0].startswith("1")
    (reason,) = reasons.values()
    assert reason.startswith("line 2: ")
    assert said in reason


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (f"x,{FEN},c6d5 e1e7,400", None),
        (f"x,{FEN},c6d5 e1e1,400", "move 2 of its line, 'e1e1', is not legal"),
        (f"x,{FEN},e1e8 c6d5,400", "move 1 of its line"),
        (f"x,{FEN},c6d5,400", "wanted the set-up move"),
        (f"x,{FEN},c6d5 e1e8 0000,400", "move 3 of its line"),
        (f"x,{FEN},,400", "nothing in Moves"),
        (f"x,{FEN[:-2]}9999,c6d5 e1e8,400", "its move number is 9999"),
        (f"x,{FEN},c6d5 e1e8,hard", "its rating is no number"),
        ("x,8/8 w,c6d5 e1e8,400", "fields instead of six"),
        ('x,"8/8', "not CSV"),
    ],
)
def test_a_broken_puzzle(write: Any, cells: str, said: str | None) -> None:
    """Broken moves are named with their number; a line that is legal is no mistake."""
    good = f"y,{FEN},c6d5 e1e8,400"
    ids, reasons = split_up(read_rows(write("p.csv", HEADINGS, cells, good)))
    assert ids == (["x", "y"] if said is None else ["y"])
    if said is not None:
        (reason,) = reasons.values()
        assert reason.startswith("line 2: ")
        assert said in reason


@pytest.mark.parametrize(
    ("game", "said"),
    [
        ("1. e4 e5 2. Ke3 *", "Ke3"),
        ("1. e4 -- 2. d4 *", "null move"),
        ('[Variant "Atomic"]\n\n1. e4 *', "variant 'atomic'"),
        ('[SetUp "1"]\n[FEN "8/8/8/8/8/8/8/8 w - - 0 1"]\n\n1. e4 *', "its FEN: "),
        ('[Event "no moves"]\n\n*', "no moves"),
        (f'[SetUp "1"]\n[FEN "{LATE[:-4]}9998"]\n\n1... e5 2. d4 d5 *', "move number is 9998"),
    ],
)
def test_a_broken_game(write: Any, game: str, said: str) -> None:
    """The whole game is left out, with its number and its line; the next one is read."""
    good = '[Event "good"]\n\n1. e4 *\n'
    ids, reasons = split_up(read_rows(write("g.pgn", good, game, "", good.replace("e4", "d4"))))
    assert ids == ["1.1", "1.1/env", "3.1/env"]
    assert list(reasons) == ["line 5"]
    assert reasons["line 5"].startswith("line 5: game 2: ")
    assert said in reasons["line 5"]


def test_a_game_that_goes_on_after_its_end(write: Any) -> None:
    """Bare kings: what comes after is not asked, and said."""
    head = '[SetUp "1"]\n[FEN "8/8/8/8/8/4k3/8/5Kn1 w - - 0 9"]\n\n'
    path = write("g.pgn", head + "1. Kxg1 Ke2 2. Kg2 *")
    ids, reasons = split_up(read_rows(path))
    assert ids == []
    assert "over by the rules" in reasons["1.1"]


def test_an_id_that_came_before(write: Any) -> None:
    """The first row keeps the id; the second is named by its place: neither shadows the other."""
    row = {"fen": START, "id": "x"}
    ids, reasons = split_up(read_rows(write("d.jsonl", row, row)))
    assert ids == ["x"]
    assert reasons == {"line 2 (x)": "the id x came before"}


def test_a_repeated_id_is_named_by_the_line_of_the_file(write: Any) -> None:
    """Blank lines and broken lines count, also in a folder."""
    row = {"fen": START, "uci": "e2e4", "id": "x"}
    path = write("d.jsonl", row, "", "{", row)
    assert list(split_up(read_rows(path))[1]) == ["line 3", "line 4 (x)"]
    assert list(split_up(read_rows(path.parent))[1]) == ["d.jsonl:line 3", "line 4 (d.jsonl:x)"]


def test_ids_of_two_files_that_come_out_alike(write: Any) -> None:
    """A folder's ids hold the name of the file; where that is not enough, one is refused, said."""
    write("a.jsonl", {"fen": START, "uci": "e2e4", "id": "b.jsonl:x"})
    folder = write("a.jsonl:b.jsonl", {"fen": START, "uci": "d2d4", "id": "x"}).parent
    ids, reasons = split_up(read_rows(folder))
    assert ids == ["a.jsonl:b.jsonl:x"]
    assert list(reasons) == ["line 1 (a.jsonl:b.jsonl:x)"]


def test_bytes_that_are_not_utf8(write: Any) -> None:
    """The line and the byte are named; the lines around it are read."""
    path = write("p.fen", START, START, START)
    path.write_bytes(path.read_bytes().replace(b"w KQkq", b"\xff KQkq", 1))
    ids, reasons = split_up(read_rows(path))
    assert ids == ["2", "3"]
    assert reasons == {"line 1": "line 1: not UTF-8: byte 45 is 0xff"}


def test_names_in_latin_1_spoil_no_game(write: Any) -> None:
    """Bytes in a name or a comment of a PGN are no part of its moves."""
    path = write("g.pgn", '[White "Jose"]', "", "1. e4 {ole} e5 *")
    path.write_bytes(path.read_bytes().replace(b"Jose", b"Jos\xe9").replace(b"ole", b"ol\xe9"))
    ids, reasons = split_up(read_rows(path))
    assert (len(ids), reasons) == (4, {})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (START.encode("utf-16"), "UTF-16"),
        (b"\x7fELF\0\0\0" + bytes(100), "no text"),
        (b"hello\nworld\n", "no kind that is known"),
        (b"", "no kind that is known"),
        (b"Name,Price\napple,1\n", "no kind that is known"),
    ],
)
def test_a_file_that_is_no_data(tmp_path: Path, content: bytes, said: str) -> None:
    """By itself it is refused with what can be read; in a folder it is one row, others go on."""
    path = tmp_path / "data.bin"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said) as refused:
        read_data(path)
    assert "puzzles" in str(refused.value) or "PuzzleId" in str(refused.value)

    (tmp_path / "good.jsonl").write_text(json.dumps({"fen": START, "uci": "e2e4"}))
    ids, reasons = split_up(read_rows(tmp_path))
    assert ids == ["good.jsonl:1"]
    assert said in reasons["data.bin"]


def test_a_table_without_the_columns(write: Any) -> None:
    """The missing columns are named, and those that are there."""
    with pytest.raises(ConfigError, match=r"without the columns PuzzleId, Moves; it has Id, FEN"):
        read_data(write("p.csv", "Id,FEN", f"1,{FEN}"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The path and the reason; an empty folder says that it is empty."""
    with pytest.raises(ConfigError, match="No such file"):
        read_data(tmp_path / "none.fen")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no file in it"):
        read_data(tmp_path / "empty")


def test_a_damaged_archive(tmp_path: Path) -> None:
    """A `.gz` that is none is refused as a file, not as a bug."""
    path = tmp_path / "p.jsonl.gz"
    path.write_bytes(b"no gzip")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_data(path)


def test_strict_refuses(write: Any, make_task: Any) -> None:
    """chess.strict: one bad row and nothing is done; how many and which is said."""
    path = write("p.fen", START, "nonsense w", MATED)
    task = make_task(path, strict=True)
    with pytest.raises(ConfigError, match=r"(?s)chess.strict.*2 that are not: line 2: line 2: "):
        list(task.problems("all"))
    assert len(list(make_task(path).problems("all"))) == 2
    assert list(make_task(path).unsupported()) == ["line 2", "line 3"]
