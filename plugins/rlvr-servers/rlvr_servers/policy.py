"""A policy that gives texts for messages: no tokens, no logprobs, no weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from attrs import field, frozen

from rlvr import BackendError, GenerateRequest, Message, Policy, SamplingParams
from rlvr_servers.client.chat import ChatAnswer, ChatClient


@frozen(kw_only=True)
class ServerPolicy(Policy):
    """What the sampler `chat` asks. `digest` is the model's name: its weights are the server's."""

    client: ChatClient
    version: int = 0
    digest: str = field(init=False)

    @digest.default
    def _name(self) -> str:
        return self.client.model

    async def generate(self, request: GenerateRequest) -> NoReturn:
        """Refused: only the sampler `chat` asks it."""
        raise BackendError(f"the server's model {self.digest} gives texts, no tokens")

    async def complete(
        self, messages: Sequence[Message], params: SamplingParams, seed: int
    ) -> ChatAnswer:
        """The model's next message in a chat; raises as `ChatClient.chat` does."""
        return await self.client.chat(messages, params, seed)
