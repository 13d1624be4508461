from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import chess
import pytest

from rlvr import SamplingParams
from rlvr.testing.fakes import ScriptedPolicy
from rlvr_chess.fen import board_after
from rlvr_chess.questions.grammar import policy_text
from rlvr_chess.selfplay.arena import Crowd, Pairing, play
from rlvr_chess.selfplay.game import Game, Rules
from rlvr_chess.selfplay.movers import (
    EngineMover,
    MixMover,
    Move,
    Mover,
    PolicyMover,
    RandomMover,
    Turn,
)
from rlvr_chess.selfplay.openings import START, Opening, book
from rlvr_chess.values import ActionValues

PARAMS = SamplingParams(max_tokens=96, temperature=0.0)
FOOL = ["f2f3", "e7e5", "g2g4", "d8h4"]


class Says:
    """Answers by a function of the turn; keeps what it was asked."""

    def __init__(self, answer: Callable[[Turn], Move], name: str = "says") -> None:
        self.name = name
        self.asked: list[list[Turn]] = []
        self._answer = answer

    async def moves(self, turns: Sequence[Turn]) -> list[Move]:
        self.asked.append(list(turns))
        return [self._answer(turn) for turn in turns]


def _line(moves: Sequence[str | None]) -> Callable[[Turn], Move]:
    return lambda turn: Move(uci=moves[turn.ply])


def _play(mover: Mover, rules: Rules | None = None, **more: object) -> Game:
    pairing = Pairing(white=mover, black=mover, opening=START)
    return asyncio.run(play([pairing], rules=rules, **more))[0]  # type: ignore[arg-type]


def test_a_game_to_its_mate() -> None:
    """Fool's mate is four half-moves and a win for Black."""
    game = _play(Says(_line(FOOL)))
    assert game.moves == tuple(FOOL)
    assert (game.result, game.reason, game.illegal_at) == ("0-1", "checkmate", None)
    assert (game.score(chess.WHITE), game.score(chess.BLACK)) == (0.0, 1.0)
    assert game.legal_plies == game.plies == 4
    assert (
        board_after(game.start_fen, game.moves).fen().split()[0]
        == "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR"
    )


@pytest.mark.parametrize(
    "answer", [None, "e7e6", "d5d4", "e8e7q", "0000", "e2e5", "E7E6 ", "d8d4", ""]
)
def test_what_is_no_legal_move_loses(answer: str | None) -> None:
    """Unreadable, impossible and misspelt answers of Black lose; the half-move is recorded."""
    game = _play(Says(_line(["f2f3", "e7e5", "g2g4", answer])))
    assert (game.result, game.reason) == ("1-0", "illegal move")
    assert (game.illegal_at, game.illegal, game.legal_plies) == (3, (0, 1), 3)


def _board(moves: Sequence[str]) -> chess.Board:
    board = chess.Board()
    for uci in moves:
        board.push_uci(uci)
    return board


def test_a_move_is_legal_as_in_the_reward() -> None:
    """`e1h1` is castling to python-chess; the reward calls it illegal, so a game does too."""
    corner = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"
    pairing = Pairing(
        white=Says(lambda turn: Move(uci="e1h1")),
        black=RandomMover(),
        opening=Opening(name="corner", start_fen=corner),
    )
    (game,) = asyncio.run(play([pairing]))
    assert (game.result, game.reason, game.illegal_at) == ("0-1", "illegal move", 0)


def test_opening_plies_are_not_the_movers() -> None:
    """Legal half-moves are counted from the end of the opening."""
    opening = Opening(name="two", moves=FOOL[:2])
    mover = Says(_line([*FOOL[2:3], "a1a1"]))
    game = asyncio.run(play([Pairing(white=mover, black=mover, opening=opening)]))[0]
    assert game.moves == tuple(FOOL[:3])
    assert (game.book, game.illegal_at, game.legal_plies) == (2, 3, 1)
    assert game.opening == "two"


def test_resample_asks_again_and_then_gives_up() -> None:
    """Under `resample` a mover is asked so often, each time with the number of the attempt."""
    rules = Rules(illegal="resample", retries=2)
    late = Says(lambda t: Move(uci=FOOL[t.ply] if t.attempt == 2 or t.ply != 1 else "e7e3"))
    game = _play(late, rules)
    assert (game.reason, game.illegal, game.illegal_at) == ("checkmate", (0, 2), 1)
    assert [t.attempt for turns in late.asked for t in turns] == [0, 0, 1, 2, 0, 0]
    never = Says(lambda t: Move(uci="e7e3"))
    game = _play(never, rules)
    assert (game.result, game.reason, game.illegal) == ("0-1", "illegal move", (3, 0))


