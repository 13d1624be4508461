"""The sampling clients of a run: one per version of the weights, and one of the reference."""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakValueDictionary

from attrs import define, field, frozen

from rlvr import BackendError
from rlvr_tinker.training.client import Trainer


@frozen(kw_only=True, eq=False)
class Sampler:
    """A sampling client, and the weights it samples."""

    client: Any
    version: int
    digest: str


@define(kw_only=True, eq=False)
class Samplers:
    """
    Makes sampling clients when they are asked for, and again after a session was lost.

    The newest is kept, and each earlier one for as long as somebody holds it.

    Attributes:
        trainer: Whose weights they sample.
        keep_old: Whether one goes on with its weights when training has gone on.
        only: Weights saved for sampling that are all there is; "": the trainer's.
        reference: Saved weights of the start, for sampling; "": the base model.
    """

    trainer: Trainer
    keep_old: bool = True
    only: str = ""
    reference: str = ""
    _made: WeakValueDictionary[tuple[int, int], Sampler] = field(
        factory=WeakValueDictionary, init=False
    )  # by session and version
    _newest: Sampler | None = field(default=None, init=False)
    _reference: tuple[int, Any] | None = field(default=None, init=False)  # with its session
    _lock: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    async def newest(self) -> Sampler:
        """The sampler of the present weights, which are saved for sampling once a version."""
        async with self._lock:
            made = self._made.get((self.trainer.epoch, self.trainer.version))
            return made or await self._new()

    async def of(self, version: int) -> Sampler:
        """
        The sampler of a version; for the newest version a new one after a new session.

        Raises:
            BackendError: The weights have changed since, and theirs were not kept.
        """
        if self.keep_old and (made := self._made.get((self.trainer.epoch, version))):
            return made  # also while the newest is being saved
        async with self._lock:
            made = self._made.get((self.trainer.epoch, version))
            if version != self.trainer.version and (made is None or not self.keep_old):
                raise self._stale(version)
            if made is None:
                made = await self._new()
                if made.version != version:
                    raise self._stale(version)
            return made

    def forget(self) -> None:
        """The weights were replaced: a version is no longer what it was."""
        self._made.clear()
        self._newest = None

    async def of_reference(self) -> Any:
        """
        The client of the weights that the run started from.

        To be called within `Trainer.steadily`.
        """
        trainer = self.trainer
        if trainer.start and not self.reference:
            client = await trainer.at_start()
            ttl_s = trainer.config.ttl_s or None
            found = await trainer.wait(
                client.save_weights_for_sampler("reference", ttl_seconds=ttl_s),
                "the weights of the start were saved as the reference",
            )
            self.reference = str(found.path)
        if self._reference is None or self._reference[0] != trainer.epoch:
            self._reference = trainer.epoch, await trainer.sampling(self.reference)
        return self._reference[1]

    async def _new(self) -> Sampler:
        """Make the sampler of the present weights."""
        trainer = self.trainer

        async def make() -> Sampler:
            is_untrained = trainer.client is None and not trainer.version and not trainer.start
            if self.only or is_untrained:
                client = await trainer.sampling(self.only)
            else:
                training = await trainer.training()
                client = await trainer.wait(
                    training.save_weights_and_get_sampling_client(),
                    "the weights were saved for sampling",
                )
            return Sampler(client=client, version=trainer.version, digest=trainer.digest)

        made = await trainer.steadily(make, "the weights were being saved for sampling")
        self._made[trainer.epoch, made.version] = self._newest = made
        return made

    def _stale(self, version: int) -> BackendError:
        return BackendError(
            f"policy version {version} is gone: the weights are at version "
            f"{self.trainer.version}\n  ask the backend for policy() after each step"
        )
