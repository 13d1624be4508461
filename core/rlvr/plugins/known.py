"""Which distribution brings which name: so that a missing plugin's error can say what to install.

First-party distributions that exist today, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping

PLUGINS: Mapping[str, str] = {
    "algos": "rlvr-algos",
    "chess": "rlvr-chess",
    "cookbook": "rlvr-tinker",
    "cvdp": "rlvr-cvdp",
    "sad": "rlvr-sad",
    "servers": "rlvr-servers",
    "tinker": "rlvr-tinker",
    "torch": "rlvr-torch",
}
"""Entry-point name to distribution."""

_ALGORITHMS = (
    *("grpo", "dr-grpo", "dapo", "gspo", "cispo", "rloo", "reinforce++", "ppo"),
    *("best-of-n", "opd", "sft"),
)
_ADVANTAGES = ("group", "rloo", "global", "gae", "best", "one", "opd")
_LOSSES = ("grpo", "gspo", "cispo", "reinforce", "ppo", "sft")

NAMES: Mapping[str, Mapping[str, str]] = {
    "plugin": PLUGINS,
    "task": {"chess": "rlvr-chess", "cookbook": "rlvr-tinker", "cvdp": "rlvr-cvdp"},
    "reward": {"chess": "rlvr-chess", "cookbook": "rlvr-tinker", "cvdp": "rlvr-cvdp"},
    "algorithm": dict.fromkeys(_ALGORITHMS, "rlvr-algos"),
    "advantage": dict.fromkeys(_ADVANTAGES, "rlvr-algos"),
    "loss": dict.fromkeys(_LOSSES, "rlvr-algos"),
    "sampler": {"chat": "rlvr-servers"},
    "backend": {"server": "rlvr-servers", "tinker": "rlvr-tinker", "torch": "rlvr-torch"},
}
"""Kind, then name, to distribution."""

MODELS: Mapping[str, str] = {
    "gpt2": "torch",
    "hf": "torch",
    "server": "server",
    "tinker": "tinker",
}
"""Scheme of a model spec to the backend of ours that takes it, installed or not."""

COMMANDS: Mapping[str, str] = {"tinker-server": "rlvr-tinker"}
"""Command of a plugin that is a word of its own (`rlvr NAME`) to distribution."""


def distribution_for(kind: str, name: str) -> str | None:
    """The distribution to install for a name such as `grpo` or `algos/grpo`; None: not ours."""
    provider, _, bare = name.rpartition("/")
    return NAMES.get(kind, {}).get(bare) or PLUGINS.get(provider)