def test_random_rule_plays_on() -> None:
    """Under `random` a legal move takes the place of each illegal answer, and is marked."""
    game = _play(Says(lambda t: Move(uci=None)), Rules(illegal="random", max_plies=6))
    assert (game.reason, game.plies, game.illegal_at) == ("ply cap", 6, 0)
    assert game.random == tuple(range(6))
    _board(game.moves)  # raises where one is illegal


def test_games_do_not_depend_on_their_neighbours() -> None:
    """A game of random movers is the same alone and beside others, and differs by its place."""
    mover = RandomMover()
    pairings = [Pairing(white=mover, black=mover, opening=o) for o in book()[:4]]
    rules = Rules(max_plies=30)
    four = asyncio.run(play(pairings, rules=rules, seed=5))
    two = asyncio.run(play(pairings[:2], rules=rules, seed=5))
    assert four[:2] == two
    same = asyncio.run(play([pairings[0]] * 2, rules=rules, seed=5))
    assert same[0].moves != same[1].moves
    assert asyncio.run(play(pairings, rules=rules, seed=6)) != four


def test_all_games_of_a_round_are_one_batch() -> None:
    """A mover is asked once a round for all the games in which it is to move."""
    mover = Says(_line(FOOL))
    other = Says(_line(FOOL), "other")
    pairings = [
        Pairing(white=mover, black=mover, opening=START),
        Pairing(white=mover, black=other, opening=START),
        Pairing(white=other, black=mover, opening=START),
    ]
    games = asyncio.run(play(pairings))
    assert [len(turns) for turns in mover.asked] == [2, 2, 2, 2]
    assert [len(turns) for turns in other.asked] == [1, 1, 1, 1]
    assert [(g.white, g.black) for g in games] == [
        ("says", "says"),
        ("says", "other"),
        ("other", "says"),
    ]


def test_mover_that_thinks_it_is_lost_resigns() -> None:
    """Own estimates below the limit end the game for the other side."""
    rules = Rules(resign_below=0.2, resign_turns=2)
    worth = {True: 0.9, False: 0.1}
    mover = Says(
        lambda t: Move(
            uci=sorted(m.uci() for m in t.board.legal_moves)[0],
            win_probability=worth[t.board.turn],
        )
    )
    game = _play(mover, rules)
    assert (game.result, game.reason, game.plies) == ("1-0", "resignation", 4)


def test_judge_awards_the_game() -> None:
    """Known values beyond the limit decide; positions that the judge does not know do not count."""
    asked: list[str] = []

    async def judge(fen: str) -> ActionValues | None:
        asked.append(fen)
        turn = fen.split()[1]
        if len(asked) % 2 == 0:
            return None
        return ActionValues(fen=fen, moves=[("a2a3", "cp", 900 if turn == "b" else -900)])

    mover = Says(lambda t: Move(uci=sorted(m.uci() for m in t.board.legal_moves)[0]))
    game = _play(mover, Rules(value_limit=800, value_plies=2), judge=judge)
    assert (game.result, game.reason, game.plies) == ("0-1", "value", 3)
    assert _play(mover, Rules(max_plies=5), judge=judge).reason == "ply cap"
    assert len(asked) == 3, "without a limit nobody is asked"


def test_crowd_parts_games() -> None:
    """Of two games by one line the second takes another move; without a choice it follows."""
    both = ["e2e4", "d2d4"]
    rules = Rules(max_plies=1)
    opening = [START, START]

    def games(mover: Mover, crowd: Crowd) -> list[str]:
        pairings = [Pairing(white=mover, black=mover, opening=o) for o in opening]
        return [g.moves[0] for g in asyncio.run(play(pairings, rules=rules, crowd=crowd))]

    willing = Says(lambda t: Move(uci=both[min(t.attempt, 1)]))
    stubborn = Says(lambda t: Move(uci="e2e4"))
    confused = Says(lambda t: Move(uci=None if t.attempt else "e2e4"))
    assert games(willing, Crowd(1)) == ["e2e4", "d2d4"]
    assert games(willing, Crowd(0)) == ["e2e4", "e2e4"]
    assert games(willing, Crowd(2)) == ["e2e4", "e2e4"]
    assert games(stubborn, Crowd(1)) == ["e2e4", "e2e4"]
    assert games(confused, Crowd(1)) == ["e2e4", "e2e4"], "a first answer that was legal holds"


# --- movers ---------------------------------------------------------------------------------------


def _answers(prompt: str, seed: int) -> str:
    board = chess.Board(prompt.removeprefix("P: ").removesuffix(" M:"))
    legal = sorted(m.uci() for m in board.legal_moves)
    moves = legal[: min(5, len(legal))]
    return policy_text(moves, ["0.10"] * len(moves), moves[seed % len(moves)])


