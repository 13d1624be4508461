"""Transcripts that are one text: a file, a value of a file of prompts, or `{"id", "text"}`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rlvr_sad.formats.calls import labels_of
from rlvr_sad.spans import chats, harmony, markers
from rlvr_sad.spans.choose import GUESSED, read_text
from rlvr_sad.trajectory_builder import BadRecordError, TrajectoryBuilder

_KEYS = ("text", "messages_display", "transcript", "trajectory", "traj", "log", "sequences_str")
_IDS = re.compile(r"[\d\s,\[\]]+")


class Transcript:
    """A text by itself; a text of several questions is several trajectories."""

    def claims(self, record: Any) -> bool:
        """True for a text, or an object that holds one under a usual name."""
        return isinstance(record, str) or _key(record) is not None

    def read(self, record: Any) -> Iterable[TrajectoryBuilder]:
        """One draft; of a bare text one for each of its questions."""
        key = _key(record)
        text = record if key is None else record[key]
        if not text.strip():
            raise BadRecordError("the text is empty")
        if _IDS.fullmatch(text):
            raise BadRecordError("the text is token ids: decode them with their tokenizer first")
        if key is not None:
            draft = read_text(text)
            if "id" not in record:
                _refuse_guess(draft)
            draft.labels.update(labels_of({k: v for k, v in record.items() if k != key}))
            return [draft]
        return _episodes(text)


def _refuse_guess(draft: TrajectoryBuilder) -> None:
    """Refuse a guessed style: only an `{"id", "text"}` record is surely written by an agent."""
    if draft.format in GUESSED:
        raise BadRecordError("nothing in the text says who wrote what (no marks of any style)")


def _key(record: Any) -> str | None:
    if not isinstance(record, dict):
        return None
    return next((key for key in _KEYS if isinstance(record.get(key), str)), None)


def _episodes(text: str) -> list[TrajectoryBuilder]:
    if chats.is_chatml(text) or harmony.is_harmony(text):
        return [read_text(text)]
    parts = markers.episodes(text)
    drafts = [read_text(part) for part in parts]
    if len(parts) == 1:
        _refuse_guess(drafts[0])
        return drafts
    for number, draft in enumerate(drafts, start=1):
        draft.suffix = f"#{number}"
    before = text[: text.index(parts[0])].strip()
    if before:
        drafts[0].note(f"{len(before)} characters before the first question were left out")
    return drafts
