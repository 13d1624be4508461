"""Image processor of a vision-language model: the tokens that stand for a picture, and its pixels.

A processor of transformers knows both; nothing of that library is imported here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

from rlvr.errors import BackendError

_AROUND = ("<|vision_start|>", "<|vision_end|>")
_NOT_PIXELS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
"""Of the text that pictures were processed with; those of a sequence follow from its ids."""


class ImageProcessor:
    """
    Tokens and pixels of pictures; several threads may use it.

    Attributes:
        name: The model, for messages.
    """

    def __init__(self, load: Callable[[], Any], name: str = "", placeholder: str = "") -> None:
        """
        Load nothing yet.

        Args:
            load: Gives the processor, with a tokenizer and an image processor; called once, when
                the first picture is there.
            name: What the model is called in errors.
            placeholder: What the processor expands to a picture's tokens; "": its own image token,
                between the tokens for the beginning and end of a picture where it has them.
        """
        self._load = load
        self.name = name
        self._given = placeholder
        self._lock = Lock()  # a tokenizer of transformers is for one thread at a time

    @cached_property
    def processor(self) -> Any:
        """
        The processor.

        Raises:
            RlvrError: It cannot be loaded.
        """
        return self._load()

    @cached_property
    def placeholder(self) -> str:
        """
        The placeholder of a picture in a text for the processor.

        Raises:
            BackendError: It does not say.
        """
        if self._given:
            return self._given
        # Gemma 3 expands the token that begins a picture, and has its image token inside.
        mark = getattr(self.processor, "boi_token", None) or getattr(
            self.processor, "image_token", None
        )
        if not mark:
            raise BackendError(
                f"pictures were to be shown to {self.name or 'a vision-language model'}.",
                f"found: {type(self.processor).__name__} does not name its image token",
                "use a model whose processor does (processor.image_token)",
            )
        vocabulary = self.processor.tokenizer.get_vocab()
        before, after = _AROUND if all(token in vocabulary for token in _AROUND) else ("", "")
        return f"{before}{mark}{after}"

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of what decides a picture's tokens."""
        images = self.processor.image_processor
        about = [type(self.processor).__name__, self.placeholder, _plain(images.to_dict())]
        about += [_plain(vars(self.processor).get(name)) for name in sorted(vars(self.processor))]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()

    def tokens(self, picture: Any) -> list[int]:
        """
        The ids that stand for an opened picture.

        Raises:
            BackendError: The processor cannot place it.
        """
        ids = self._processed(self.placeholder, [picture])["input_ids"][0].tolist()
        if not ids:
            raise BackendError(
                "a picture was to become tokens.", f"found: {self.placeholder!r} became none"
            )
        return list(ids)

    def pixels(self, pictures: Sequence[Any]) -> dict[str, Any]:
        """
        Arguments of the model's forward for opened pictures, besides ids (`pixel_values`, ...).

        Raises:
            BackendError: The processor cannot take them.
        """
        found = self._processed("\n".join([self.placeholder] * len(pictures)), pictures)
        return {name: value for name, value in found.items() if name not in _NOT_PIXELS}

    def _processed(self, text: str, pictures: Sequence[Any]) -> dict[str, Any]:
        processor = self.processor
        try:
            with self._lock:
                return dict(
                    processor(
                        text=[text],
                        images=list(pictures),
                        return_tensors="pt",
                        add_special_tokens=False,
                    )
                )
        except (ValueError, TypeError, RuntimeError, IndexError, KeyError, OSError) as error:
            sizes = ", ".join(f"{p.width}x{p.height}" for p in pictures)
            raise BackendError(
                f"{len(pictures)} pictures ({sizes}) were to be shown to "
                f"{self.name or 'a vision-language model'}.",
                f"found: {type(processor).__name__} refuses: {error}",
                "leave such pictures out, or make them larger or smaller",
            ) from error


def _plain(value: Any) -> str:
    """A setting as text; objects (tokenizers, functions) by their type alone."""
    if isinstance(value, dict):
        return json.dumps({str(k): _plain(v) for k, v in sorted(value.items(), key=str)})
    is_plain = value is None or isinstance(value, bool | int | float | str | list | tuple)
    return repr(value) if is_plain else type(value).__name__
