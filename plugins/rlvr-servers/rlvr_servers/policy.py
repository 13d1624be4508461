"""A policy that gives texts for messages: no tokens, no logprobs, no weights."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from rlvr.types import Message, SamplingParams
from rlvr_servers.client import ChatAnswer, ChatClient


@frozen(kw_only=True)
class ServerPolicy:
    """What the sampler `chat` asks. `digest` is the model's name: its weights are the server's."""

    client: ChatClient
    version: int = 0

    @property
    def digest(self) -> str:
        """The model's name."""
        return self.client.model

    async def complete(
        self, messages: Sequence[Message], params: SamplingParams, seed: int
    ) -> ChatAnswer:
        """The model's next message in a chat; raises as `ChatClient.chat` does."""
        return await self.client.chat(messages, params, seed)
