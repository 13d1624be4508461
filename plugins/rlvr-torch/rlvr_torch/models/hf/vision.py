"""A vision-language model of transformers as a `Net`.

Text is read by its language model, as any other's: packed, sampled, cached. A sequence with
pictures goes through the model's own forward, alone, with its own places, masks and positions
(three-dimensional in Qwen2-VL, both ways between the tokens of one picture in Gemma 3), of which we
take over the softmax of its language model alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlvr import BackendError, Image, ImageProcessor
from rlvr_torch.models.hf.net import OWN_MASKS, HFNet

SEEING = "rlvr_seeing"
_TYPES = ("mm_token_type_ids", "token_type_ids")


class HFVisionNet(HFNet):
    """The `Net` of a vision-language model: an `AutoModelForImageTextToText`, loaded."""

    attention = SEEING

    def __init__(self, model: Any, image_processor: ImageProcessor) -> None:
        _register_masks()
        super().__init__(model)
        self.image_processor = image_processor
        wanted = inspect.signature(model.base_model.forward).parameters
        self._types = [name for name in _TYPES if name in wanted]

    @property
    def decoder(self) -> Any:
        return self.model.get_decoder()

    @property
    def image_token(self) -> int:
        """The id of a picture's tokens; -1 where the model does not say."""
        found = getattr(self.model.config, "image_token_id", None)
        return -1 if found is None else int(found)

    def freeze_vision(self) -> None:
        """Train only the language model and its head."""
        trained = {id(value) for value in self.decoder.parameters()}
        trained |= {id(value) for value in self.model.get_output_embeddings().parameters()}
        for value in self.model.parameters():
            if id(value) not in trained:
                value.requires_grad_(False)

    def seen(self, tokens: Tensor, pictures: Sequence[Image]) -> Tensor:
        """
        Final hidden states (1, T, C) of one sequence (1, T) with its pictures.

        Raises:
            ConfigError: A picture cannot be read.
            BackendError: The tokens are not those of the pictures.
        """
        assert self.image_processor is not None
        device, dtype = self.head.device, self.head.dtype
        pixels = {
            name: _placed(value, device, dtype)
            for name, value in self.image_processor.pixels([one.open() for one in pictures]).items()
        }
        types = (tokens == self.image_token).long()
        before = OWN_MASKS.set(True)
        try:
            found = self.model.base_model(
                input_ids=tokens, use_cache=False, **dict.fromkeys(self._types, types), **pixels
            )
        except (ValueError, IndexError, StopIteration) as error:
            raise self._misfit(int(types.sum()), pictures, error) from error
        finally:
            OWN_MASKS.reset(before)
        return found.last_hidden_state

    def _misfit(self, count: int, pictures: Sequence[Image], error: Exception) -> BackendError:
        shown = ", ".join(repr(one)[:80] for one in pictures[:3])
        return BackendError(
            f"{len(pictures)} pictures were to be shown to {self.name}: {shown}",
            f"found: {count} of the tokens stand for pictures, which is not how this model "
            f"takes them: {error}",
            "use a student and teachers whose processors make equal tokens of a picture, and "
            "pictures that do not change while they are trained on",
        )


def _placed(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.to(device, dtype) if value.is_floating_point() else value.to(device)


def _register_masks() -> None:
    """Let the model make masks of its own only while it is called as a whole."""
    from transformers import AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    def masks(*args: Any, **kwargs: Any) -> Any:
        return ALL_MASK_ATTENTION_FUNCTIONS["sdpa"](*args, **kwargs) if OWN_MASKS.get() else None

    AttentionMaskInterface.register(SEEING, masks)
