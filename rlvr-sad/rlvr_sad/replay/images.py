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
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from rlvr import (
    ConfigError,
    FastTokenizer,
    Image,
    ImageProcessor,
    Message,
    PrerequisiteError,
    pip_install,
)
from rlvr_sad.replay.layout import lay_out, part_of
from rlvr_sad.tokens import Tokens
from rlvr_sad.trajectory import CODES, TRAINED, AgentTrajectory

_PLACE = "\ue100"
"""Stands for a picture until its tokens are known: a private character, which no text has."""


def _told(source: str) -> str:
    """The source for `repr`; a picture inside the record is shown by its digest."""
    if source.startswith("data:"):
        return f"data:{hashlib.sha256(source.encode()).hexdigest()}"
    return repr(source)


@frozen(kw_only=True)
class StoredPicture(Image):
    """
    A picture of a record: where it is, not what is on it.

    Attributes:
        source: A path or a `data:` URL, as the record has it.
        file: The file of the record; a relative path begins at its folder.
    """

    source: str = field(repr=_told)
    file: str = ""

    def open(self) -> Any:
        """
        The picture (RGB), as Pillow has it, from its file or `data:` URL.

        Raises:
            ConfigError: It is not there, is no picture, or lies on another machine.
            PrerequisiteError: Pillow is not installed.
        """
        try:
            from PIL import Image
        except ImportError as error:
            do = f"do: {pip_install('pillow')}"
            raise PrerequisiteError(
                "a picture was to be opened.", "found: no Pillow", do
            ) from error
        try:
            with Image.open(io.BytesIO(self._bytes())) as picture:
                return picture.convert("RGB")
        except ConfigError:
            raise
        except (
            *(OSError, ValueError, SyntaxError, binascii.Error),  # SyntaxError: a broken PNG
            Image.DecompressionBombError,
        ) as error:
            raise _unreadable(self.source, str(error)) from error

    def digest(self) -> str:
        """
        Of its bytes.

        Raises:
            ConfigError: It cannot be read.
        """
        try:
            inside = self.source.startswith("data:")
            data = self.source.encode() if inside else self._bytes()
        except OSError as error:
            raise _unreadable(self.source, str(error)) from error
        return hashlib.sha256(data).hexdigest()

    def _bytes(self) -> bytes:
        source = self.source
        if source.startswith("data:"):
            return base64.b64decode(source.partition(",")[2], validate=True)
        if source.startswith(("http://", "https://")):
            do = "put it beside the trajectories"
            raise _unreadable(source, "it lies on another machine", do)
        return (Path(self.file).parent / source.removeprefix("file://")).read_bytes()


@frozen(kw_only=True, eq=False)
class PreparedTrajectory:
    """
    A trajectory as it was laid out for a policy.

    Attributes:
        tokens: Ids, types and mask (T,); tokens that stand for a picture are `other`.
        prompt: Its first messages; none for a text.
        places: Where the tokens of each picture begin and end, in order.
        pictures: One a place; those behind the last learnt token are left out.
        unseen: Pictures, films and sounds whose places are text.
    """

    tokens: Tokens
    prompt: tuple[Message, ...] = ()
    places: tuple[tuple[int, int], ...] = ()
    pictures: tuple[StoredPicture, ...] = ()
    unseen: int = 0

    def pictures_in(self, start: int, end: int) -> tuple[StoredPicture, ...]:
        """The images whose tokens all lie there."""
        return tuple(
            picture
            for (first, behind), picture in zip(self.places, self.pictures, strict=True)
            if start <= first and behind <= end
        )

    def packed(self) -> bytes:
        prompt = [[m.role, m.content] for m in self.prompt]
        text = json.dumps([prompt, self.places, self.unseen]).encode()
        return len(text).to_bytes(8, "little") + text + self.tokens.packed()

    @classmethod
    def unpacked(cls, data: bytes, pictures: Sequence[StoredPicture]) -> PreparedTrajectory:
        at = 8 + int.from_bytes(data[:8], "little")
        prompt, places, unseen = json.loads(data[8:at])
        return cls(
            tokens=Tokens.unpacked(data, (len(data) - at) // 5, at),
            prompt=tuple(Message(role=role, content=content) for role, content in prompt),
            places=tuple((start, end) for start, end in places),
            pictures=tuple(pictures[: len(places)]),
            unseen=unseen,
        )


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
    trajectory: AgentTrajectory,
    tokenizer: FastTokenizer,
    image_processor: ImageProcessor,
    layout: str = "auto",
) -> PreparedTrajectory:
    """
    Tokens of a trajectory with its pictures' tokens in their places.

    Args:
        trajectory: What was recorded.
        tokenizer: The model's.
        image_processor: How the model takes pictures.
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
    expanded = [image_processor.tokens(picture.open()) for picture in pictures]
    places, grown = [], 0  # tokens that the pictures before have more than their marks
    for (start, end), ids in zip(found, expanded, strict=True):
        places.append((start + grown, start + grown + len(ids)))
        grown += len(ids) - (end - start)
    return PreparedTrajectory(
        tokens=_replaced(tokens, found, expanded), places=tuple(places), pictures=pictures
    )


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
    image_processor = ImageProcessor(lambda: processor, placeholder=placeholder)
    shown = show(trajectory, tokenizer, image_processor, layout)
    if not shown.pictures:
        return Seen(shown.tokens, {})
    return Seen(
        shown.tokens, image_processor.pixels([picture.open() for picture in shown.pictures])
    )


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
    """Refuse a template that left out a picture: the next one would take its place."""
    kinds = [s.media.kind if s.media else "" for s in trajectory.segments]
    said = [i for i, s in enumerate(trajectory.segments) if s.type in TRAINED and s.text.strip()]
    wanted = kinds[: max(said, default=0)].count("image")
    if found < wanted:
        raise ConfigError(
            f"{wanted} pictures were to be put into a trajectory.",
            f"found: places for {found}: the tokenizer or its chat template leaves some out",
            "set replay.layout=text, or mend chat_template.jinja in a copy of the model",
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
                "a picture was to be put into a trajectory.",
                "found: the tokenizer joins its place with the text beside it",
                "set the picture apart by a newline",
            )
        found.append((first, last + 1))
        at = text.find(mark, at + 1)
    return found


def _replaced(
    tokens: Tokens, places: Sequence[tuple[int, int]], expanded: Sequence[Sequence[int]]
) -> Tokens:
    """The tokens with those of each picture in its place."""
    cuts = np.array(places, np.int64).reshape(-1)  # every second part lies in a place

    def filled(values: NDArray[Any], fills: Sequence[Any]) -> NDArray[Any]:
        parts = np.split(values, cuts)
        parts[1::2] = [np.array(fill, values.dtype) for fill in fills]
        return np.concatenate(parts)

    others = [[CODES["other"]] * len(ids) for ids in expanded]
    return Tokens.of(filled(tokens.ids, expanded), filled(tokens.types, others))


def _unreadable(
    source: str, found: str, do: str = "check the path, and that it is a picture"
) -> ConfigError:
    name = source if len(source) < 80 else f"{source[:77]}..."
    return ConfigError(f"the picture {name} was to be read.", f"found: {found}", do)
