"""Declare an option: an attrs field with a help line, a unit and choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

HELP, UNIT, CHOICES = "rlvr_help", "rlvr_unit", "rlvr_choices"


def option(
    default: Any,
    help: str,  # the word people know; shadowing the builtin is local
    *,
    unit: str = "",
    choices: Sequence[Any] = (),
    validator: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
) -> Any:
    """
    A field of a configuration class: default, one-line help, unit, allowed values.

    Use inside `@frozen(kw_only=True)` classes with type annotations of int, float, bool, str,
    `tuple[str, ...]` or `X | None`:

        max_tokens: int = option(1024, "Tokens sampled per turn", unit="tokens", validator=ge(1))
    """
    validators = list(validator) if isinstance(validator, Sequence) else [validator]
    checks = [check for check in validators if check is not None]
    if choices:
        checks.append(attrs.validators.in_(tuple(choices)))
    return attrs.field(
        default=default,
        validator=checks or None,
        metadata={HELP: help, UNIT: unit, CHOICES: tuple(choices)},
    )
