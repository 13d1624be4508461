"""Variables of a chat template: which a template reads, and `NAME=VALUE` words that set them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rlvr.errors import ConfigError

OWN = frozenset(
    {
        *("messages", "conversation", "add_generation_prompt", "continue_final_message"),
        *("chat_template", "tokenize", "return_tensors", "return_dict", "padding", "truncation"),
        *("max_length", "tools", "documents", "raise_exception", "strftime_now"),
        *("return_assistant_tokens_mask", "tokenizer_kwargs"),
    }
)
"""Names that the rendering itself gives a template; nobody else may."""

_GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
_NAME = re.compile(r"[A-Za-z_]\w*")


def parse_variables(words: Sequence[str], option: str) -> dict[str, Any]:
    """
    `NAME=VALUE` words as variables; a value is read as JSON (`false`, `3`), else as text.

    Raises:
        ConfigError: A word is no `NAME=VALUE`, or its name is one that the rendering itself sets.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not _NAME.fullmatch(name) or name in OWN:
            found_instead = f"{name} is set by rlvr itself" if name in OWN else "no NAME=VALUE"
            raise ConfigError(
                f"{option}={word} was given.",
                f"found: {found_instead}",
                f"write variables of the model's chat template: {option}=enable_thinking=false",
            )
        found[name] = _value(value)
    return found


def variables_of(template: Any) -> frozenset[str]:
    """
    The variables that a chat template reads, without those that every rendering sets.

    Args:
        template: Jinja source, or sources by name as tokenizers with several have it; None.

    Empty where it cannot be read: rendering it then says what is wrong.
    """
    sources = list(template.values()) if isinstance(template, Mapping) else [template]
    found: set[str] = set()
    for source in sources:
        if isinstance(source, str):
            found |= _undeclared(source)
    return frozenset(n for n in found - OWN if not n.endswith("_token"))


def check_known(variables: Mapping[str, Any], template: Any, model: str, option: str) -> None:
    """
    Refuse variables that a model's chat template does not read.

    Raises:
        ConfigError: Names them, and those that it reads.
    """
    known = variables_of(template)
    strange = sorted(set(variables) - known)
    if strange:
        raise ConfigError(
            f"{option} sets {', '.join(strange)} for the chat template of {model}.",
            f"found: this template reads {', '.join(sorted(known)) or 'no variable'}"
            if template
            else "found: this model has no chat template",
            f"leave {', '.join(strange)} out of {option}",
        )


def _value(text: str) -> Any:
    with suppress(ValueError):
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    return text


def _undeclared(source: str) -> set[str]:
    try:
        from jinja2 import Environment, TemplateError, meta
    except ImportError:  # without it no template can be rendered either
        return set()
    environment = Environment(extensions=["jinja2.ext.loopcontrols"])
    with suppress(TemplateError):
        return set(meta.find_undeclared_variables(environment.parse(_GENERATION.sub("", source))))
    return set()
