"""Instruction and output: Alpaca's shape, whose output may be a whole transcript (FireAct)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rlvr_sad.formats.calls import labels_of
from rlvr_sad.spans.choose import GUESSED, read_text
from rlvr_sad.spans.roles import SYSTEM, USER
from rlvr_sad.trajectory_builder import Piece, TrajectoryBuilder

_ASKED = ("instruction", "prompt", "question", "query")
_GIVEN = ("output", "response", "completion")


class Alpaca:
    """One instruction a record, with an optional input, system prompt and earlier turns."""

    def claims(self, record: Any) -> bool:
        return isinstance(record, dict) and _keys(record) is not None

    def read(self, record: Any) -> Iterable[TrajectoryBuilder]:
        asked, given = _keys(record) or ("", "")
        draft = TrajectoryBuilder(labels=labels_of({k: v for k, v in record.items() if k != given}))
        draft.message([Piece("other", str(record.get("system") or ""), SYSTEM)])
        for turn in record.get("history") or []:
            if isinstance(turn, list) and len(turn) == 2 and all(isinstance(t, str) for t in turn):
                draft.message([Piece("other", turn[0], USER)])
                draft.message([Piece("action", turn[1])])
        draft.message([Piece("other", record[asked], USER)])
        draft.message([Piece("other", str(record.get("input") or ""), USER)])
        inner = read_text(record[given])
        if inner.format in GUESSED:  # the shape says who wrote it: a reply
            draft.message([Piece("action", record[given])])
        else:
            draft.message(inner.pieces)
            draft.notes += inner.notes
        return [draft]


def _keys(record: dict[str, Any]) -> tuple[str, str] | None:
    for asked in _ASKED:
        for given in _GIVEN:
            if isinstance(record.get(asked), str) and isinstance(record.get(given), str):
                return asked, given
    return None
