"""Trajectories with pictures, as a vision-language model reads them.

The model's processor says which tokens stand for each picture and makes the pixels; types and masks
of all other tokens are those of the trajectory without them. `rlvr run` lays recorded trajectories
out by `show` where the model sees; `prepare` is for loops of one's own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from rlvr.errors import ConfigError, PrerequisiteError, explain
from rlvr.install import pip_install
from rlvr.tokenization import FastTokenizer, Sight
from rlvr_sad.replay.layout import lay_out
from rlvr_sad.replay.turns import part_of
from rlvr_sad.tokens import Tokens
from rlvr_sad.trajectory import CODES, TRAINED, AgentTrajectory, Media

_PLACE = "\ue100"
"""Stands for a picture until its tokens are known: a private character, which no text has."""


def _told(source: str) -> str:
    """A source for a person, and to tell it apart: a picture in the record itself by its digest."""
    if source.startswith("data:"):
        return f"data:{hashlib.sha256(source.encode()).hexdigest()}"
    return repr(source)


@frozen(kw_only=True)
class StoredPicture:
    """
    A picture of a record: where it is, not what is on it.

    Attributes:
        source: A path or a `data:` URL, as the record has it.
        file: The file of the record; a relative path begins at its folder.
    """

    source: str = field(repr=_told)
    file: str = ""

    def open(self) -> Any:
        """The picture (RGB), as Pillow has it; `ConfigError` where it cannot be read."""
        return open_picture(Media(kind="image", source=self.source), self.file)

    def digest(self) -> str:
        """
        Of its bytes.

        Raises:
            ConfigError: It cannot be read.
        """
        if self.source.startswith("data:"):
            return hashlib.sha256(self.source.encode()).hexdigest()
        try:
            return hashlib.sha256(_path(self.source, self.file).read_bytes()).hexdigest()
        except OSError as error:
            raise _unreadable(self.source, str(error)) from error


@frozen(eq=False)
class Shown:
    """
    A trajectory with the tokens of its pictures in their places.

    Attributes:
        tokens: Ids, types and mask (T,); tokens that stand for a picture are `other`.
        places: Where each picture's tokens begin and end.
        pictures: In the order of their places; those behind the last learnt token are left out.
    """

    tokens: Tokens
    places: tuple[tuple[int, int], ...] = ()
    pictures: tuple[StoredPicture, ...] = ()


@frozen(eq=False)
class Seen:
    """
    A trajectory as a vision-language model reads it.

    Attributes:
        tokens: Ids, types and mask (T,); tokens that stand for a picture are `other`.
        inputs: What else the model's forward takes, as its processor gave it (`pixel_values`, ...).
    """

    tokens: Tokens
    inputs: Mapping[str, Any]


def pictures_of(trajectory: AgentTrajectory) -> tuple[StoredPicture, ...]:
    """Its pictures in the order of their places; films and sounds are none."""
    return tuple(
        StoredPicture(source=media.source, file=trajectory.source)
        for media in trajectory.media()
        if media.kind == "image"
    )


def show(
    trajectory: AgentTrajectory, tokenizer: FastTokenizer, sight: Sight, layout: str = "auto"
) -> Shown:
    """
    Tokens of a trajectory with its pictures' tokens in their places.

    Args:
        trajectory: What was recorded.
        tokenizer: The model's.
        sight: How the model takes pictures.
        layout: As `replay.layout`.

    Raises:
        ConfigError: A picture cannot be read or placed.
        BackendError: The model's processor cannot take one.
        PrerequisiteError: Pillow is not installed.
    """
    tokens = lay_out(_marked(trajectory), tokenizer, layout)
    found = _places(tokens.ids, tokenizer)
    _check_none_lost(trajectory, len(found))
    pictures = pictures_of(trajectory)[: len(found)]
    expanded = [sight.tokens(picture.open()) for picture in pictures]
    places, grown = [], 0  # tokens that the pictures before have more than their marks
    for (start, end), ids in zip(found, expanded, strict=True):
        places.append((start + grown, start + grown + len(ids)))
        grown += len(ids) - (end - start)
    return Shown(_replaced(tokens, found, expanded), tuple(places), pictures)


def prepare(
    trajectory: AgentTrajectory, processor: Any, *, layout: str = "auto", placeholder: str = ""
) -> Seen:
    """
    Tokens of a trajectory with its pictures' tokens in their places, and the pictures.

    Args:
        trajectory: What was recorded; pictures are files beside its own, or `data:` URLs.
        processor: Of transformers, with a fast tokenizer; one without an image processor leaves
            placeholders as text.
        layout: As `replay.layout`.
        placeholder: What the processor expands to a picture's tokens; "": its own image token,
            between the tokens for the beginning and end of a picture where it has them.

    Raises:
        ConfigError: A picture cannot be read or placed.
        BackendError: The processor cannot take one.
        PrerequisiteError: Pillow is not installed.
    """
    tokenizer = FastTokenizer(processor.tokenizer)
    if getattr(processor, "image_processor", None) is None:
        return Seen(lay_out(trajectory, tokenizer, layout), {})
    sight = Sight(lambda: processor, placeholder=placeholder)
    shown = show(trajectory, tokenizer, sight, layout)
    if not shown.pictures:
        return Seen(shown.tokens, {})
    return Seen(shown.tokens, sight.pixels([picture.open() for picture in shown.pictures]))


def open_picture(media: Media, source: str = "") -> Any:
    """
    A picture (RGB), from a file or a `data:` URL.

    Args:
        media: Where it is; a relative path begins at the folder of `source`.
        source: The file that names it.

    Raises:
        ConfigError: It is not there, is no picture, or lies on another machine.
        PrerequisiteError: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise PrerequisiteError(
            explain(
                "a picture was to be opened.", "found: no Pillow", f"do: {pip_install('pillow')}"
            )
        ) from error
    is_inside = media.source.startswith("data:")
    data: Any = None if is_inside else _path(media.source, source)
    try:
        if is_inside:
            data = io.BytesIO(base64.b64decode(media.source.partition(",")[2], validate=True))
        with Image.open(data) as picture:
            return picture.convert("RGB")
    except (
        *(OSError, ValueError, SyntaxError, binascii.Error),  # SyntaxError: a broken PNG
        Image.DecompressionBombError,
    ) as error:
        raise _unreadable(media.source, str(error)) from error


