from __future__ import annotations

import asyncio
import io
from pathlib import Path

import chess
import chess.pgn
import pytest

from rlvr import ConfigError, UnknownNameError
from rlvr_chess.commands.board import board
from rlvr_chess.fen import board_after
from rlvr_chess.play.board import board_pgn, game_pgn
from rlvr_chess.selfplay.arena import Pairing, play
from rlvr_chess.selfplay.game import Game, Rules
from rlvr_chess.selfplay.movers import MixMover, RandomMover
from rlvr_chess.selfplay.openings import Opening, book


def _games(count: int) -> list[Game]:
    mover = MixMover(RandomMover("one"), 0.8)
    ending = Opening(name="ending", start_fen="8/P5k1/8/8/8/8/1p4K1/8 b - - 4 60")
    pairings = [
        Pairing(white=mover, black=RandomMover("two"), opening=opening)
        for opening in [*book()[: count - 1], ending]
    ]
    return asyncio.run(play(pairings, rules=Rules(max_plies=40), seed=8))


def test_games_come_back_from_pgn() -> None:
    """python-chess reads what we write: moves, start, result, who played; none is an error."""
    games = _games(4)
    text = io.StringIO("".join(game_pgn(game) for game in games))
    read = [chess.pgn.read_game(text) for _ in games]
    assert chess.pgn.read_game(text) is None
    for game, pgn in zip(games, read, strict=True):
        assert pgn is not None
        assert not pgn.errors
        assert tuple(move.uci() for move in pgn.mainline_moves()) == game.moves
        assert pgn.board().fen() == game.start_fen
        assert pgn.end().board().fen() == board_after(game.start_fen, game.moves).fen()
        assert pgn.headers["Result"] == game.result
        assert (pgn.headers["White"], pgn.headers["Black"]) == ("one 80%", "two")
        assert pgn.headers["Reason"] == game.reason
        assert pgn.headers["PlyCount"] == str(game.plies)
        told = [n for n, node in enumerate(pgn.mainline()) if "random move" in node.comment]
        assert tuple(told) == game.random


def test_illegal_answer_is_said_where_it_was() -> None:
    """The comment stands behind the last move before it, or before the first one."""
    game = Game(
        moves=("e2e4", "e7e5"), result="0-1", reason="illegal move", illegal_at=2, illegal=(1, 0)
    )
    assert "1. e4 e5 { the next answer was no legal move } 0-1" in game_pgn(game)
    assert '[Termination "rules infraction"]' in game_pgn(game)
    at_once = Game(moves=(), result="0-1", reason="illegal move", illegal_at=0, illegal=(1, 0))
    assert "{ the next answer was no legal move } 0-1" in game_pgn(at_once)


def test_headers_of_the_caller_win() -> None:
    """Event, Round and others may be given."""
    game = Game(
        moves=("e2e4",),
        result="1/2-1/2",
        reason="ply cap",
        opening="Mine",
        eco="B00",
        white='a "b"\n]',
    )
    text = game_pgn(game, {"Event": "cup", "Round": "7"})
    pgn = chess.pgn.read_game(io.StringIO(text))
    assert pgn is not None
    assert [pgn.headers[k] for k in ("Event", "Round", "Opening", "ECO")] == [
        "cup",
        "7",
        "Mine",
        "B00",
    ]
    assert pgn.headers["White"] == "a 'b' ]", "a name cannot end its tag"


def test_board_with_its_history() -> None:
    """The game of a board that began elsewhere keeps its start."""
    played = chess.Board("8/P5k1/8/8/8/8/1p4K1/8 w - - 4 60")
    played.push_san("a8=Q")
    text = board_pgn(played, {"White": "human", "Result": "*"})
    assert '[FEN "8/P5k1/8/8/8/8/1p4K1/8 w - - 4 60"]' in text
    assert "60. a8=Q *" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[White "a"]\n\n1. e4 e5 *\n\n[White "b"]\n\n1. e4 Ke7 *\n', "game 2: illegal san: 'Ke7'"),
        ("", "none in it"),
        ("just words\n", "none in it"),
    ],
)
def test_bad_pgn_is_named(
    tmp_path: Path, text: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An illegal move is an error with the game's number, and is not only logged."""
    path = tmp_path / "bad.pgn"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        board([str(path), "--game", "9"])
    assert said in str(caught.value)
    assert caplog.records == []
    with pytest.raises(UnknownNameError, match="no such file"):
        board([str(tmp_path / "none.pgn")])
