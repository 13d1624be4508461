"""A trajectory with pictures as the input of a vision-language model.

The model's processor says which tokens stand for each picture and makes the pixels; types and masks
of all other tokens are those of the trajectory without them. `rlvr run` trains language models and
leaves placeholders as text; this is for loops of one's own.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from rlvr.errors import ConfigError, PrerequisiteError, explain
from rlvr.tokenization import FastTokenizer
from rlvr_sad.replay.layout import lay_out
from rlvr_sad.replay.turns import part_of
from rlvr_sad.tokens import Tokens
from rlvr_sad.trajectory import CODES, AgentTrajectory, Media

_PLACE = "\ue100"
"""Stands for a picture until its tokens are known: a private character, which no text has."""
_AROUND = ("<|vision_start|>", "<|vision_end|>")


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
        ConfigError: A picture cannot be read, or the processor cannot place it.
        PrerequisiteError: Pillow is not installed.
    """
    tokenizer = FastTokenizer(processor.tokenizer)
    if getattr(processor, "image_processor", None) is None:
        return Seen(lay_out(trajectory, tokenizer, layout), {})
    marked, media = _marked(trajectory)
    tokens = lay_out(marked, tokenizer, layout)
    found = _places(tokens.ids, tokenizer)
    pictures = [open_picture(one, trajectory.source) for one in media[: len(found)]]
    if not pictures:
        return Seen(tokens, {})
    mark = placeholder or _placeholder(processor)
    expanded = [_expanded(processor, mark, picture) for picture in pictures]
    inputs = _call(processor, "\n".join([mark] * len(pictures)), pictures)
    inputs = {k: v for k, v in inputs.items() if k not in ("input_ids", "attention_mask")}
    inputs.pop("mm_token_type_ids", None)  # those of the sequence as a whole follow from its ids
    return Seen(_replaced(tokens, found, expanded), inputs)


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
            explain("a picture was to be opened.", "found: no Pillow", "do: pip install pillow")
        ) from error
    name = media.source if len(media.source) < 80 else f"{media.source[:77]}..."
    if media.source.startswith(("http://", "https://")):
        raise _unreadable(name, "it lies on another machine", "put it beside the trajectories")
    try:
        if media.source.startswith("data:"):
            data: Any = io.BytesIO(base64.b64decode(media.source.partition(",")[2], validate=True))
        else:
            data = Path(source).parent / media.source.removeprefix("file://")
        with Image.open(data) as picture:
            return picture.convert("RGB")
    except (
        *(OSError, ValueError, SyntaxError, binascii.Error),  # SyntaxError: a broken PNG
        Image.DecompressionBombError,
    ) as error:
        raise _unreadable(name, str(error), "check the path, and that it is a picture") from error


def _marked(trajectory: AgentTrajectory) -> tuple[AgentTrajectory, list[Media]]:
    """The trajectory with a private character for each picture, and the pictures."""
    segments, media = [], []
    for segment in trajectory.segments:
        text = segment.text.replace(_PLACE, "\N{REPLACEMENT CHARACTER}")
        if segment.media is not None and segment.media.kind == "image":
            media.append(segment.media)
            text = _PLACE
        size = len(text.encode("utf-8"))
        segments.append(evolve(segment, text=text, start=0, end=size))
    return part_of(trajectory, segments), media


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


def _placeholder(processor: Any) -> str:
    mark = getattr(processor, "image_token", None)
    if not mark:
        raise ConfigError(
            explain(
                "pictures were to be given to a vision-language model.",
                f"found: {type(processor).__name__} does not name its image token",
                "give placeholder=...",
            )
        )
    vocabulary = processor.tokenizer.get_vocab()
    before, after = _AROUND if all(token in vocabulary for token in _AROUND) else ("", "")
    return f"{before}{mark}{after}"


def _expanded(processor: Any, mark: str, picture: Any) -> list[int]:
    """The tokens that stand for one picture."""
    ids = _call(processor, mark, [picture])["input_ids"][0].tolist()
    if not ids:
        raise ConfigError(
            explain("a picture was to become tokens.", f"found: {mark!r} became none")
        )
    return list(ids)


def _call(processor: Any, text: str, pictures: Sequence[Any]) -> dict[str, Any]:
    return dict(
        processor(text=[text], images=list(pictures), return_tensors="pt", add_special_tokens=False)
    )


def _unreadable(name: str, found: str, do: str) -> ConfigError:
    return ConfigError(explain(f"the picture {name} was to be read.", f"found: {found}", do))
