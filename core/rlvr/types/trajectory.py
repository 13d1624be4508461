"""A trajectory: segments of tokens by different authors, and their pictures."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from attrs import field, frozen
from attrs.converters import optional
from numpy.typing import NDArray

from rlvr.types.frozen import (
    EQUAL,
    BoolArray,
    FloatArray,
    IntArray,
    as_tuple,
    floats,
    frozen_map,
    ints,
)
from rlvr.types.problem import Message

Author = Literal["prompt", "policy", "env"]
Finish = Literal["stop", "length", "error"]


class Image(abc.ABC):
    """
    A picture that tokens of a trajectory stand for; `repr` tells it apart from others.

    Small, for it travels with the data: where the picture is, not what is on it. A sampler that
    puts the tokens of pictures into a trajectory names the pictures too (`Trajectory.pictures`);
    everyone who reads its data makes pixels of them with an `ImageProcessor` of their own.
    """

    __slots__ = ()

    @abc.abstractmethod
    def open(self) -> Any:
        """The picture, as Pillow has it (RGB). Raises `ConfigError` where it cannot be read."""


@frozen(kw_only=True)
class Segment:
    """
    Contiguous tokens by one author.

    `logprobs` has the shape of `tokens` (T,), in nats, and is present for the policy's tokens
    only: they come from the sampler that drew them and are never computed from text again.
    """

    author: Author
    tokens: IntArray = field(converter=ints, eq=EQUAL)
    logprobs: FloatArray | None = field(default=None, converter=optional(floats), eq=EQUAL)
    text: str = ""

    def __attrs_post_init__(self) -> None:
        if (self.author == "policy") != (self.logprobs is not None):
            raise ValueError("logprobs belong to the policy's segments, and only to them")
        if self.logprobs is not None and self.logprobs.shape != self.tokens.shape:
            raise ValueError("logprobs and tokens of a segment differ in shape")


@frozen(kw_only=True)
class Trajectory:
    """
    The data of one rollout: segments in order, and the policy that sampled them.

    `policy_version` and `policy_digest` name the weights that sampled it, the oldest ones where
    they changed on the way; `policy_versions` are then all of them, in order. `files` holds an
    answer that was given as files rather than text (`rlvr score` with `{"id", "files"}`), or the
    files that its episode left behind (`EpisodeResult.files`). `notes` are what the episode noted
    about its turns (`EpisodeResult.notes`; JSON values only). `prompt_cut` counts prompt tokens
    that did not fit the model's context. `error` says why a rollout broke off (`finish` is then
    "error"). `index` is its place in its group. `pictures` (`Image`) are those that tokens of it
    stand for, in order; the core only carries them. `messages` are those it began with, where they
    are not the problem's prompt; they are not written to files.
    """

    problem_id: str
    segments: tuple[Segment, ...] = field(default=(), converter=as_tuple)
    finish: Finish = "stop"
    seed: int = field(default=0, converter=int)
    index: int = 0
    temperature: float = 1.0
    policy_version: int = 0
    policy_digest: str = ""
    policy_versions: tuple[int, ...] = field(default=(), converter=as_tuple)
    files: Mapping[str, str] | None = None
    prompt_cut: int = 0
    error: str = ""
    notes: Mapping[str, Any] = field(factory=dict, converter=frozen_map)
    pictures: tuple[Any, ...] = field(default=(), converter=as_tuple, repr=False)
    messages: tuple[Message, ...] = field(default=(), converter=as_tuple, repr=False)

    @classmethod
    def from_text(cls, problem_id: str, completion: str) -> Trajectory:
        """A trajectory that holds raw model text only (no tokens): what `rlvr score` reads."""
        segment = Segment(author="policy", tokens=[], logprobs=[], text=completion)
        return cls(problem_id=problem_id, segments=(segment,))

    @property
    def completions(self) -> tuple[str, ...]:
        """The policy's texts, one a turn."""
        return tuple(s.text for s in self.segments if s.author == "policy")

    @property
    def completion(self) -> str:
        """The policy's last text: the answer of a single-turn problem."""
        texts = self.completions
        return texts[-1] if texts else ""

    @property
    def tokens(self) -> IntArray:
        """All token ids in order, shape (T,)."""
        return _join([s.tokens for s in self.segments], np.int32)

    @property
    def mask(self) -> BoolArray:
        """True where the policy wrote the token, shape (T,)."""
        parts = [np.full(len(s.tokens), s.author == "policy") for s in self.segments]
        return _join(parts, np.bool_)

    @property
    def logprobs(self) -> FloatArray:
        """Sampler's logprobs, shape (T,), nats; 0 where the policy did not write the token."""
        parts = [
            np.zeros(len(s.tokens), np.float32) if s.logprobs is None else s.logprobs
            for s in self.segments
        ]
        return _join(parts, np.float32)


def _join(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    joined = np.concatenate(parts).astype(dtype) if parts else np.zeros(0, dtype)
    joined.flags.writeable = False
    return joined
