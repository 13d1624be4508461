"""Metrics of one step. Names are paths; units are in the names (`_s` seconds)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlvr.types import Datum, Failed, Reward, ScoredGroup, Unscorable


def of_groups(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Metrics of sampling and verification: rewards, pass rate, lengths, dropped trajectories."""
    outcomes = [o for g in groups for o in g.outcomes]
    rewards = [o for o in outcomes if isinstance(o, Reward)]
    full = [r for r in rewards if not r.is_proxy]
    trajectories = [t for g in groups for t in g.trajectories]
    lengths = [int(t.mask.sum()) for t in trajectories]
    is_cut = [float(t.finish == "length") for t in trajectories]
    is_prompt_cut = [float(t.prompt_cut > 0) for t in trajectories]
    values = np.array([r.value for r in rewards] or [0.0])
    metrics = {
        "reward/mean": float(values.mean()),
        "reward/std": float(values.std()),
        "reward/pass": float(np.mean([float(r.score01 == 1.0) for r in full] or [0.0])),
        "reward/groups_equal": float(np.mean([float(_is_equal(g)) for g in groups] or [0.0])),
        "verify/scored": float(len(rewards)),
        "verify/cached": float(sum(r.cached for r in rewards)),
        "verify/proxy": float(len(rewards) - len(full)),
        "verify/unscorable": float(sum(isinstance(o, Unscorable) for o in outcomes)),
        "verify/failed": float(sum(isinstance(o, Failed) for o in outcomes)),
        "verify/cost_s": float(sum(r.cost_s for r in rewards)),
        "sampler/tokens": float(sum(lengths)),
        "sampler/length_mean": float(np.mean(lengths or [0])),
        "sampler/cut_at_limit": float(np.mean(is_cut or [0.0])),
        "sampler/prompts_cut": float(np.mean(is_prompt_cut or [0.0])),
    }
    for name in sorted({name for r in rewards for name in r.components}):
        parts = [r.components[name] for r in rewards if name in r.components]
        metrics[f"component/{name}"] = float(np.mean(parts))
    for name in sorted({name for r in rewards for name in _shares(r)}):
        found = [float(_shares(r)[name]) for r in rewards if name in _shares(r)]
        metrics[f"reward/{name}_share"] = float(np.mean(found))
    return metrics | _by_task(groups)


def _shares(reward: Reward) -> Mapping[str, float]:
    """Marks of an answer in the evidence, each 0 or 1 (`evidence["shares"]`)."""
    shares = reward.evidence.get("shares")
    return shares if isinstance(shares, Mapping) else {}


def _by_task(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """The same for each task apart, where problems of several are mixed (their label `task`)."""
    metrics: dict[str, float] = {}
    for task in sorted({g.problem.labels["task"] for g in groups if "task" in g.problem.labels}):
        own = [g for g in groups if g.problem.labels.get("task") == task]
        rewards = [r for g in own for r in g.rewards]
        full = [float(r.score01 == 1.0) for r in rewards if not r.is_proxy]
        metrics[f"task/{task}/reward"] = float(np.mean([r.value for r in rewards] or [0.0]))
        metrics[f"task/{task}/pass"] = float(np.mean(full or [0.0]))
        metrics[f"task/{task}/groups_equal"] = float(np.mean([float(_is_equal(g)) for g in own]))
        metrics[f"task/{task}/groups"] = float(len(own))
    return metrics


def _is_equal(group: ScoredGroup) -> bool:
    return len({r.value for r in group.rewards}) <= 1


def of_data(data: Sequence[Datum]) -> dict[str, float]:
    """
    Metrics of the training data: tokens, credit, and the sampler's distance from the reference.

    `kl/reference` is the k3 estimate, mean over the policy's tokens, nats; a loss that measures it
    with the trainer's weights has the last word.
    """
    found = {
        "data/trajectories": float(len(data)),
        "data/tokens": float(sum(int(d.mask.sum()) for d in data)),
    }
    own = [d for d in data if d.mask.any()]
    if not own:
        return found
    credit = np.concatenate([d.advantages[d.mask] for d in own]).astype(float)
    found |= {"advantage/mean": float(credit.mean()), "advantage/std": float(credit.std())}
    if all("reference" in d.annotations for d in own):
        log_ratio = np.concatenate(
            [np.asarray(d.annotations["reference"])[d.mask] - d.logprobs[d.mask] for d in own]
        ).clip(-20.0, 20.0)
        found["kl/reference"] = float((np.expm1(log_ratio) - log_ratio).mean())
    return found


def per_token(found: Mapping[str, float], weight: float) -> dict[str, float]:
    """
    A loss's weighted sums as means over what they were weighted with.

    Where the weights of an update do not sum to 1 (`train.aggregation=fixed`) a sum of nats would
    be no number of nats a token. The loss itself (`loss...`), what the optimiser says (`grad/...`,
    `lr`, `update/...`) and maxima stay as they are.
    """
    if weight <= 0.0:
        return dict(found)
    kept = ("loss", "grad/", "lr", "update/")
    return {
        name: value if name.startswith(kept) or name.endswith("/max") else value / weight
        for name, value in found.items()
    }


def mean_over_updates(
    updates: Sequence[Mapping[str, float]], counts: Sequence[float] | None = None
) -> dict[str, float]:
    """
    Metrics of several updates as one: means, of `/max` keys the maximum.

    A mean over one type of token (`kl/reasoning`) counts in each update as that type does in it,
    where the loss says so (`share/reasoning`): an update without such tokens has no part in it.

    Args:
        updates: At least one.
        counts: What each update counts; None: all the same.
    """
    merged: dict[str, float] = {}
    every = [1.0] * len(updates) if counts is None else counts
    for name in sorted({name for update in updates for name in update}):
        pairs = [
            (update[name], count * _share(update, name))
            for update, count in zip(updates, every, strict=True)
            if name in update
        ]
        values, weights = zip(*pairs, strict=True)
        if name.endswith("/max"):
            merged[name] = max(values)
        elif len(set(weights)) == 1:
            merged[name] = float(np.mean(values))
        else:
            merged[name] = float(np.average(values, weights=weights))
    return merged


def _share(update: Mapping[str, float], name: str) -> float:
    """The part of an update that a number is the mean of, where it is said."""
    whole = f"share/{name.rpartition('/')[2]}"
    return 1.0 if name == whole else update.get(whole, 1.0)
