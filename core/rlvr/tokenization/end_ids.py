"""The tokens that end a text by a model's generation settings."""

from __future__ import annotations

import contextlib
import importlib
import logging
from typing import Any


def end_ids(where: str) -> list[int]:
    """Ids that the `generation_config.json` of a folder or model names; [] where it has none."""
    logger = logging.getLogger("transformers")  # its advice is left out
    level = logger.level
    logger.setLevel(logging.ERROR)
    found: Any = None
    try:
        with contextlib.suppress(Exception):  # the file is optional; the library may raise anything
            settings = importlib.import_module("transformers").GenerationConfig
            found = settings.from_pretrained(where).eos_token_id
    finally:
        logger.setLevel(level)
    return listed(found)


def listed(ids: int | list[int] | None) -> list[int]:
    """The ids of a setting that names one, several or none."""
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)
