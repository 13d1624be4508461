"""rlvr: train language models with rewards that a program can verify.

The public door. Plugins import only what is named here and the modules `rlvr.types`,
`rlvr.specs`, `rlvr.parts`, `rlvr.abilities`, `rlvr.episode`, `rlvr.curriculum`, `rlvr.extensions`,
`rlvr.errors` and `rlvr.testing`.
"""

from __future__ import annotations

import pluggy

from rlvr.config.fields import option

__version__ = "0.1.0"

API_VERSION = 1
"""Grows only when an existing plugin would break. A plugin states the one it was built for."""

hookimpl = pluggy.HookimplMarker("rlvr")
"""Marks a function of a plugin as the implementation of the hook of the same name."""

hookspec = pluggy.HookspecMarker("rlvr")
"""Marks a hook that a plugin specifies for plugins of its own (`rlvr.extensions`)."""

__all__ = ["API_VERSION", "__version__", "hookimpl", "hookspec", "option"]
