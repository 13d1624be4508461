"""Recorded trajectories with pictures, replayed for a model that sees."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from replay_fixture import Policy
from vision_fixture import PATCHES, Image, picture, processor_of, record, write_records

from rlvr import (
    BackendError,
    BuildContext,
    ConfigError,
    FastTokenizer,
    Group,
    ImageProcessor,
    SamplingParams,
    sample_groups,
    types,
)
from rlvr_sad.config import SadConfig
from rlvr_sad.replay.sampler import ReplayConfig, ReplaySampler
from rlvr_sad.replay.windows import Window, windows
from rlvr_sad.task import SadTask

IMAGE = 2
"""The id of `<image>`."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))


class Seer(Policy):
    """Reads with LLaVA's tokenizer and processor; counts how often a picture becomes tokens."""

    def __init__(self, context_length: int = 4096) -> None:
        processor = processor_of()
        super().__init__(context_length, FastTokenizer(processor.tokenizer))
        self.image_processor: ImageProcessor | None = ImageProcessor(lambda: processor)
        self.asked = 0
        tokens = self.image_processor.tokens

        def counted(opened: Any) -> list[int]:
            self.asked += 1
            return tokens(opened)

        self.image_processor.tokens = counted  # type: ignore[method-assign]


def blind() -> Policy:
    """The same tokenizer, and no eyes."""
    return Policy(4096, FastTokenizer(processor_of().tokenizer))


def task_of(path: Path) -> SadTask:
    """The task of a file."""
    return SadTask(SadConfig(), BuildContext(dataset=path))


def replayed(path: Path, policy: Policy, **options: Any) -> list[Group]:
    """All groups of a file."""
    sampler, task = ReplaySampler(ReplayConfig(**options), BuildContext()), task_of(path)
    problems = list(task.problems("all"))
    return asyncio.run(sample_groups(sampler, policy, task, problems, SamplingParams()))


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    """One with two pictures, one without any."""
    picture(tmp_path, "a.png", (255, 0, 0))
    picture(tmp_path, "b.png", (0, 0, 255))
    return write_records(tmp_path / "p.jsonl", [record(0, "a.png", "b.png"), record(1)])


def spelled(policy: Policy, group: Group) -> str:
    """The text of a group's only trajectory, a picture's tokens as [P]."""
    (one,) = group.trajectories
    return policy.tokenizer.decode(one.tokens.tolist()).replace("<image>" * PATCHES, "[P]")


def test_a_model_that_sees_gets_tokens_and_pictures(chats: Path) -> None:
    """Each picture's tokens in its place, never learnt; the pictures themselves in order."""
    policy = Seer()
    shown, text = replayed(chats, policy)
    (one,) = shown.trajectories

    assert policy.image_processor is not None
    assert spelled(policy, shown).startswith(
        "<user>look at the picture 0\n[P]\n[P]<end><assistant>"
    )
    assert int((one.tokens == IMAGE).sum()) == 2 * PATCHES
    assert not one.mask[one.tokens == IMAGE].any()
    learnt = policy.tokenizer.decode(one.tokens[one.mask].tolist())
    assert learnt.startswith("<think>the door 0</think> is red")
    assert [p.open().getpixel((3, 3)) for p in one.pictures] == [(255, 0, 0), (0, 0, 255)]
    assert all(isinstance(p, types.Image) for p in one.pictures)
    assert text.trajectories[0].pictures == ()
    (as_blind, _) = replayed(chats, blind())
    same = as_blind.trajectories[0]
    assert one.tokens[one.mask].tolist() == same.tokens[same.mask].tolist()


def test_a_model_of_text_gets_places_and_it_is_said(chats: Path) -> None:
    """As ever: the placeholder is text, no file is opened; said once."""
    (chats.parent / "a.png").unlink()
    with structlog.testing.capture_logs() as logs:
        shown, _ = replayed(chats, blind())

    assert spelled(blind(), shown).count("<image>") == 2
    assert shown.trajectories[0].pictures == ()
    assert IMAGE not in shown.trajectories[0].tokens
    said = [log for log in logs if log["event"] == "media_not_shown"]
    assert len(said) == 1
    assert "text alone" in said[0]["why"]


