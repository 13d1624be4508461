"""Read a model's tokenizer through transformers, with the ids that end a text."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlvr.errors import ConfigError, PrerequisiteError
from rlvr.install import pip_install
from rlvr.tokenization.template_variables import check_known, parse_variables
from rlvr.tokenization.transformers import FastTokenizer

_USUAL_ENDS = ("<|endoftext|>", "</s>", "<|im_end|>", "<|end_of_text|>", "<eos>")


def load_tokenizer(
    where: str, owner: str, options: str, template: Sequence[str] = ()
) -> FastTokenizer:
    """
    The tokenizer of a folder, of a `tokenizer.json`, or of a model on the hub.

    Args:
        where: What the option `{options}.tokenizer` says, or the service; "" for neither.
        owner: Whose it is, for errors.
        options: Namespace of the options: "servers".
        template: `NAME=VALUE` of its chat template (`{options}.template`).

    Raises:
        ConfigError: Nobody says where it is; its chat template does not read such a variable.
        PrerequisiteError: It cannot be read, or transformers is not installed.
    """
    asked = f"the tokenizer of {owner} is needed here, because tokens travel as ids."
    if not where:
        raise ConfigError(
            asked,
            f"found: the server does not say where it is, and {options}.tokenizer is empty",
            f"give its folder or file: {options}.tokenizer=PATH",
        )
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise PrerequisiteError(
            asked,
            f"found: transformers cannot be imported ({error})",
            pip_install("transformers"),
        ) from error
    path = Path(where).expanduser()
    try:
        with _quietly():
            if path.is_file():
                inner: Any = _of_file(transformers, path)
            else:
                inner = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    except Exception as error:  # the hub, a file, or the library: they may raise anything
        raise unreadable_tokenizer(owner, options, error, where) from error
    return wrapped_tokenizer(inner, where, options, template)


def wrapped_tokenizer(
    inner: Any, name: str, options: str, template: Sequence[str] = ()
) -> FastTokenizer:
    """
    A tokenizer of transformers, with the end tokens that the model's own settings name.

    Raises:
        ConfigError: Its chat template does not read a variable of `{options}.template`.
    """
    option = f"{options}.template"
    variables = parse_variables(template, option)
    check_known(variables, getattr(inner, "chat_template", None), name, option)
    where = str(getattr(inner, "name_or_path", "") or "")
    return FastTokenizer(inner, name, end_ids(where) if where else [], variables)


def unreadable_tokenizer(
    owner: str, options: str, error: BaseException, where: str = ""
) -> PrerequisiteError:
    """The error for a tokenizer that is not here and cannot be fetched, or cannot be read."""
    lines = str(error).strip().splitlines()
    return PrerequisiteError(
        f"the tokenizer of {owner} was to be read{f' from {where}' if where else ''}.",
        f"found: {type(error).__name__}: {lines[0] if lines else 'no reason given'}",
        f"give a folder that holds it: {options}.tokenizer=PATH",
    )


def end_ids(where: str) -> list[int]:
    """Ids that the `generation_config.json` of a folder or model names; [] where it has none."""
    found: Any = None
    # the file is optional, and the library may raise anything
    with _quietly(), contextlib.suppress(Exception):
        settings = importlib.import_module("transformers").GenerationConfig
        found = settings.from_pretrained(where).eos_token_id
    return listed(found)


def listed(ids: int | list[int] | None) -> list[int]:
    """The ids of a setting that names one, several or none."""
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)


def _of_file(transformers: Any, path: Path) -> Any:
    """A tokenizer.json alone; its end token is the added one with a usual name."""
    added = json.loads(path.read_text("utf-8")).get("added_tokens", [])
    names = [str(token["content"]) for token in added if token.get("special")]
    end = next((name for name in _USUAL_ENDS if name in names), None)
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), eos_token=end)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the advice of transformers: what matters is raised."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
