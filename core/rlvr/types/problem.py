"""A problem, and the messages of its prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from rlvr.types.frozen import as_tuple, frozen_map


@frozen(kw_only=True)
class Message:
    """One message of a prompt. `role` is system, user, assistant or tool."""

    role: str
    content: str


@frozen(kw_only=True)
class Problem:
    """
    One prompt with its ground truth.

    `payload` is the domain's own frozen record (a harness, a position); the core never looks
    inside. `digest` is a sha256 over everything that decides a verdict, for the verdict store.
    `notes` say what was done to the prompt, such as what was cut from it (JSON values only).
    """

    id: str
    prompt: tuple[Message, ...] = field(converter=as_tuple)
    split: str = "train"
    labels: Mapping[str, str] = field(factory=dict, converter=frozen_map)
    payload: Any = field(default=None, repr=False)
    digest: str = ""
    notes: Mapping[str, Any] = field(factory=dict, converter=frozen_map)