def test_what_was_laid_out_is_kept_by_the_pictures_too(chats: Path) -> None:
    """A second time no picture becomes tokens; another picture, or other eyes: laid out anew."""
    policy = Seer()
    first = replayed(chats, policy)
    again = replayed(chats, policy)
    assert policy.asked == 2
    assert first == again

    picture(chats.parent, "a.png", (1, 2, 3))
    changed = replayed(chats, policy)
    assert policy.asked == 4
    assert changed[0].trajectories[0].pictures[0].open().getpixel((0, 0)) == (1, 2, 3)
    assert replayed(chats, blind())[0].trajectories[0].pictures == ()
    assert replayed(chats, policy)[0].trajectories[0].pictures


def test_pictures_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    """Missing, broken, elsewhere: each told with file, line and reason; the others are replayed."""
    picture(tmp_path, "a.png", (255, 0, 0))
    (tmp_path / "broken.png").write_bytes((tmp_path / "a.png").read_bytes()[:40])
    bad = ["nothing.png", "broken.png", "https://example.org/a.png"]
    records = [record(n, name) for n, name in enumerate([*bad, "a.png"])]
    path = write_records(tmp_path / "p.jsonl", [*records, record(4)])
    with structlog.testing.capture_logs() as logs:
        groups = replayed(path, Seer())

    assert [len(g.trajectories) for g in groups] == [0, 0, 0, 1, 1]
    refused = [log["why"] for log in logs if log["event"] == "trajectory_refused"]
    for line, (why, reason) in enumerate(
        zip(refused, ["No such file", "truncated|cannot identify", "another machine"], strict=True)
    ):
        assert why.startswith(f"{path}:{line + 1}: the picture {bad[line]} was to be read")
        assert any(one in why for one in reason.split("|")), why
    (counted,) = [log for log in logs if log["event"] == "long_trajectories"]
    assert counted["dropped"] == 3


def test_a_picture_that_the_processor_refuses(tmp_path: Path) -> None:
    """As one that cannot be read: told with its place, the others are replayed."""
    policy = Seer()
    inner = processor_of()

    class Strict:
        """Refuses small pictures, as some processors do with narrow ones."""

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def __call__(self, images: Any, **options: Any) -> Any:
            if min(images[0].size) < 5:
                raise ValueError("it is too narrow")
            return inner(images=images, **options)

    policy.image_processor = ImageProcessor(Strict, "the model")
    Image.new("RGB", (90, 2)).save(tmp_path / "narrow.png")
    picture(tmp_path, "a.png", (255, 0, 0))
    path = write_records(tmp_path / "p.jsonl", [record(0, "a.png"), record(1, "narrow.png")])
    with structlog.testing.capture_logs() as logs:
        groups = replayed(path, policy)

    assert [len(g.trajectories) for g in groups] == [1, 0]
    (why,) = [log["why"] for log in logs if log["event"] == "trajectory_refused"]
    assert why.startswith(f"{path}:2: 1 pictures (90x2) were to be shown to the model")
    assert "it is too narrow" in why


def test_nothing_but_unreadable_pictures_ends_the_run(tmp_path: Path) -> None:
    """Where no trajectory is left the error tells the first reason."""
    path = write_records(tmp_path / "p.jsonl", [record(n, f"{n}.png") for n in range(3)])
    with pytest.raises(ConfigError, match=r"3 recorded trajectories.*\n.*0\.png was to be read"):
        replayed(path, Seer())


