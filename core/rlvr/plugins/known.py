"""Names of our own distributions, so that the error of a missing plugin says what to install.

First-party distributions that exist today, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping

PLUGINS: Mapping[str, str] = {
    "algos": "rlvr-algos",
    "chess": "rlvr-chess",
    "cookbook": "rlvr-tinker-cookbook",
    "cvdp": "rlvr-cvdp",
    "distill": "rlvr-distill",
    "rtx4090": "rlvr-rtx4090",
    "sad": "rlvr-sad",
    "servers": "rlvr-servers",
    "tinker": "rlvr-tinker",
    "tinker-api": "rlvr-tinker-server",
    "torch": "rlvr-torch",
    "trackers": "rlvr-trackers",
}
"""Entry-point name to distribution."""

_ALGORITHMS = (
    *("grpo", "dr-grpo", "dapo", "gspo", "cispo", "rloo", "reinforce++", "ppo"),
    *("best-of-n", "sft"),
)
_ADVANTAGES = ("group", "rloo", "global", "gae", "best", "one", "opd")
_SERVED = ("vllm", "sglang", "openai")
_LOSSES = ("grpo", "gspo", "cispo", "reinforce", "ppo", "sft")

_TRACKERS = ("wandb", "tensorboard", "mlflow", "trackio")
_DOMAINS = {"chess": "rlvr-chess", "cookbook": "rlvr-tinker-cookbook", "cvdp": "rlvr-cvdp"}

NAMES: Mapping[str, Mapping[str, str]] = {
    "plugin": PLUGINS,
    "task": {**_DOMAINS, "sad": "rlvr-sad"},
    "reward": {**_DOMAINS, "recorded": "rlvr-sad"},
    "algorithm": {
        **dict.fromkeys(_ALGORITHMS, "rlvr-algos"),
        "opd": "rlvr-distill",
        "sad": "rlvr-sad",
    },
    "advantage": dict.fromkeys(_ADVANTAGES, "rlvr-algos"),
    "loss": {
        **dict.fromkeys(_LOSSES, "rlvr-algos"),
        **dict.fromkeys(("opd", "distill"), "rlvr-distill"),
    },
    "sampler": {
        **dict.fromkeys(("chat", *_SERVED), "rlvr-servers"),
        "agent": "rlvr-cvdp",
        "replay": "rlvr-sad",
    },
    "backend": {
        "agent": "rlvr-cvdp",
        "rtx4090": "rlvr-rtx4090",
        **dict.fromkeys(("server", *_SERVED), "rlvr-servers"),
        "tinker": "rlvr-tinker",
        "torch": "rlvr-torch",
    },
    "callback": {name: f"rlvr-trackers[{name}]" for name in _TRACKERS},
}
"""Kind, then name, to distribution, with the extra that the name needs."""

MODELS: Mapping[str, str] = {
    "agent": "agent",
    "gpt2": "torch",
    "hf": "torch",
    "server": "server",
    "tinker": "tinker",
    **{name: name for name in _SERVED},
}
"""Scheme of a model spec to the backend of ours that takes it, installed or not."""

COMMANDS: Mapping[str, str] = {"tinker-server": "rlvr-tinker-server"}
"""Command of a plugin that is a word of its own (`rlvr NAME`) to distribution."""


def home_of(kind: str, name: str) -> str:
    """The plugin whose part is meant where a default has this name, which no person typed."""
    distribution = distribution_for(kind, name)
    return next((plugin for plugin, one in PLUGINS.items() if one == distribution), "builtin")


def distribution_for(kind: str, name: str) -> str | None:
    """
    What to install for a name such as `grpo` or `algos/grpo`; None: not ours.

    That is a distribution, with the extra that holds the library a name needs (`tensorboard`).
    """
    provider, _, bare = name.rpartition("/")
    return NAMES.get(kind, {}).get(bare) or PLUGINS.get(provider)
