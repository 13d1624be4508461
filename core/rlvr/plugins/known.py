"""Which distribution brings which name: so that a missing plugin's error can say what to install.

First-party distributions that exist today, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping

PLUGINS: Mapping[str, str] = {
    "algos": "rlvr-algos",
    "chess": "rlvr-chess",
    "cvdp": "rlvr-cvdp",
    "servers": "rlvr-servers",
    "torch": "rlvr-torch",
}
"""Entry-point name to distribution."""

_ALGORITHMS = (
    *("grpo", "dr-grpo", "dapo", "gspo", "cispo", "rloo", "reinforce++", "ppo"),
    *("best-of-n", "sft"),
)
_ADVANTAGES = ("group", "rloo", "global", "gae", "best", "one")
_LOSSES = ("grpo", "gspo", "cispo", "reinforce", "ppo", "sft")

NAMES: Mapping[str, Mapping[str, str]] = {
    "plugin": PLUGINS,
    "task": {"chess": "rlvr-chess", "cvdp": "rlvr-cvdp"},
    "reward": {"chess": "rlvr-chess", "cvdp": "rlvr-cvdp"},
    "algorithm": dict.fromkeys(_ALGORITHMS, "rlvr-algos"),
    "advantage": dict.fromkeys(_ADVANTAGES, "rlvr-algos"),
    "loss": dict.fromkeys(_LOSSES, "rlvr-algos"),
    "sampler": {"chat": "rlvr-servers"},
    "backend": {"server": "rlvr-servers", "torch": "rlvr-torch"},
}
"""Kind, then name, to distribution."""

MODELS: Mapping[str, str] = {"gpt2": "torch", "hf": "torch", "server": "server"}
"""Scheme of a model spec to the backend of ours that takes it, installed or not."""


def distribution_for(kind: str, name: str) -> str | None:
    """The distribution to install for a name such as `grpo` or `algos/grpo`; None: not ours."""
    provider, _, bare = name.rpartition("/")
    return NAMES.get(kind, {}).get(bare) or PLUGINS.get(provider)
