"""The training client of a run; it is replaced when a request is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import structlog
from attrs import define, field, frozen

from rlvr import BackendError, ConfigError, PrerequisiteError, RlvrError
from rlvr_tinker.config import TinkerConfig
from rlvr_tinker.service.client import Service, sdk
from rlvr_tinker.service.deadlines import within
from rlvr_tinker.service.errors import LostError, RefusedError

log = structlog.get_logger(__name__)

T = TypeVar("T")

_PATIENCE_S = 300.0
"""Longest wait for a service that went away, seconds."""


@frozen(kw_only=True)
class Saved:
    """A state on the service: weights and optimiser after `version` updates."""

    path: str
    version: int


@define(kw_only=True, eq=False)
class Trainer:
    """
    Owns the session and the one training client of a run.

    The SDK's client cannot go on after a request of it failed: later ones would wait for a number
    in the sequence that never comes. It is thrown away, and one made from the last saved state;
    that is exact only where no update came after that state, and refused elsewhere.

    Attributes:
        service: Where it trains.
        base: Name of the base model.
        start: Saved weights that the run starts from; "": the base model.
        seed: Of the adapter's initial weights.
        metadata: What the service shows of the session.
        version: Updates that the weights have seen.
        digest: sha256 of what made the weights.
        saved: The last state on the service; None: none since the start.
        epoch: Counts sessions; what was made in an earlier one is gone.
    """

    service: Service
    base: str
    start: str
    seed: int
    metadata: dict[str, str] = field(factory=dict)
    version: int = 0
    digest: str = ""
    saved: Saved | None = None
    epoch: int = 0
    client: Any = None
    _session: Any = field(default=None, init=False)
    _names: int = field(default=0, init=False)
    _lock: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    @property
    def config(self) -> TinkerConfig:
        """The `tinker.*` options."""
        return self.service.config

    async def session(self) -> Any:
        """The `tinker.ServiceClient` of now; its session begins with its first client."""
        if self._session is None:
            url = self.service.url
            self._session = sdk().ServiceClient(user_metadata=self.metadata, base_url=url)
        return self._session

    async def wait(self, request: Any, doing: str) -> Any:
        """The result of a request, with a deadline; raises as `deadlines.within`."""
        return await self.service.wait(request, doing)

    async def training(self) -> Any:
        """
        The training client; made when first asked for.

        Raises:
            ConfigError: The service refuses the adapter (its rank, say), or the model.
        """
        if self.client is None:
            self._check_saved()
            self.client = await self._make()
        return self.client

    async def _make(self) -> Any:
        config, start, metadata = self.config, self.start, self.metadata
        if self.saved is not None:
            return await self.load(self.saved.path)
        if start:
            return await self._created(
                f"training was to begin from {start}",
                lambda session: session.create_training_client_from_state(
                    start, user_metadata=metadata
                ),
            )
        return await self._created(
            f"an adapter of rank {config.rank} for {self.base} was asked for",
            lambda session: session.create_lora_training_client(
                self.base,
                rank=config.rank,
                seed=self.seed,
                train_mlp=config.train_mlp,
                train_attn=config.train_attn,
                train_unembed=config.train_unembed,
                user_metadata=metadata,
            ),
        )

    async def load(self, path: str) -> Any:
        """A training client with the weights and the optimiser of a saved state."""
        return await self._created(
            f"the state {path} was to be loaded",
            lambda session: session.create_training_client_from_state_with_optimizer(
                path, user_metadata=self.metadata
            ),
            refusal=RefusedError,
        )

    async def smallest(self) -> Any:
        """A training client of the base model that trains nothing: only to ask about the model."""
        return await self._created(
            f"the tokenizer of {self.base} was asked for",
            lambda session: session.create_lora_training_client(self.base, rank=1),
        )

    async def at_start(self) -> Any:
        """A second training client, with the weights that the run started from."""
        if self.client is not None and not self.version:
            return self.client
        return await self._created(
            f"the start {self.start} was asked for again",
            lambda session: session.create_training_client_from_state(self.start),
        )

    async def sampling(self, path: str = "") -> Any:
        """A sampling client of saved weights; of the base model without a path."""
        chosen = {"model_path": path} if path else {"base_model": self.base}
        return await self._created(
            "a sampling client was asked for",
            lambda session: session.create_sampling_client(**chosen),
            refusal=RefusedError,
        )

    async def _created(
        self, doing: str, create: Callable[[Any], Any], refusal: type[RlvrError] = ConfigError
    ) -> Any:
        session = await self.session()
        try:
            request = await self.service.blocking(lambda: create(session), doing)
            return await self.wait(request, doing)
        except RefusedError as error:
            raise refusal(str(error)) from error

    async def save(self, ttl_s: int | None, kind: str = "state") -> Saved:
        """Keep weights and optimiser on the service."""
        client = await self.training()
        request = self.submit_save(client, ttl_s, kind)
        found = await self.wait(request, "the weights were saved on the service")
        self.saved = Saved(path=found.path, version=self.version)
        return self.saved

    def submit_save(self, client: Any, ttl_s: int | None, kind: str = "state") -> Any:
        """Ask for a saved state without waiting; names are never used twice."""
        self._names += 1
        return client.save_state(f"{kind}-{self._names:06d}", ttl_seconds=ttl_s or None)

    # --- after a failure --------------------------------------------------------------------------

    async def steadily(self, work: Callable[[], Awaitable[T]], doing: str) -> T:
        """
        The result of `work`; once more, on a new client, where a request was lost.

        Raises:
            LostError: It was lost more often than `tinker.retries` allows.
            BackendError: Updates came after the last saved state: they cannot be made again.
        """
        async with self._lock:
            lost: LostError | None = None
            tries = 0
            while True:
                tries += 1
                try:
                    if lost is not None:
                        await self.rebuild(lost, doing)
                    return await work()
                except LostError as error:
                    if tries > self.config.retries:
                        self.client = None  # it takes no further request
                        raise
                    lost = error
                except (asyncio.CancelledError, RefusedError):
                    # the service may have done it, or waits for its number: the client is of no use
                    self.client = None
                    raise

    async def renewed(self, epoch: int, version: int, error: BackendError) -> None:
        """Open a new session if the lost sampling client of `version` was of the present one."""
        async with self._lock:
            if self.epoch == epoch:
                if version != self.version:
                    raise error
                await self.rebuild(error, "tokens were being sampled")

    async def rebuild(self, error: BackendError, doing: str) -> None:
        """
        A new session, and a training client with the weights of now.

        Raises:
            BackendError: Updates came after the last saved state: they cannot be made again.
            LostError: The service does not come back.
        """
        self._check_saved(error)
        log.warning("service_lost", doing=doing, reason=str(error), version=self.version)
        had_client = self.client is not None
        self.client, self.epoch = (
            None,
            self.epoch + 1,
        )  # first, so that requests of the old one see it
        await self.close("errored")
        try:
            await self.service.reach(patience_s=min(_PATIENCE_S, self.config.timeout_s))
        except PrerequisiteError as gone:
            raise LostError(f"{error}\n  then: {gone}") from gone
        if had_client or self.version:
            await self.training()
        log.info("service_found_again", version=self.version)

    def _check_saved(self, error: BackendError | None = None) -> None:
        """Refuse to continue from a saved state that lacks updates."""
        saved = self.saved or Saved(path="the start", version=0)
        if saved.version == self.version:
            return
        raise BackendError(
            str(error) if error is not None else "the training client was given up.",
            f"the last state that was saved has seen {saved.version} of {self.version} updates "
            f"({saved.path}); those since then are not made again here",
            "go on from the last checkpoint with --resume; tinker.save_every=1 keeps every state",
        ) from error

    async def close(self, status: str) -> None:
        """End the session; the service then frees what it held for it."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            await within(
                session.close(status),
                "the session was closed",
                limit_s=5.0,
                health=self.service.health,
            )
        except (BackendError, PrerequisiteError) as error:
            log.debug("session_not_closed", reason=str(error))
