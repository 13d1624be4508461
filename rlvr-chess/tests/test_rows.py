from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import chess
import pytest

from rlvr_chess.questions.records import EnvironmentStep, PolicyPosition, Solution
from rlvr_chess.rows import Row, Unsupported, read_data, read_rows

START = chess.STARTING_FEN
AFTER_E4 = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
E4: dict[str, Any] = {"fen": START, "uci": "e2e4", "history": "e2e4", "new_fen": AFTER_E4}
E4 |= {"reward": 0.001, "terminated": 0, "truncated": 0, "category": "double_push_no_ep"}
ROOK = "4k3/8/8/8/8/8/8/R3K3 b Q - 0 40"
VALUES = [["e8f7", "cp", -480], ["e8e7", "cp", -490], ["e8d7", "cp", -490]]
VALUES += [["e8f8", "cp", -500], ["e8d8", "mate", -20]]
WAC = '2rr3k/pp3pp1/1nnqbN1p/3pN3/2pP4/2P3Q1/PPB4P/R4RK1 w - - bm Qg6; id "W.1";'
PGN = """[Event "one"]
[Result "0-1"]

1. f3 e5 {a comment
[not a header]} (1... d5) 2. g4 Qh4# 0-1

[Event "two"]

1. e4 *
"""


def only(path: Path) -> Row:
    (row,) = read_rows(path)
    assert isinstance(row, Row), row
    return row


def rows(path: Path) -> list[Row]:
    found = read_rows(path)
    assert not [row for row in found if isinstance(row, Unsupported)]
    return [row for row in found if isinstance(row, Row)]


def test_transitions_are_environment_steps(write: Any) -> None:
    """A row of env_transitions.jsonl keeps its move, its history and its category."""
    row = only(write("t.jsonl", E4))
    wanted = EnvironmentStep(fen=START, uci="e2e4", history=("e2e4",), category="double_push_no_ep")
    assert (row.id, row.payload, row.split) == ("1", wanted, "")


def test_labels_may_be_missing_or_text(write: Any) -> None:
    """The truth comes from the rules: a row without labels is a question, one of texts as well."""
    texts = {**E4, "reward": "0.001", "terminated": "0", "truncated": "0"}
    assert len(rows(write("t.jsonl", {"fen": START, "uci": "e2e5"}, texts))) == 2


def test_action_values_keep_the_engines_order(write: Any) -> None:
    """A row of policy_action_values.jsonl is a position with every move's score."""
    row = only(write("p.jsonl", {"fen": ROOK, "source": "game", "moves": VALUES}))
    assert isinstance(row.payload, PolicyPosition)
    assert row.payload.values is not None
    assert [list(move) for move in row.payload.values.moves] == VALUES
    assert (row.payload.source, row.is_bare) == ("game", False)


def test_action_values_are_put_in_order(write: Any) -> None:
    """Best first, whatever the order of the row: mates first, the shortest of them first."""
    mixed = [["e8f8", "cp", -500], ["e8d8", "mate", -20], ["e8f7", "mate", 5]]
    mixed += [["e8e7", "mate", 1], ["e8d7", "cp", 10]]
    row = only(write("p.jsonl", {"id": None, "fen": ROOK, "moves": mixed}))
    assert isinstance(row.payload, PolicyPosition)
    assert row.payload.values is not None
    assert list(row.payload.values.table) == ["e8e7", "e8f7", "e8d7", "e8f8", "e8d8"]
    assert row.id == "1", "an id of null is none"


def test_an_epd_line_of_one_operation_needs_no_semicolon(write: Any) -> None:
    """Six words are no FEN where the fifth is the name of an operation."""
    row = only(write("s.epd", f"{START[:-4]} bm e4"))
    assert isinstance(row.payload, Solution)


def test_a_table_file_is_a_data_set(write: Any) -> None:
    """What build-table writes is read: its header is no row, packed or not."""
    path = write("t.jsonl", {"rlvr_chess_table": 1}, {"key": "k", "fen": ROOK, "moves": VALUES})
    packed = path.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert only(path) == only(packed)


def test_an_id_wins_over_the_line_number(write: Any) -> None:
    """Text or number; without one, the first line is "1" and blank lines count."""
    path = write("p.jsonl", {"fen": START}, "", {"fen": START, "id": "x"}, {"fen": ROOK, "id": 9})
    assert [row.id for row in rows(path)] == ["1", "x", "9"]
    path = write("p.fen", "# a comment", START, "", f"{ROOK}  # another")
    assert [row.id for row in rows(path)] == ["2", "4"]


