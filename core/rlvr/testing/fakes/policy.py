"""A policy that answers with the texts that a test gave it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlvr.parts import Policy
from rlvr.testing.fakes.tokenizer import CharTokenizer
from rlvr.types import Completion, GenerateRequest

Script = Callable[[str, int], str]


class ScriptedPolicy(Policy):
    """
    Answers a prompt by `script(prompt_text, seed)`; equal prompt and seed give equal tokens.

    Every second token is drawn as its alias (`CharTokenizer.alias`), so its tokens cannot be had
    by tokenising its text. The logprob of token t is -(t + 1) / 8, exact in float32.
    `requests` keeps all requests in order.

    Args:
        script: A function of prompt text and seed, or texts of which the seed picks one.
        tokenizer: By default all printable characters.
    """

    def __init__(
        self,
        script: Script | Sequence[str] = ("",),
        *,
        tokenizer: CharTokenizer | None = None,
        version: int = 0,
        digest: str = "scripted",
        context_length: int = 4096,
    ) -> None:
        self._script: Script = script if callable(script) else _pick(script)
        self._chars = tokenizer or CharTokenizer()
        self.tokenizer = self._chars
        self.version = version
        self.digest = digest
        self.context_length = context_length
        self.requests: list[GenerateRequest] = []

    async def generate(self, request: GenerateRequest) -> Completion:
        """Cut at `max_tokens` with finish "length"."""
        self.requests.append(request)
        return self._complete(request)

    def drawn(self, text: str) -> list[int]:
        """The tokens it draws to say a text, the end token last."""
        tokens = [
            self._chars.alias(token) if place % 2 else token
            for place, token in enumerate(self._chars.encode(text))
        ]
        return [*tokens, self._chars.eos_id]

    def _complete(self, request: GenerateRequest) -> Completion:
        text = self._script(self._chars.decode(request.prompt.tolist()), request.seed)
        cuts = [text.index(stop) for stop in request.params.stop if stop in text]
        text = text[: min(cuts)] if cuts else text
        tokens = self.drawn(text)
        kept = tokens[: request.params.max_tokens]
        return Completion(
            tokens=kept,
            logprobs=[-(place + 1) / 8 for place in range(len(kept))],
            text=self._chars.decode(kept),
            finish="stop" if len(kept) == len(tokens) else "length",
        )


def _pick(texts: Sequence[str]) -> Script:
    return lambda _prompt, seed: texts[seed % len(texts)]
