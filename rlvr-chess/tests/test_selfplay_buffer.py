from __future__ import annotations

import json
from collections import Counter

import chess
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from rlvr import CheckpointError
from rlvr_chess.selfplay.buffer import MEMORY, STRATUM, Found, Limits, PositionBuffer

WIDE = Limits(capacity=100, max_age=10)


def _found(number: int, ply: int = 10, opening: str = "a") -> Found:
    """Distinct positions: a lone king walks over the 64 squares of an odd board."""
    board = chess.Board("7k/8/8/8/8/8/8/8 w - - 0 1")
    board.set_piece_at(number % 60, chess.Piece(chess.KING, chess.WHITE))
    board.set_piece_at(60 + number // 60 % 3, chess.Piece(chess.PAWN, chess.WHITE))
    return Found(fen=board.fen(), ply=ply, opening=opening, history=("e2e4",), move="e7e5")


def test_a_position_is_admitted_once() -> None:
    """Met again it stays out, in the same batch and later, whatever its clocks say."""
    again = _found(1).fen.replace("0 1", "7 31")
    other_clocks = Found(fen=again, ply=60, opening="b")
    buffer = PositionBuffer().with_found([_found(1), _found(1), other_clocks], 0, WIDE)
    assert buffer.entries == (_found(1),)
    later = buffer.aged(10, WIDE)
    assert later.entries == ()
    assert later.with_found([_found(1), _found(2)], 10, WIDE).entries[0] == evolve(
        _found(2), step=10
    )


def test_age_is_counted_in_steps() -> None:
    """A position found at step 3 is there at step 12 and gone at step 13, with ten steps of age."""
    buffer = PositionBuffer().with_found([_found(1)], 3, WIDE)
    assert len(buffer.aged(12, WIDE).entries) == 1
    assert buffer.aged(13, WIDE).entries == ()


def test_fullest_stratum_gives_way() -> None:
    """Over its capacity the buffer drops the oldest positions of the phase it has most of."""
    limits = Limits(capacity=4, max_age=10)
    opening = [_found(n, ply=5) for n in range(4)]
    buffer = PositionBuffer().with_found(opening, 0, limits)
    buffer = buffer.with_found([_found(9, ply=5 * STRATUM), _found(10, ply=3 * STRATUM)], 1, limits)
    assert [e.ply for e in buffer.entries] == [5, 5, 5 * STRATUM, 3 * STRATUM]
    assert list(buffer.entries[:2]) == opening[2:]


def test_opening_has_a_quota() -> None:
    """No opening holds more positions than its quota; the oldest go."""
    limits = Limits(capacity=100, max_age=10, per_opening=2)
    found = [_found(n, opening="a") for n in range(5)] + [_found(9, opening="b")]
    buffer = PositionBuffer().with_found(found, 0, limits)
    assert list(buffer.entries) == found[3:]


@given(
    batches=st.lists(
        st.lists(
            st.tuples(st.integers(0, 150), st.integers(0, 140), st.sampled_from("abc")), max_size=9
        ),
        max_size=8,
    ),
    capacity=st.integers(1, 12),
    per_opening=st.integers(0, 5),
)
def test_limits_always_hold(
    batches: list[list[tuple[int, int, str]]], capacity: int, per_opening: int
) -> None:
    """Whatever is found: capacity, age, quotas, no position twice, order of finding, JSON."""
    limits = Limits(capacity=capacity, max_age=3, per_opening=per_opening)
    buffer = PositionBuffer()
    for step, batch in enumerate(batches):
        found = [_found(n, ply, opening) for n, ply, opening in batch]
        buffer = buffer.aged(step, limits).with_found(found, step, limits)
        entries = buffer.entries
        assert len(entries) <= capacity
        assert all(0 <= step - e.step < 3 for e in entries)
        assert [e.step for e in entries] == sorted(e.step for e in entries)
        assert len({e.key for e in entries}) == len(entries)
        assert len(buffer.met) <= MEMORY * capacity
        if per_opening:
            assert max(Counter(e.opening for e in entries).values(), default=0) <= per_opening
        kept = json.loads(json.dumps(buffer.to_json()))
        assert PositionBuffer.from_json(kept) == buffer


def test_memory_of_another_version_is_refused() -> None:
    """A checkpoint that another version wrote is an error, an empty one a beginning."""
    assert PositionBuffer.from_json({}) == PositionBuffer()
    with pytest.raises(CheckpointError, match="version 99, this is version 1"):
        PositionBuffer.from_json({"version": 99, "met": [], "positions": []})
