from __future__ import annotations

import asyncio
from functools import cache

import chess
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_chess.fen import board_after, four_fields
from rlvr_chess.selfplay.arena import Crowd, Pairing, play
from rlvr_chess.selfplay.buffer import harvest
from rlvr_chess.selfplay.game import Game, Rules
from rlvr_chess.selfplay.movers import RandomMover, warm
from rlvr_chess.selfplay.openings import book


@cache
def _games() -> list[Game]:
    mover = RandomMover()
    pairings = [Pairing(white=mover, black=mover, opening=o) for o in book()[:3]]
    return asyncio.run(play(pairings, rules=Rules(max_plies=60), seed=1))


@settings(deadline=None, max_examples=20)
@given(count=st.integers(1, 8), seed=st.integers(0, 99), which=st.integers(0, 2))
def test_harvest_is_spread_over_the_game(count: int, seed: int, which: int) -> None:
    """Each stretch of the game gives one position, none of the opening, none twice."""
    game = _games()[which]
    met = {four_fields(fen): ply for ply, fen, _ in game.positions()}
    met[four_fields(board_after(game.start_fen, game.moves).fen())] = game.plies
    found = harvest(game, count, seed=seed)
    assert 0 < len(found) <= count
    plies = [found_at.ply for found_at in found]
    assert plies == sorted(plies)
    assert len({f.key for f in found}) == len(found)
    for position in found:
        board = chess.Board(position.fen)
        assert four_fields(position.fen) in met
        assert position.ply >= game.book
        assert board.legal_moves.count() > 1
        assert position.opening == game.opening
        if position.move:
            assert chess.Move.from_uci(position.move) in board.legal_moves
    length = game.plies - game.book
    for stretch, ply in enumerate(plies):
        # of `count` equal stretches; forced and repeated positions may leave some out
        low = game.book + stretch * length // count - count
        assert ply >= low
    assert harvest(game, count, seed=seed) == found


def test_history_leads_to_the_position() -> None:
    """The moves before a position, played from where they began, lead to it."""
    game = _games()[0]
    for found in harvest(game, 5, seed=3):
        place = next(p for p, fen, _ in game.positions() if fen == found.fen)
        assert found.history == game.moves[max(0, place - 9) : place]


def test_position_of_an_illegal_answer_comes_first() -> None:
    """What the policy could not answer is kept even where one position is taken."""
    moves = ("e2e4", "e7e5", "g1f3", "b8c6")
    game = Game(moves=moves, result="0-1", reason="illegal move", book=0, illegal_at=4)
    for seed in range(5):
        first = harvest(game, 1, seed=seed)[0]
        assert (first.fen, first.move) == (board_after(game.start_fen, game.moves).fen(), "")
    in_the_middle = Game(moves=moves, result="1/2-1/2", reason="ply cap", book=0, illegal_at=1)
    assert harvest(in_the_middle, 2, seed=0)[0].move == "e7e5"


def test_finished_and_forced_positions_are_left_out() -> None:
    """A mate has nothing to ask, a single legal move nothing to choose."""
    game = Game(moves=("f2f3", "e7e5", "g2g4", "d8h4"), result="0-1", reason="checkmate", book=3)
    assert [f.ply for f in harvest(game, 4, seed=0)] == [3]
    # the rook leaves the king one square; Black may then choose
    forced = Game(
        moves=("h1g1",),
        start_fen="k7/8/8/8/8/8/r7/7K w - - 0 1",
        result="1/2-1/2",
        reason="ply cap",
    )
    assert [f.fen for f in harvest(forced, 4, seed=0)] == [
        board_after(forced.start_fen, forced.moves).fen()
    ]


def test_warm_plies_are_hotter() -> None:
    """The temperature changes at the ply that was said."""
    temperature = warm(0.5, first=1.2, plies=3)
    assert [temperature(ply) for ply in range(5)] == [1.2, 1.2, 1.2, 0.5, 0.5]


def test_crowd_counts_games_not_visits() -> None:
    """A game may come back to its own position; another one may not, for two attempts."""
    crowd, board = Crowd(1), chess.Board()
    assert crowd.admits(board, 0, 0)
    assert crowd.admits(board, 0, 0)
    assert [crowd.admits(board, 1, attempt) for attempt in range(4)] == [False, False, True, True]
    moved = chess.Board("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 7 9")
    assert not crowd.admits(moved, 2, 0), "clocks do not make another position"
