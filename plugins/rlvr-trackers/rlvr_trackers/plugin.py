"""What rlvr-trackers offers: four callbacks. Imports no tracker."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import CallbackSpec, hookimpl

RLVR_API = 1


@hookimpl
def rlvr_callbacks() -> Iterable[CallbackSpec]:
    """One callback a tracker."""
    for name, class_name, title in (
        ("wandb", "Wandb", "Weights & Biases"),
        ("tensorboard", "TensorBoard", "TensorBoard event files"),
        ("mlflow", "MLflow", "MLflow"),
        ("trackio", "Trackio", "trackio"),
    ):
        yield CallbackSpec(
            name=name,
            target=f"rlvr_trackers.{name}:{class_name}",
            config=f"rlvr_trackers.{name}:{class_name}Options",
            summary=f"Metrics, configuration, evaluations and trajectories in {title}",
        )
