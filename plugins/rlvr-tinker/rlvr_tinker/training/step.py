"""One update on the service: gradient, optimiser and saved state, sent without waiting between."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NoReturn

import attrs
import numpy as np
from attrs import define, field

from rlvr import (
    BackendError,
    Datum,
    FloatArray,
    Loss,
    NamedForm,
    all_of,
    extent,
    learning_rate,
)
from rlvr_tinker.service.errors import RefusedError, is_not_finite
from rlvr_tinker.service.usage import Usage
from rlvr_tinker.training import datum
from rlvr_tinker.training.client import Saved, Trainer
from rlvr_tinker.training.losses import LocalLoss, NotFiniteError, check_sum, measured


@define(kw_only=True, eq=False)
class Updater:
    """
    Changes the weights of a training client.

    Attributes:
        trainer: Whose client it is.
        rates: The `train.*` options.
        updates: How many the run takes, for the schedule; 0: unknown.
        usage: Counts what is sent.
    """

    trainer: Trainer
    rates: Any
    updates: int
    usage: Usage
    _told: set[str] = field(factory=set, init=False)

    async def __call__(
        self, data: Sequence[Datum], loss: Loss, form: NamedForm | None
    ) -> dict[str, float]:
        """
        Make one update; within `Trainer.steadily`, which repeats it where a request was lost.

        Args:
            data: Each has a supervised token.
            loss: Ours.
            form: What the service calls it; None: it is computed here.

        Raises:
            NotFiniteError: Loss or gradient is not finite; the weights are as before.
            BackendError: The service failed.
        """
        from tinker import types

        trainer, number = self.trainer, self.trainer.version + 1
        rate = learning_rate(trainer.version, self.updates, self.rates)
        client = await trainer.training()
        learnt, local = await self._gradient(client, data, loss, form)
        adam = types.AdamParams(**self._settings(rate))
        applied = client.optim_step(adam)  # queued behind the gradient, which is not waited for
        every, ttl_s, kept = trainer.config.save_every, trainer.config.recovery_ttl_s, None
        if every and number % every == 0:
            kept = trainer.submit_save(client, ttl_s, "step")
        works: list[Any] = [learnt, trainer.wait(applied, "an update was asked for")]
        if kept is not None:
            works.append(trainer.wait(kept, "the weights were saved"))
        try:
            answer, done, *states = await all_of(works)
        except RefusedError as error:
            if is_not_finite(error):
                await self._take_back(str(error))
            raise
        if local is not None:
            value, own = local.value, local.metrics
        else:
            value, own = self._measured(answer, data, loss, form)
        told = _told({**answer.metrics, **(done.metrics or {})})
        norm = told.get("grad/norm", 0.0)
        # a loss that the service computes is known only after the update
        for what, found in (("loss", value), ("norm of the gradient", norm)):
            if not np.isfinite(found):
                await self._take_back(f"the service's {what} is {found}")
        trainer.version = number
        trainer.digest = digest_of(trainer.digest, data, loss, form, self._settings(rate))
        if states:
            trainer.saved = Saved(path=states[0].path, version=number)
            self.usage.spend(states=1)
        return {**own, **told, "loss": value, "lr": rate}

    async def _gradient(
        self, client: Any, data: Sequence[Datum], loss: Loss, form: NamedForm | None
    ) -> tuple[Awaitable[Any], LocalLoss | None]:
        """Ask for a gradient; return for a local loss only when it is known to be finite."""
        tokens = sum(map(extent, data))
        self.usage.spend(trained=tokens, scored=0 if form is not None else tokens)
        if form is not None:
            sent = datum.to_service(data, form)
            request = client.forward_backward(sent, form.name, dict(form.config) or None)
            return self.trainer.wait(request, "a gradient was asked for"), None
        local = LocalLoss(loss, data)
        request = client.forward_backward_custom(datum.for_logprobs(data), local)
        wait, doing = self.trainer.wait, "the forward pass of a loss was asked for"
        ready = asyncio.ensure_future(wait(local.is_known, doing))
        sending = asyncio.ensure_future(wait(request, "a gradient was asked for"))
        try:
            await asyncio.wait({ready, sending}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():  # the forward pass failed
                await sending
            await ready
            if local.error is not None:
                await sending  # a gradient of zero: the client can be used again
                raise local.error
        except BaseException:
            sending.cancel()
            raise
        finally:
            ready.cancel()
        return sending, local

    def _measured(
        self, answer: Any, data: Sequence[Datum], loss: Loss, form: NamedForm | None
    ) -> tuple[float, dict[str, float]]:
        """The loss and its metrics from the logprobs that the service found."""
        theirs = answer.metrics.get("loss:sum")
        ours, own = measured(loss, data, logprobs_of(answer, data))
        check_sum(theirs, ours, form.name if form else "", self._told)
        if ours is not None:
            return ours, own
        return float("nan" if theirs is None else theirs), own

    async def _take_back(self, why: str) -> NoReturn:
        self.trainer.client = None  # the next one is made from the last saved state
        try:
            await self.trainer.training()
        except BackendError as lost:
            raise BackendError(f"{why}\n  {lost}") from lost
        raise NotFiniteError(f"{why}\n  the weights are as before")

    def _settings(self, rate: float) -> dict[str, float]:
        """The fields of the service's `AdamParams`."""
        config = self.trainer.config
        return {
            "learning_rate": rate,
            "beta1": config.beta1,
            "beta2": config.beta2,
            "eps": config.eps,
            "weight_decay": config.weight_decay,
            "grad_clip_norm": self.rates.grad_clip,
        }


def logprobs_of(answer: Any, data: Sequence[Datum]) -> list[FloatArray]:
    """
    Logprobs (T,) of each datum in the answer to a forward pass.

    Raises:
        BackendError: The service answered another number of data.
    """
    outputs = answer.loss_fn_outputs
    if len(outputs) != len(data):
        raise BackendError(f"the service answered {len(outputs)} of {len(data)} data")
    return [
        datum.to_ours(d, out["logprobs"].to_numpy()) for d, out in zip(data, outputs, strict=True)
    ]


def _told(metrics: Mapping[str, float]) -> dict[str, float]:
    """The service's metrics: the gradient's norm as `grad/norm`, the others as `tinker/NAME`."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        plain = name.partition(":")[0]
        if "grad" in plain and ("norm" in plain or "l2" in plain):
            found.setdefault("grad/norm", float(value))
        elif plain not in ("loss", "surrogate_loss"):
            found[f"tinker/{plain}"] = float(value)
    return found


def digest_of(
    before: str,
    data: Sequence[Datum],
    loss: Loss,
    form: NamedForm | None,
    settings: Mapping[str, float],
) -> str:
    """sha256 of all earlier updates and of this one's data, loss and optimiser."""
    digest = hashlib.sha256(before.encode())
    name = f"{type(loss).__module__}.{type(loss).__qualname__}"
    digest.update(f"{name}|{_options(loss)!r}|{form!r}|{sorted(settings.items())!r}".encode())
    for d in data:
        for array in (d.tokens, d.mask, d.logprobs, d.advantages, d.weights):
            digest.update(array.tobytes())
        for other, values in sorted(d.annotations.items()):
            digest.update(other.encode() + values.tobytes())
    return digest.hexdigest()


def _options(loss: Loss) -> list[tuple[str, str]]:
    """The numbers, texts and configuration records of a loss by name, without its needs."""
    held = sorted((k, v) for k, v in vars(loss).items() if k != "needs")  # sets have no fixed order
    plain = (bool, int, float, str, type(None))
    return [(k, repr(v)) for k, v in held if isinstance(v, plain) or attrs.has(type(v))]