def test_a_number_of_a_line_gives_way_to_an_id(write: Any) -> None:
    """Whoever gave an id keeps it, also behind a row whose line has that number."""
    fens = [START, ROOK, AFTER_E4, AFTER_E4.replace("4P3", "3P4").replace("PPPP1", "PPP1P")]
    given = [{"fen": fens[0]}, {"fen": fens[1], "id": "1~2"}, {"fen": fens[2]}]
    found = rows(write("p.jsonl", *given, {"fen": fens[3], "id": 1}))
    assert [row.id for row in found] == ["1~3", "1~2", "3", "1"]
    assert [row.payload.fen for row in found] == fens


def test_the_name_of_a_broken_line_gives_way_to_an_id(write: Any) -> None:
    """An id that reads as our name of a broken line is the row's own."""
    found = read_rows(write("p.jsonl", "{", {"fen": START, "id": "line 1"}))
    assert [(type(row), row.id) for row in found] == [(Unsupported, "line 1~2"), (Row, "line 1")]


def test_the_number_of_a_refused_row_gives_way_to_an_id(write: Any) -> None:
    """A row that is refused and gave no id keeps nobody from having its number as id."""
    found = read_rows(write("p.jsonl", {"fen": "none"}, {"fen": START, "id": 1}))
    assert [(type(row), row.id) for row in found] == [(Unsupported, "1~2"), (Row, "1")]


def test_what_can_be_written_is_read(write: Any) -> None:
    """The last clock and the largest values that the grammar has are no mistake."""
    late = f"{START[:-1]}9999"
    values = [["e8f7", "cp", 999_999], ["e8e7", "cp", -999_999], ["e8d7", "mate", 9999]]
    values += [["e8f8", "mate", -9999], ["e8d8", "cp", 0]]
    black = ROOK.replace(" 40", " 9999")
    found: list[Any] = [{"fen": late}, {"fen": late, "uci": "e2e4"}, {"fen": black, "uci": "e8e1"}]
    assert len(rows(write("p.jsonl", *found, {"fen": black, "moves": values}))) == 4


def test_a_row_may_name_its_split(write: Any) -> None:
    """`split` of a JSON row is kept."""
    assert only(write("p.jsonl", {"fen": START, "split": "test"})).split == "test"


def test_positions_are_written_one_way(write: Any) -> None:
    """An en-passant square nobody can capture on is dropped, so one position has one spelling."""
    row = only(write("p.fen", AFTER_E4.replace("KQkq -", "KQkq e3")))
    assert row.payload.fen == AFTER_E4
    assert row.is_bare


@pytest.mark.parametrize(
    ("line", "points", "avoid"),
    [
        ('bm Nf3 e4; id "a";', {"g1f3": 1.0, "e2e4": 1.0}, ()),
        ('am f3; id "a";', {}, ("f2f3",)),
        (
            'bm e4; id "a"; c7 "e4 d4"; c8 "100 35"; c9 "e2e4 d2d4";',
            {"e2e4": 1.0, "d2d4": 0.35},
            (),
        ),
        ('bm e4; id "a"; c7 "e4 d4"; c8 "100 35";', {"e2e4": 1.0, "d2d4": 0.35}, ()),
        ('bm e4; id "a"; c7 "e4 d4"; c8 "100 35"; c9 "";', {"e2e4": 1.0, "d2d4": 0.35}, ()),
        ('bm e4; id "a"; c0 "e4=10, d4=3";', {"e2e4": 1.0, "d2d4": 0.3}, ()),
        ('bm e4; id "a"; c0 "a comment";', {"e2e4": 1.0}, ()),
    ],
)
def test_suites_give_points(write: Any, line: str, points: Any, avoid: Any) -> None:
    """`bm`, `am`, points in `c8` for `c9` or `c7`, or in `c0`; suites are always held out."""
    row = only(write("iq4.epd", f"{START[:-4]} {line}"))
    assert row.payload == Solution(fen=START, points=points, avoid=avoid, suite="iq")
    assert (row.id, row.split) == ("a", "test")


@pytest.mark.parametrize(
    ("name", "suite"),
    [("WAC.001", "wac"), ("STS(v1.0) X.001", "sts"), ("BK.05", "bk"), ("ECM.1", "ecm")],
)
def test_a_suite_is_known_by_its_ids(write: Any, name: str, suite: str) -> None:
    """Known suites keep their name in a file of any name."""
    row = only(write("part.epd", f'{START[:-4]} bm e4; id "{name}";'))
    assert isinstance(row.payload, Solution)
    assert (row.payload.suite, row.id) == (suite, name)


