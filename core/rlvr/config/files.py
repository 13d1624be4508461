"""Option values of a TOML or YAML file, as a layer."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlvr.config.layer import Layer
from rlvr.errors import ConfigError, UnknownNameError


def file_layer(path: Path) -> Layer:
    """
    Options from a file; `[train]` with `lr = 1e-4` is `train.lr`.

    Raises:
        UnknownNameError: There is no such file.
        ConfigError: It cannot be read or parsed (with the line), or its ending is unknown.
    """
    path = Path(path)
    if path.suffix.lower() not in (".toml", ".yaml", ".yml"):
        raise ConfigError(f"{path} is no configuration file", do="use a .toml, .yaml or .yml file")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UnknownNameError(
            f"the configuration file {path} was asked for", "found: no such file"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read", f"found: {error}") from error
    try:
        table = _toml(path, text) if path.suffix.lower() == ".toml" else _yaml(path, text)
        if not isinstance(table, Mapping):
            raise ConfigError(
                f"{path} holds {type(table).__name__}, not a table of options",
                do="write a namespace with its keys: [train], then lr = 1e-4",
            )
        return Layer(str(path), dict(_flat(table, "")), is_typed=True)
    except RecursionError as error:
        raise ConfigError(
            f"{path} cannot be read", "found: lists or tables that are nested too deep"
        ) from error


def _flat(table: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _toml(path: Path, text: str) -> Any:
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(
            f"{path} is not valid TOML", f"found: {error}{_long_number(text)}"
        ) from error


def _yaml(path: Path, text: str) -> Any:
    import yaml  # only YAML files need it

    class Loader(yaml.SafeLoader):
        """YAML whose `1e-4` is a number, as in YAML 1.2 and in every other place of ours."""

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(\d[\d_]*\.?\d*|\.\d+)[eE][-+]?\d+$"),
        list("-+.0123456789"),
    )
    try:
        return yaml.load(text, Loader) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{path} is not valid YAML", f"found: {problem}{line}") from error
    except (ValueError, LookupError, AttributeError, ArithmeticError) as error:  # of a value
        raise ConfigError(
            f"{path} is not valid YAML", f"found: {error!r}{_long_number(text)}"
        ) from error


def _long_number(text: str) -> str:
    """The line of a whole number with more digits than Python reads; "" without one."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"[\d_]{4300}", line):
            return f" (line {number}: {line[:60]}...)"
    return ""
