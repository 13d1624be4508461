"""Windows around pictures as they reach a model: it is shown each one whose tokens it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_show import IMAGE, Seer, replayed
from vision_fixture import PATCHES, picture, processor_of, record, write_records

from rlvr import ConfigError, FastTokenizer
from rlvr_sad.replay.windows import Window, windows


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))


@given(st.lists(st.sampled_from(["learnt", "read", 1, 3, 6]), max_size=40), st.integers(2, 12))
def test_the_best_window_ends_before_a_picture_that_nobody_reads(
    parts: list[Any], limit: int
) -> None:
    """A model reads up to the last learnt token: a picture behind it would have no place."""
    mask, pictures = [False], []
    for part in parts:
        if isinstance(part, int):
            pictures.append((len(mask), len(mask) + part))
        mask += [part == "learnt"] * (part if isinstance(part, int) else 1)
    if len(mask) <= limit:
        return
    for window in windows(np.array(mask), limit, 1, "cut", pictures):
        learnt = [t for t in range(window.start + 1, window.end) if mask[t]]
        counts = [
            sum(mask[s + 1 : s + limit])
            for s in range(len(mask) - limit + 1)
            if not any(first < s < behind for first, behind in pictures)
        ]
        assert len(learnt) == max(counts)
        last = max([window.start, *learnt])
        assert not [p for p in pictures if last < p[0] < window.end]


def test_the_best_window_by_hand() -> None:
    """Of seven tokens five are read; the picture behind the learnt ones is left out."""
    mask = np.array([False, True, True, False, False, False, True])

    assert windows(mask, 5, 1, "cut", [(3, 5)]) == [Window(0, 3, 1)]
    assert windows(mask, 5, 1, "cut") == [Window(0, 5, 1)]


@pytest.mark.parametrize("long", ["window", "cut"])
def test_parts_hold_the_pictures_that_are_read(tmp_path: Path, long: str) -> None:
    """Up to the last learnt token of each: so many tokens of pictures, so many pictures."""
    picture(tmp_path, "a.png", (255, 0, 0))
    second = record(1, "a.png")["messages"]
    second[0]["content"].append({"type": "text", "text": "far away " * 20})
    messages = [*record(0, "a.png")["messages"], *second]
    path = write_records(tmp_path / "p.jsonl", [{"messages": messages}])
    for size in range(60, 130, 5):
        (group,) = replayed(path, Seer(), max_tokens=size, overlap=size // 2, long=long)
        for part in group.trajectories:
            (*_, last) = np.flatnonzero(part.mask)
            read = part.tokens[: last + 1]
            assert int((read == IMAGE).sum()) == PATCHES * len(part.pictures)


DEAF = (
    "{% for m in messages %}{% if m.role != 'tool' %}<{{ m.role }}>{{ m.content }}<end>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def test_a_picture_that_a_template_leaves_out_is_not_another(tmp_path: Path) -> None:
    """A tool's answer that is a picture alone: the next picture does not take its place."""
    for name in ("a.png", "b.png"):
        picture(tmp_path, name, (255, 0, 0))
    call = {"function": {"name": "look", "arguments": "{}"}}
    shown = {"type": "image_url", "image_url": {"url": "a.png"}}
    messages = [
        {"role": "user", "content": "what is there?"},
        {"role": "assistant", "content": "I look", "tool_calls": [call]},
        {"role": "tool", "content": [shown]},
        *[{"role": "assistant", "content": "a door"}, *record(1, "b.png")["messages"]],
    ]
    path = write_records(tmp_path / "p.jsonl", [{"messages": messages}])
    seer, deaf = Seer(), Seer()
    deaf.tokenizer = FastTokenizer(processor_of(template=DEAF).tokenizer)

    (group,) = replayed(path, seer)
    assert [one.source for one in group.trajectories[0].pictures] == ["a.png", "b.png"]
    with pytest.raises(ConfigError, match="leaves some out"):
        replayed(path, deaf)  # nor is what was kept for the other template
    (group,) = replayed(path, deaf, layout="text")
    assert len(group.trajectories[0].pictures) == 2
