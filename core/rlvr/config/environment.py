"""The layer of `RLVR_NAMESPACE__KEY` environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs

from rlvr.config.layer import Layer
from rlvr.errors import UnknownNameError

_PREFIX = "RLVR_"


def environment_layer(environ: Mapping[str, str], specs: Mapping[str, type]) -> Layer:
    """
    Options from the environment: `RLVR_TRAIN__LR` is `train.lr`, `RLVR_RUN__SEED` is `run.seed`.

    Variables without a double underscore are controls (`RLVR_PLUGINS`, ...) or a plugin's own
    and are passed over, unless one is an option's name with an underscore too few. A variable
    with one that no option answers to becomes an unknown key, which `resolve` refuses.

    Raises:
        UnknownNameError: A variable lacks one underscore of an option's name.
    """
    known = {
        variable_for(namespace, attribute.name): f"{namespace}.{attribute.name}"
        for namespace, cls in specs.items()
        for attribute in attrs.fields(cls)
    }
    lacking = {variable.replace("__", "_"): variable for variable in known}
    values: dict[str, str] = {}
    where: dict[str, str] = {}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(_PREFIX):
            continue
        if "__" not in variable:
            if variable in lacking:
                raise UnknownNameError(
                    f"the environment variable {variable} is set, but means nothing",
                    f"did you mean {lacking[variable]!r} (two underscores)?",
                )
            continue
        namespace, _, name = variable.removeprefix(_PREFIX).partition("__")
        key = known.get(variable, f"{namespace}.{name}".lower())
        values[key] = value
        where[key] = f"environment {variable}"
    return Layer("environment", values, where=where)


def variable_for(namespace: str, name: str) -> str:
    """The environment variable of an option."""
    plain = re.sub(r"[^A-Za-z0-9]", "_", namespace)
    return f"{_PREFIX}{plain}__{name}".upper()
