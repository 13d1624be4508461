"""rlvr: train language models with rewards that a program can verify.

Plugins import from here, and from `rlvr.testing`; every other module is private.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pluggy

from rlvr.config.fields import option as option

__version__ = "0.1.0"

API_VERSION = 1
"""Grows only when an existing plugin would break. A plugin states the one it was built for."""

hookimpl = pluggy.HookimplMarker("rlvr")
"""Marks a function of a plugin as the implementation of the hook of the same name."""

hookspec = pluggy.HookspecMarker("rlvr")
"""Marks a hook that a plugin specifies for plugins of its own."""

PUBLIC = (
    "rlvr.errors",
    "rlvr.specs",
    "rlvr.install",
    "rlvr.verification.key_value_cache",
    "rlvr.verification.slots",
    "rlvr.seeds",
    "rlvr.concurrency",
    "rlvr.heartbeat",
    "rlvr.extensions",
    "rlvr.loss_options",
    "rlvr.types",
    "rlvr.parts",
    "rlvr.parts.functions",
    "rlvr.fitting",
    "rlvr.checks",
    "rlvr.lr_schedule",
    "rlvr.curriculum.choices",
    "rlvr.tokenization",
    "rlvr.rollouts.sampling",
    "rlvr.teachers.requests",
    "rlvr.evaluation.answers_file",
    "rlvr.evaluation.compare_models",
    "rlvr.opening",
    "rlvr.cli.train",
    "rlvr.cli.measure",
)
"""Where the public names live, light modules first: all in the `__all__` of each of them."""

if TYPE_CHECKING:
    from rlvr.checks import *
    from rlvr.cli.measure import *
    from rlvr.cli.train import *
    from rlvr.concurrency import *
    from rlvr.curriculum.choices import *
    from rlvr.errors import *
    from rlvr.evaluation.answers_file import *
    from rlvr.evaluation.compare_models import *
    from rlvr.extensions import *
    from rlvr.fitting import *
    from rlvr.heartbeat import *
    from rlvr.install import *
    from rlvr.loss_options import *
    from rlvr.lr_schedule import *
    from rlvr.opening import *
    from rlvr.parts import *
    from rlvr.parts.functions import *
    from rlvr.rollouts.sampling import *
    from rlvr.seeds import *
    from rlvr.specs import *
    from rlvr.teachers.requests import *
    from rlvr.tokenization import *
    from rlvr.types import *
    from rlvr.verification.key_value_cache import *
    from rlvr.verification.slots import *
else:

    def __getattr__(name: str) -> Any:
        if name == "__all__":  # asked by `from rlvr import *`
            return __dir__()
        if not name.startswith("_"):
            for module in map(importlib.import_module, PUBLIC):
                if name in module.__all__:
                    return globals().setdefault(name, getattr(module, name))
        from rlvr.suggest import did_you_mean

        hint = "" if name.startswith("_") else did_you_mean(name, __dir__())
        raise AttributeError(f"module 'rlvr' has no attribute {name!r}{hint and ', ' + hint}")


def __dir__() -> list[str]:
    names = {name for module in PUBLIC for name in importlib.import_module(module).__all__}
    return sorted({*names, "API_VERSION", "__version__", "hookimpl", "hookspec", "option"})