def test_a_processor_that_cannot_be_loaded_ends_the_run(chats: Path) -> None:
    """That is no matter of one trajectory: none is dropped for it."""

    def missing() -> Any:
        raise BackendError("it has no processor")

    policy = Seer()
    policy.image_processor = ImageProcessor(missing)
    with pytest.raises(ConfigError, match="it has no processor"):
        replayed(chats, policy)


def test_a_picture_in_the_record_travels_small(tmp_path: Path) -> None:
    """Of a `data:` URL only the digest is shown, and it tells pictures apart."""
    records = []
    for n, colour in enumerate([(1, 2, 3), (1, 2, 4)]):
        picture(tmp_path, "x.png", colour)
        data = base64.b64encode((tmp_path / "x.png").read_bytes()).decode()
        records.append(record(n, f"data:image/png;base64,{data}"))
    first, second = replayed(write_records(tmp_path / "p.jsonl", records), Seer())
    ((one,), (other,)) = (g.trajectories[0].pictures for g in (first, second))

    assert one.open().getpixel((0, 0)) == (1, 2, 3)
    assert repr(one) != repr(other)
    assert len(repr(one)) < 200 + len(str(tmp_path))


def test_a_long_one_comes_in_windows_with_whole_pictures(tmp_path: Path) -> None:
    """Every learnt token once; each window has as many picture tokens as its pictures take."""
    picture(tmp_path, "a.png", (255, 0, 0))
    messages = []
    for n in range(8):
        messages += record(n, "a.png", tail=" and so on" * (n % 3))["messages"]
    path = write_records(tmp_path / "p.jsonl", [{"messages": messages}])
    ((whole,),) = (g.trajectories for g in replayed(path, Seer()))
    for size in range(60, 80, 2):
        found = replayed(path, Seer(), max_tokens=size, overlap=24)
        ((*parts,),) = (g.trajectories for g in found)
        assert len(parts) > 3
        assert sum(int(t.mask.sum()) for t in parts) == int(whole.mask.sum())
        for part in parts:
            assert len(part.tokens) <= size
            assert int((part.tokens == IMAGE).sum()) == PATCHES * len(part.pictures)
        assert any(part.pictures for part in parts[1:])


@given(st.lists(st.sampled_from(["learnt", "read", 1, 3, 6]), max_size=40), st.data())
def test_no_window_holds_a_part_of_a_picture(parts: list[Any], data: st.DataObject) -> None:
    """Nor is a learnt token lost, but where the picture before it fills the window."""
    limit = data.draw(st.integers(2, 12))
    overlap = data.draw(st.integers(1, limit - 1))
    mask, pictures = [False], []
    for part in parts:
        if isinstance(part, int):
            pictures.append((len(mask), len(mask) + part))
        mask += [part == "learnt"] * (part if isinstance(part, int) else 1)
    wanted = {t for t, on in enumerate(mask) if on}
    for long in ("window", "cut"):
        found = windows(np.array(mask), limit, overlap, long, pictures)
        learnt = []
        for window in found:
            assert 0 <= window.start < window.end <= len(mask)
            assert window.end - window.start <= limit or len(mask) <= limit
            for first, behind in pictures:
                inside = sum(window.start <= t < window.end for t in range(first, behind))
                assert inside in (0, behind - first)
            places = range(max(window.learnt, window.start + 1), window.end)
            learnt += [t for t in places if mask[t]]
        assert len(learnt) == len(set(learnt))
        if long == "window":
            for lost in wanted - set(learnt):
                (size,) = [b - a for a, b in pictures if b == lost]
                assert size >= limit


def test_windows_around_a_picture_by_hand() -> None:
    """It begins behind a picture that does not fit, and with all of one that it needs."""
    mask = np.array([False, True, False, False, False, False, True, True, True])

    assert windows(mask, 6, 3, "window", [(2, 5)]) == [Window(0, 2, 1), Window(5, 9, 6)]
    assert windows(mask, 6, 3, "window", [(2, 6)]) == [
        Window(0, 2, 1),
        Window(2, 8, 6),
        Window(6, 9, 8),
    ]
