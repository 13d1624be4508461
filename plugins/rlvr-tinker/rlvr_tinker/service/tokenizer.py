"""The tokenizer of a model of the service, as the local backend would have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr import FastTokenizer, PrerequisiteError, check_known, end_ids, parse_variables

TEMPLATE = "tinker.template"


def from_transformers(inner: Any, name: str, template: Sequence[str] = ()) -> FastTokenizer:
    """A tokenizer that the SDK gave, with what the model's own settings say of its end tokens."""
    where = str(getattr(inner, "name_or_path", "") or "")
    return _wrapped(inner, name, where, template)


def load(where: str, template: Sequence[str] = ()) -> FastTokenizer:
    """
    The tokenizer of a folder, or of a model on the hub.

    Raises:
        PrerequisiteError: There is none, or it cannot be read.
        ConfigError: Its chat template does not read a variable of `tinker.template`.
    """
    try:
        from transformers import AutoTokenizer

        inner = AutoTokenizer.from_pretrained(where)
    except Exception as error:  # the hub, a file, or the library: they may raise anything
        raise tokenizer_error(where, error) from error
    return _wrapped(inner, where, where, template)


def _wrapped(inner: Any, name: str, where: str, template: Sequence[str]) -> FastTokenizer:
    variables = parse_variables(template, TEMPLATE)
    check_known(variables, getattr(inner, "chat_template", None), name, TEMPLATE)
    return FastTokenizer(inner, name, end_ids(where), variables)


def tokenizer_error(where: str, error: BaseException) -> PrerequisiteError:
    """Prompts cannot be made: the tokenizer is not here and cannot be fetched."""
    lines = str(error).strip().splitlines()
    return PrerequisiteError(
        f"the tokenizer of {where} is needed here, because prompts are sent as tokens.",
        f"found: {type(error).__name__}: {lines[0] if lines else 'no reason given'}",
        "give a folder that holds it: tinker.tokenizer=PATH",
    )