def _path(source: str, file: str) -> Path:
    if source.startswith(("http://", "https://")):
        do = "put it beside the trajectories"
        raise _unreadable(source, "it lies on another machine", do)
    return Path(file).parent / source.removeprefix("file://")


def _marked(trajectory: AgentTrajectory) -> AgentTrajectory:
    """The trajectory with a private character for each picture."""
    segments = []
    for segment in trajectory.segments:
        text = segment.text.replace(_PLACE, "\N{REPLACEMENT CHARACTER}")
        if segment.media is not None and segment.media.kind == "image":
            text = _PLACE
        size = len(text.encode("utf-8"))
        segments.append(evolve(segment, text=text, start=0, end=size))
    return part_of(trajectory, segments)


def _check_none_lost(trajectory: AgentTrajectory, found: int) -> None:
    """A template may leave out a message that is a picture alone; the next would take its place."""
    kinds = [s.media.kind if s.media else "" for s in trajectory.segments]
    said = [i for i, s in enumerate(trajectory.segments) if s.type in TRAINED and s.text.strip()]
    wanted = kinds[: max(said, default=0)].count("image")
    if found < wanted:
        raise ConfigError(
            explain(
                f"{wanted} pictures were to be put into a trajectory.",
                f"found: places for {found}: the tokenizer or its chat template leaves some out",
                "set replay.layout=text, or mend chat_template.jinja in a copy of the model",
            )
        )


def _places(ids: NDArray[np.int32], tokenizer: FastTokenizer) -> list[tuple[int, int]]:
    """Token ranges of the private characters, which have tokens of their own."""
    spelled = [tokenizer.bytes_of(int(token)) for token in ids]
    ends = np.cumsum([len(one) for one in spelled]) if spelled else np.zeros(0, np.int64)
    starts = ends - np.array([len(one) for one in spelled], np.int64)
    text, mark = b"".join(spelled), _PLACE.encode()
    found, at = [], text.find(mark)
    while at >= 0:
        first = int(np.searchsorted(starts, at))
        last = int(np.searchsorted(ends, at + len(mark)))
        if starts[first] != at or ends[last] != at + len(mark):
            raise ConfigError(
                explain(
                    "a picture was to be put into a trajectory.",
                    "found: the tokenizer joins its place with the text beside it",
                    "set the picture apart by a newline",
                )
            )
        found.append((first, last + 1))
        at = text.find(mark, at + 1)
    return found


def _replaced(
    tokens: Tokens, places: Sequence[tuple[int, int]], expanded: Sequence[Sequence[int]]
) -> Tokens:
    ids: list[int] = []
    types: list[int] = []
    mask: list[bool] = []
    at = 0
    for (start, end), picture in zip(places, expanded, strict=True):
        ids += [*tokens.ids[at:start].tolist(), *picture]
        types += tokens.types[at:start].tolist() + [CODES["other"]] * len(picture)
        mask += tokens.mask[at:start].tolist() + [False] * len(picture)
        at = end
    return Tokens(
        np.array(ids + tokens.ids[at:].tolist(), np.int32),
        np.array(types + tokens.types[at:].tolist(), np.uint8),
        np.array(mask + tokens.mask[at:].tolist(), np.bool_),
    )


def _unreadable(
    source: str, found: str, do: str = "check the path, and that it is a picture"
) -> ConfigError:
    name = source if len(source) < 80 else f"{source[:77]}..."
    return ConfigError(explain(f"the picture {name} was to be read.", f"found: {found}", do))
