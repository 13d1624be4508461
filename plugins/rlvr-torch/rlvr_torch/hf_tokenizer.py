"""Tokenizers of transformers, with the model's own chat template."""

from __future__ import annotations

from rlvr.tokenization import FastTokenizer


class HFTokenizer(FastTokenizer):
    """The `rlvr.parts.Tokenizer` of `hf:` models."""

    @classmethod
    def load(cls, where: str, model: str = "") -> HFTokenizer:
        """
        The tokenizer of a directory, or of a model on the hub.

        `model` is where the model's generation settings are, if not there too.

        Raises:
            PrerequisiteError: transformers is not installed.
            BackendError: There is none, or it cannot be read.
        """
        from rlvr_torch.hf_load import eos_ids, load_tokenizer

        return cls(load_tokenizer(where), where, eos_ids(model or where))
