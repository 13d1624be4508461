"""A policy whose weights a server was given, for as long as training gives it newer ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from attrs import evolve

from rlvr import Completion, GenerateRequest, Policy
from rlvr_servers.protocols.protocol import ServerProtocol
from rlvr_servers.served_policy import ServedPolicy


class FedPolicy(ServedPolicy):
    """
    Draws with the newest weights that the server was given; each completion names their version.

    Requests wait while weights change, and weights change when no request is under way: no
    completion is drawn by two versions. A rollout's later turns may be drawn by a newer one.
    """

    def __init__(self, protocol: ServerProtocol, policy: Policy, *, context_length: int) -> None:
        """`policy` gives the tokenizer; `stand_for` says whose weights the server has."""
        super().__init__(
            protocol,
            policy.tokenizer,
            context_length=context_length,
            image_processor=policy.image_processor,
        )
        self._gate, self._under_way = asyncio.Lock(), 0
        self._idle = asyncio.Event()

    async def generate(self, request: GenerateRequest) -> Completion:
        """As `ServedPolicy.generate`."""
        async with self._gate:  # first come, first served: weights that wait hold up those behind
            self._under_way += 1
        try:
            return evolve(await super().generate(request), versions=(self.version,))
        finally:
            self._under_way -= 1
            self._idle.set()

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """No request is under way within; those that come wait."""
        async with self._gate:
            while self._under_way:
                self._idle.clear()
                await self._idle.wait()
            yield

    def stand_for(self, policy: Policy, label: str) -> None:
        """The server has these weights now; `label`: the version that its answers name."""
        self.version, self.digest, self._label = policy.version, policy.digest, label
