from __future__ import annotations

import asyncio
import string
from collections.abc import Callable
from datetime import date, timedelta

import chess
import pytest

from rlvr import SamplingParams
from rlvr.testing.fakes import CharTokenizer, ScriptedPolicy
from rlvr_chess.play.session import Session
from rlvr_chess.questions.grammar import policy_text
from rlvr_chess.selfplay.movers import PolicyMover

PARAMS = SamplingParams(max_tokens=96, temperature=0.0)


def _line(board: chess.Board, best: str) -> str:
    legal = [best, *sorted(m.uci() for m in board.legal_moves if m.uci() != best)][:5]
    return policy_text(legal, ["0.10"] * len(legal), best)


def _session(
    script: Callable[[chess.Board, int], str],
    fen: str = chess.STARTING_FEN,
    colour: chess.Color = chess.WHITE,
) -> Session:
    """Against a policy that answers by a function of the board and the number of the request."""
    asked: list[str] = []

    def answer(prompt: str, _seed: int) -> str:
        asked.append(prompt)
        return script(chess.Board(prompt.removeprefix("P: ").removesuffix(" M:")), len(asked) - 1)

    policy = ScriptedPolicy(answer, tokenizer=CharTokenizer(string.printable + "\x1b"))
    mover = PolicyMover(policy, PARAMS, name="scripted")
    return Session(mover=mover, board=chess.Board(fen), colour=colour, ascii_only=True)


def _replies(*moves: str) -> Callable[[chess.Board, int], str]:
    return lambda board, number: _line(board, moves[number])


def test_a_game_in_both_notations() -> None:
    """UCI and SAN are moves; the model's own line is shown, and what it plays."""
    session = _session(_replies("e7e5", "b8c6"))
    assert session.take("e2e4")[-1].startswith("8  r n b q")
    assert session.is_models_turn
    lines = asyncio.run(session.answer())
    assert lines[0].startswith("model: e7e5 a7a5 a7a6")
    assert lines[0].endswith("B: e7e5")
    assert lines[1] == "it plays e5"
    session.take("Nf3")
    asyncio.run(session.answer())
    assert [m.uci() for m in session.board.move_stack] == ["e2e4", "e7e5", "g1f3", "b8c6"]
    assert "1. e4 e5 2. Nf3 Nc6 *" in session.pgn()
    assert f'[Date "{session.begun:%Y.%m.%d}"]' in session.pgn()
    assert abs(date.today() - session.begun) <= timedelta(days=1), "a test may run at midnight"
    assert '[White "human"]' in session.pgn()
    assert '[Black "scripted"]' in session.pgn()


@pytest.mark.parametrize("typed", ["e2e5", "Ke2", "0000", "--", "e4e5", "castle", "e9e9"])
def test_what_is_no_move_changes_nothing(typed: str) -> None:
    """A slip is answered, and the person is still to move."""
    session = _session(_replies())
    assert session.take(typed) == [f"{typed!r} is no legal move here and no command; try: help"]
    assert session.board.fen() == chess.STARTING_FEN
    assert not session.is_models_turn


def test_promotion_and_castling_are_typed_as_usual() -> None:
    """`a8=N` and `O-O` are read; the first mate ends the game."""
    session = _session(_replies(), fen="8/P6k/8/8/8/8/8/4K2R w K - 0 1")
    session.take("a8=N")
    assert session.board.piece_at(chess.A8) == chess.Piece.from_symbol("N")
    session = _session(_replies(), fen="8/P6k/8/8/8/8/8/4K2R w K - 0 1")
    assert session.take("O-O")[0].splitlines()[7] == "1  . . . . . R K ."
    session = _session(_replies(), fen="7k/5Q2/6K1/8/8/8/8/8 w - - 0 1")
    assert session.take("Qg7")[-1] == "1-0 (checkmate)"
    assert session.is_over


def test_model_is_asked_again_and_resigns() -> None:
    """Illegal and malformed answers are said; after three more it gives up, and the person wins."""
    session = _session(
        lambda board, n: _line(board, "e7e5") if n == 2 else ["junk", "B: e7e4"][n % 2]
    )
    session.take("e4")
    lines = asyncio.run(session.answer())
    said = [line for line in lines if "asked again" in line]
    assert said == ["no answer in the grammar; asked again"] * 2
    assert "it plays e5" in lines
    assert not session.is_over

    illegal = " e7e5 a7a5 a7a6 b7b5 b7b6 E: 0.10 0.10 0.10 0.10 0.10 B: e2e4"
    session = _session(lambda board, n: illegal)
    session.take("e4")
    lines = asyncio.run(session.answer())
    assert lines.count("e2e4 is illegal; asked again") == 3
    assert lines[-2:] == ["e2e4 is illegal: the model resigns", "1-0 (illegal move)"]
    assert (session.result, session.is_over) == ("1-0", True)
    assert '[Reason "illegal move"]' in session.pgn()


def test_model_cannot_steer_the_terminal() -> None:
    """Escape sequences of an answer are shown as replaced characters."""
    session = _session(lambda board, n: "\x1b[2J" if n == 0 else _line(board, "e7e5"))
    session.take("e4")
    lines = asyncio.run(session.answer())
    assert lines[0] == "model:\N{REPLACEMENT CHARACTER}[2J"
    assert all("\x1b" not in line for line in lines)


def test_undo_takes_back_a_whole_turn() -> None:
    """The model's answer and the person's move go; at the start there is nothing."""
    session = _session(_replies("e7e5", "e7e6"))
    assert session.take("undo") == ["there is no move of yours to take back"]
    session.take("e4")
    asyncio.run(session.answer())
    session.take("undo")
    assert session.board.fen() == chess.STARTING_FEN
    session.take("d4")
    assert asyncio.run(session.answer())[1] == "it plays e6"


def test_model_has_white() -> None:
    """With Black the model moves first, and the board is turned round."""
    session = _session(_replies("e2e4"), colour=chess.BLACK)
    assert session.is_models_turn
    lines = asyncio.run(session.answer())
    assert lines[1] == "it plays e4"
    assert lines[2].splitlines()[-1] == "   h g f e d c b a"
    assert session.take("undo") == ["there is no move of yours to take back"]
    assert session.take("resign") == ["1-0 (resignation)"]


def test_words_that_are_commands() -> None:
    """fen, pgn, board, help answer without a move; quit leaves an unfinished game."""
    session = _session(_replies())
    assert session.take("fen") == [chess.STARTING_FEN]
    assert session.take("board") == [session.shown()]
    assert "commands: help" in session.take("HELP")[0]
    assert '[Result "*"]' in session.take("pgn")[0]
    assert session.take("") == []
    assert session.take("quit") == []
    assert session.is_over
    assert session.result == "*"
