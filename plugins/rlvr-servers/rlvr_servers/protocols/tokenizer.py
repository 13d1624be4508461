"""The tokenizer of a served model, read on this machine."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr import (
    ConfigError,
    FastTokenizer,
    PrerequisiteError,
    check_known,
    end_ids,
    parse_variables,
    pip_install,
)

OPTION = "servers.tokenizer"
TEMPLATE = "servers.template"


def load_tokenizer(where: str, server: str, template: Sequence[str] = ()) -> FastTokenizer:
    """
    The tokenizer of a folder, of a `tokenizer.json`, or of a model on the hub.

    Args:
        where: What the option says, or the server; "" for neither.
        server: Whose it is, for errors.
        template: `NAME=VALUE` of its chat template (`servers.template`).

    Raises:
        ConfigError: Nobody says where it is; its chat template does not read such a variable.
        PrerequisiteError: It cannot be read, or transformers is not installed.
    """
    if not where:
        raise ConfigError(
            f"the tokenizer of {server} is needed here, because tokens travel as ids.",
            f"found: the server does not say where it is, and {OPTION} is empty",
            f"give its folder or file: {OPTION}=PATH",
        )
    try:
        import transformers
    except ImportError as error:
        raise PrerequisiteError(
            f"the tokenizer of {server} is needed here, because tokens travel as ids.",
            f"found: transformers cannot be imported ({error})",
            pip_install("rlvr-servers[tokens]"),
        ) from error
    path = Path(where).expanduser()
    with _quietly():
        try:
            if path.is_file():
                inner: Any = _of_file(transformers, path)
            else:
                inner = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
        except Exception as error:  # the hub, a file, or the library: they may raise anything
            lines = str(error).strip().splitlines()
            raise PrerequisiteError(
                f"the tokenizer {where} of {server} was to be read.",
                f"found: {type(error).__name__}: {lines[0] if lines else 'no reason given'}",
                f"give a folder that holds it: {OPTION}=PATH",
            ) from error
        variables = parse_variables(template, TEMPLATE)
        check_known(variables, inner.chat_template, where, TEMPLATE)
        return FastTokenizer(inner, where, [] if path.is_file() else end_ids(where), variables)


def _of_file(transformers: Any, path: Path) -> Any:
    """A tokenizer.json alone; its end token is the added one that is called so."""
    added = json.loads(path.read_text("utf-8")).get("added_tokens", [])
    names = [str(token["content"]) for token in added if token.get("special")]
    usual = ("<|endoftext|>", "</s>", "<|im_end|>", "<|end_of_text|>", "<eos>")
    end = next((name for name in usual if name in names), None)
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(path), eos_token=end)


@contextlib.contextmanager
def _quietly() -> Any:
    """Without the library's advice: what matters is raised."""
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
