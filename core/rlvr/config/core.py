"""The core's own options, one record a namespace: at most 40 keys in all.

Everything else is a plugin's and lives under its namespace.
"""

from __future__ import annotations

from attrs import frozen
from attrs.validators import ge, gt, le, optional

from rlvr.config.fields import option

MOST = 1_000_000
"""Rollouts at a time, of a step or an evaluation: each takes about 6 KB besides its text."""


@frozen(kw_only=True)
class RunOptions:
    """Task, data, model and parts of a run, and its output. Also flags of `rlvr run`."""

    task: str = option("", "Task: NAME or PLUGIN/NAME, or a plugin for its default task")
    algo: str = option("grpo", "Algorithm")
    model: str = option("starter", "Model: starter, a run's directory, gpt2:PATH, ...")
    backend: str = option("torch", "Backend that trains")
    sampler: str = option("", "Sampler; empty: the algorithm's")
    reward: str = option("", "Reward; empty: the task's")
    advantage: str = option("", "Advantage; empty: the algorithm's")
    loss: str = option("", "Loss; empty: the algorithm's")
    checkpointer: str = option("file", "Writer of checkpoints")
    dataset: str = option("", "Data set path; empty: the task's embedded one")
    steps: int = option(40, "Batches of problems to train on", unit="steps", validator=ge(0))
    seed: int = option(1, "Seed of all random numbers", validator=[ge(0), le(2**63 - 1)])
    callbacks: tuple[str, ...] = option(("curve",), "Observers of the run; none: no observer")
    curriculum: str = option("", "Choice of a step's problems; empty: the task's own, or epochs")
    max_staleness: int = option(
        0,
        "Steps that sampling may lag behind training; 0: strictly on-policy",
        unit="steps",
        validator=ge(0),
    )


@frozen(kw_only=True)
class TrainOptions:
    """The optimiser and how a batch becomes updates."""

    problems: int = option(8, "Problems a step", unit="problems", validator=[ge(1), le(MOST)])
    passes: int = option(1, "Passes over a batch", unit="passes", validator=[ge(1), le(1000)])
    minibatches: int = option(1, "Optimiser steps a pass", unit="updates", validator=ge(1))
    aggregation: str = option(
        "token",
        "Average of token losses: token, sequence, fixed",
        choices=("token", "sequence", "fixed"),
    )
    lr: float = option(1e-5, "Peak learning rate", validator=gt(0))
    warmup: int = option(0, "Updates of linear warm-up", unit="updates", validator=ge(0))
    decay: str = option(
        "constant",
        "Learning rate after warm-up",
        choices=("constant", "cosine", "linear", "cosine-linear"),
    )
    grad_clip: float = option(1.0, "Global gradient norm limit; 0: none", validator=ge(0))


@frozen(kw_only=True)
class SamplerOptions:
    """Options of drawing groups of trajectories."""

    group_size: int = option(8, "Trajectories a problem (G)", validator=[ge(1), le(MOST)])
    max_tokens: int = option(256, "Tokens sampled a turn", unit="tokens", validator=ge(1))
    temperature: float = option(1.0, "Sampling temperature", validator=gt(0))
    top_p: float = option(1.0, "Nucleus mass; below 1 biases ratios", validator=[gt(0), le(1)])
    top_k: int = option(0, "Keep the k likeliest tokens; 0: all", validator=ge(0))
    stop: tuple[str, ...] = option((), "Texts that end a completion")


@frozen(kw_only=True)
class VerifyOptions:
    """Options of running verifications."""

    workers: int = option(0, "Verifications at a time; 0: one a core", validator=ge(0))
    deadline_s: float = option(
        900.0,
        "The runner gives up on a verification after this; waiting for a slot does not count",
        unit="s",
        validator=gt(0),
    )
    max_failures: float = option(
        0.2, "Share of a step's verifications that may fail to run", validator=[ge(0), le(1)]
    )
    store: str = option("", "Verdict store (SQLite file); empty: user cache; off: none")
    second_opinion: float = option(
        0.05,
        "Share of the answers called right that the reward's second judge is asked about; 0: none",
        validator=[ge(0), le(1)],
    )


@frozen(kw_only=True)
class EvalOptions:
    """Evaluation before, during and after training."""

    samples: int = option(
        0, "Samples a test problem; 0: no evaluation in a run", validator=[ge(0), le(MOST)]
    )
    every: int = option(
        0, "Steps between evaluations; 0: only before and after training", validator=ge(0)
    )
    split: str = option("test", "Split that is evaluated")
    problems: int = option(0, "Most problems of an evaluation; 0: all", validator=ge(0))


@frozen(kw_only=True)
class CheckpointOptions:
    """Options of writing checkpoints."""

    every: int = option(20, "Steps between checkpoints; 0: only at the end", validator=ge(0))


@frozen(kw_only=True)
class ParityOptions:
    """Train-inference mismatch: sampler and trainer must agree on what was just sampled."""

    threshold: float | None = option(
        0.0,
        "Largest allowed difference of a token's logprob after a weight sync; 0: what suits the "
        "backend's precision, none: nothing is compared",
        unit="nats",
        validator=optional(ge(0)),
    )


CORE_OPTIONS: dict[str, type] = {
    "run": RunOptions,
    "train": TrainOptions,
    "sampler": SamplerOptions,
    "verify": VerifyOptions,
    "eval": EvalOptions,
    "checkpoint": CheckpointOptions,
    "parity": ParityOptions,
}
"""Namespace to record class, in the order they are shown."""
