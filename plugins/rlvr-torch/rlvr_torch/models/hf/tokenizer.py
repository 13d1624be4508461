"""Tokenizers of transformers, with the model's own chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr import FastTokenizer, check_known, parse_variables

OPTION = "torch.template"


class HFTokenizer(FastTokenizer):
    """The `rlvr.parts.Tokenizer` of `hf:` models."""

    @property
    def chat_template(self) -> Any:
        """The model's own, as Jinja, or several by name; None where it has none."""
        return self.inner.chat_template

    @classmethod
    def load(cls, where: str, model: str = "", template: Sequence[str] = ()) -> HFTokenizer:
        """
        The tokenizer of a directory, or of a model on the hub.

        `model` is where the model's generation settings are, if not there too; `template` are
        `NAME=VALUE` of its chat template (`torch.template`).

        Raises:
            PrerequisiteError: transformers is not installed.
            BackendError: There is none, or it cannot be read.
            ConfigError: The chat template does not read such a variable.
        """
        from rlvr_torch.models.hf.load import eos_ids, load_tokenizer

        inner, variables = load_tokenizer(where), parse_variables(template, OPTION)
        check_known(variables, inner.chat_template, where, OPTION)
        return cls(inner, where, eos_ids(model or where), variables)