def test_policy_plays_the_b_of_its_line() -> None:
    """A policy in the grammar plays legal moves, drawn by the seed of game and ply."""

    def played(policy: ScriptedPolicy) -> list[Game]:
        mover = PolicyMover(policy, PARAMS)
        pairings = [Pairing(white=mover, black=mover, opening=one) for one in book()[:3]]
        return asyncio.run(play(pairings, rules=Rules(max_plies=12), seed=2))

    policy = ScriptedPolicy(_answers)
    games = played(policy)
    assert [g.legal_plies for g in games] == [12, 12, 12]
    assert played(ScriptedPolicy(_answers)) == games
    assert len({r.seed for r in policy.requests}) == len(policy.requests) == 36


@pytest.mark.parametrize(
    ("line", "is_read"),
    [
        (" e2e4 d2d4 c2c4 g1f3 b1c3 E: 0.30 0.20 0.10 0.10 0.00 B: e2e4", True),
        (" e2e4 d2d4 c2c4 g1f3 E: 0.30 0.20 0.10 0.10 B: e2e4", False),
        (" e2e4 d2d4 c2c4 g1f3 b1c3 E: 0.30 0.20 0.10 0.10 0.00 B: e2e4 ", False),
        ("e2e4", False),
    ],
)
def test_only_a_whole_line_is_an_answer(line: str, is_read: bool) -> None:
    """The mover reads what the reward reads: a line out of the grammar is no move."""
    mover = PolicyMover(ScriptedPolicy(lambda *_: line), PARAMS)
    move = asyncio.run(mover.moves([Turn(board=chess.Board(), seed=1)]))[0]
    assert move.uci == ("e2e4" if is_read else None)
    assert move.text == line
    assert (move.win_probability is not None) == is_read


def test_line_that_was_cut_is_no_answer() -> None:
    """A line that met the token limit may lack its end: it is malformed, as in the reward."""
    line = " e2e4 d2d4 c2c4 g1f3 b1c3 E: 0.30 0.20 0.10 0.10 0.00 B: e2e4"
    short = SamplingParams(max_tokens=len(line), temperature=0.0)
    mover = PolicyMover(ScriptedPolicy(lambda *_: line), short)
    assert asyncio.run(mover.moves([Turn(board=chess.Board(), seed=1)]))[0].uci is None


def test_temperature_by_ply_and_attempt() -> None:
    """The first plies are hotter where asked, and who is asked again is never greedy."""
    policy = ScriptedPolicy(_answers)
    mover = PolicyMover(policy, PARAMS, temperature=lambda ply: 1.5 if ply < 2 else 0.1)
    turns = [
        Turn(board=chess.Board(), seed=1, ply=p, attempt=a) for p, a in [(1, 0), (2, 0), (2, 1)]
    ]
    asyncio.run(mover.moves(turns))
    assert [r.params.temperature for r in policy.requests] == [1.5, 0.1, 0.7]
    assert policy.requests[1].seed != policy.requests[2].seed


def test_mix_asks_by_its_share() -> None:
    """At 1 the mover always moves, at 0 never; between, about so often, and marked as random."""
    inner = Says(lambda t: Move(uci="e2e4"))
    turns = [Turn(board=chess.Board(), seed=seed) for seed in range(400)]

    def random_share(share: float) -> float:
        moves = asyncio.run(MixMover(inner, share).moves(turns))
        return sum(move.is_random for move in moves) / len(moves)

    assert random_share(1.0) == 0.0
    assert random_share(0.0) == 1.0
    assert random_share(0.75) == pytest.approx(0.25, abs=0.08)
    again = [Turn(board=chess.Board(), seed=t.seed, attempt=1) for t in turns]
    first = asyncio.run(MixMover(inner, 0.5).moves(turns))
    second = asyncio.run(MixMover(inner, 0.5).moves(again))
    assert [m.is_random for m in first] == [m.is_random for m in second]


def test_random_mover_plays_every_legal_move() -> None:
    """Over many seeds each of the twenty first moves is drawn, about as often as any other."""
    turns = [Turn(board=chess.Board(), seed=seed) for seed in range(2000)]
    moves = [m.uci for m in asyncio.run(RandomMover().moves(turns))]
    counts = [moves.count(m.uci()) for m in chess.Board().legal_moves]
    assert len(counts) == 20
    assert min(counts) > 60
    assert max(counts) < 150


def test_engine_mover_passes_its_strength_on() -> None:
    """Nodes and Elo reach the pool with the FEN of each turn."""
    asked: list[tuple[object, ...]] = []

    class Pool:
        async def best_move(self, fen: str, nodes: int = 0, elo: int | None = None) -> str:
            asked.append((fen, nodes, elo))
            return "e2e4"

    mover = EngineMover(Pool(), nodes=50, elo=1350)
    assert asyncio.run(mover.moves([Turn(board=chess.Board(), seed=0)])) == [Move(uci="e2e4")]
    assert asked == [(chess.STARTING_FEN, 50, 1350)]
    assert mover.name == "engine nodes 50 elo 1350"
