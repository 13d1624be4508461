"""What a service should never see: it may repeat for ever what makes it fail."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rlvr import BuildContext, ConfigError, Datum, check_data

PADDED = 1024
"""Ids that a model may have, and draw, beyond those of its tokenizer: rows that pad its matrix."""

TEMPERATURES = (1.0,)
"""The service gives the trainer's logprobs, and those of a prompt, at 1 only."""


def check_sendable(
    data: Sequence[Datum], *, vocab_size: int, positions: int, needs: Collection[str] = ()
) -> None:
    """
    Refuse data before anything is sent.

    Args:
        data: What is to be sent.
        vocab_size: Of the tokenizer.
        positions: Longest sequence that the model takes.
        needs: Annotations that the loss asks for.

    Raises:
        BackendError: As `rlvr.checks.check_data`.
    """
    check_data(
        data,
        needs=needs,
        vocab_size=vocab_size + PADDED,
        positions=positions,
        temperatures=TEMPERATURES,
    )


def check_temperature(context: BuildContext) -> None:
    """
    Refuse a run at a temperature that cannot be trained at, before anything is sampled.

    Raises:
        ConfigError: `sampler.temperature` of a run is not 1.
    """
    sampling = context.sampling
    if context.run_dir is None or sampling is None or sampling.temperature in TEMPERATURES:
        return
    raise ConfigError(
        f"sampler.temperature={sampling.temperature:g} was asked for.",
        "found: the Tinker service gives the trainer's logprobs at temperature 1 only, so that "
        "every importance ratio would be wrong",
        "leave it at 1, or train on a local backend",
    )