@pytest.mark.parametrize("line", ["bm e4; hmvc 3; fmvn 7;", "3 7 bm e4;", "3 7 bm e4"])
def test_clocks_of_an_epd_line_are_read(write: Any, line: str) -> None:
    """`hmvc` and `fmvn`, or two numbers, are the last two fields of the position."""
    row = only(write("s.epd", f"{START[:-4]} {line}"))
    assert row.payload.fen == START[:-3] + "3 7"
    assert row.id == "1"


PUZZLE = "CJi0b,6k1/p1p2ppp/1pqp2r1/3Q4/8/1P6/P1P2PPP/4RK2 b - - 8 22,c6d5 e1e8,400,116,81,1125,"
PUZZLE += "mateIn1,https://lichess.org/zhWsNjI8/black#44,"
HEADINGS = "PuzzleId,FEN,Moves,Rating,RatingDeviation,Popularity,NbPlays,Themes,GameUrl,OpeningTags"


@pytest.mark.parametrize("lines", [(HEADINGS, PUZZLE), (PUZZLE,)])
def test_a_puzzle_begins_behind_the_set_up_move(write: Any, lines: tuple[str, ...]) -> None:
    """With headings or without: the set-up move is played, the next one is asked for."""
    row = only(write("puzzles.csv", *lines))
    assert isinstance(row.payload, Solution)
    assert row.payload.fen == "6k1/p1p2ppp/1p1p2r1/3q4/8/1P6/P1P2PPP/4RK2 w - - 0 23"
    assert row.payload.points == {"e1e8": 1.0}
    assert (row.payload.line, row.payload.any_mate) == (("e1e8",), True)
    assert (row.id, row.game, row.payload.rating) == ("CJi0b", "zhWsNjI8", 400)


def test_a_game_is_asked_ply_by_ply(write: Any) -> None:
    """Positions before each move, and what the moves do with the moves that led there."""
    found = {row.id: row for row in rows(write("g.pgn", PGN))}
    assert list(found) == [
        *("1.1", "1.1/env", "1.2", "1.2/env", "1.3", "1.3/env", "1.4", "1.4/env", "2.1/env"),
    ]
    last = found["1.4/env"].payload
    assert isinstance(last, EnvironmentStep)
    assert (last.uci, last.history) == ("d8h4", ("f2f3", "e7e5", "g2g4", "d8h4"))
    assert last.fen == found["1.4"].payload.fen
    assert found["1.1"].game == found["1.4/env"].game != found["2.1/env"].game


def test_opening_lines_are_games(write: Any) -> None:
    """One line an opening; a position that another line asked is not asked again."""
    path = write("lines.uci", "e2e4 e7e5", "e2e4 c7c5")
    assert [row.id for row in rows(path)] == [
        *("1.1", "1.1/env", "1.2", "1.2/env", "2.2/env"),
    ]
    assert [line.moves for line in read_data(path).material.openings] == [
        ("e2e4", "e7e5"),
        ("e2e4", "c7c5"),
    ]


def test_a_long_history_keeps_the_last_ten(write: Any) -> None:
    """The current move is the last of ten."""
    moves = ["g1f3", "g8f6", "f3g1", "f6g8"] * 3
    found = rows(write("l.uci", " ".join(moves)))
    payload = found[-1].payload
    assert isinstance(payload, EnvironmentStep)
    assert payload.history == tuple(moves[2:12])


def test_a_folder_is_one_data_set(write: Any) -> None:
    """Ids name the file; games, openings and bare positions are material, README is nothing."""
    write("README.md", "nothing")
    write("a/t.jsonl", E4)
    write("b.fen", START)
    write("c.pgn", PGN)
    folder = write("d.uci", "e2e4").parent
    data = read_data(folder)
    assert [row.id for row in data.rows] == ["a/t.jsonl:1"]
    assert data.material.positions == (START,)
    assert [game.id for game in data.material.games] == ["1", "2"]
    assert len(data.material.openings) == 1


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (json.dumps({"fen": START}), PolicyPosition),
        (START, PolicyPosition),
        (WAC, Solution),
        (PGN, PolicyPosition),
        ("e2e4", PolicyPosition),
        (HEADINGS + "\n" + PUZZLE, Solution),
    ],
)
def test_the_content_tells_the_kind(write: Any, line: str, kind: type) -> None:
    """A file of any name is read by its first line, with Windows line ends and a mark before it."""
    path = write("data.txt", line)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    found = rows(path)
    assert isinstance(found[0].payload, kind)
