"""OpenAI's `/v1/completions` with `echo`: logprobs of a prompt, keyed by the texts of tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from attrs import define

from rlvr import GenerateRequest, TeacherRequest
from rlvr_servers.client.endpoint import RefusedError, RequestError
from rlvr_servers.protocols.protocol import (
    AmbiguousError,
    Drawn,
    LacksError,
    OtherIdsError,
    Scored,
    Served,
    ServerProtocol,
    choice_of,
    likeliest,
    number,
)
from rlvr_servers.protocols.token_texts import TokenTexts

_AS_IDS = {"return_tokens_as_token_ids": True}


@define(kw_only=True)
class Echo(ServerProtocol):
    """
    The protocol of OpenAI's own completions, as llama.cpp's Python server and others have it.

    Tokens come back as texts. `return_tokens_as_token_ids` is asked for; where a server does not
    know it, a text is an id only if one token alone is written so. A likely token whose text
    several share goes into the rest; one that was scored or drawn is an error.

    Attributes:
        spelling: How the tokenizer writes its ids.
        takes_ids: Whether prompts go out as ids; found out by the probe. As texts they must come
            back cut into the same tokens.
        begin: The begin token that a server puts before a text by itself, and does not echo.
    """

    spelling: TokenTexts
    takes_ids: bool = True
    begin: int | None = None
    lacks = (
        "a server that only chats gives logprobs of what it writes, none of what it reads: it can "
        "write answers to train on (--model server:URL with rlvr eval --out, then --algo sft), but "
        "cannot teach on the policy's own; serve the model with vLLM (vllm:URL), SGLang "
        "(sglang:URL) or llama-cpp-python with logits_all"
    )

    async def served(self) -> Served:
        listed = self.endpoint.listed.get(self.endpoint.model, {})
        meta = listed.get("meta")
        told = meta if isinstance(meta, dict) else {}
        length = listed.get("max_model_len") or told.get("n_ctx_train") or 0
        return Served(context_length=int(length))

    async def score(self, question: TeacherRequest, retries: int | None = None) -> Scored:
        fields = {
            **_AS_IDS,
            "max_tokens": 1,
            "echo": True,
            "logprobs": max(question.k, 1),
            "temperature": question.temperature,
        }
        prompt = self._prompt(question.ids.tolist())
        return await self.complete(prompt, fields, lambda f: self._scored(f, question), retries)

    async def settle(self, ids: Sequence[int]) -> str:
        """Find out whether the server takes prompts as ids; the reason if it does not."""
        try:
            await self.next_row(ids, 1, retries=0)
        except RequestError as error:  # some servers answer ids with a 500
            self.takes_ids = False
            return str(error)
        return ""

    async def next_row(
        self, ids: Sequence[int], k: int, retries: int | None = None
    ) -> list[tuple[int, float]]:
        """The k likeliest next tokens, from the logprobs of a drawn token."""

        def read(found: Any) -> list[tuple[int, float]]:
            top = _logprobs(found).get("top_logprobs") or [{}]
            return likeliest(self._named(top[0] or {}), k)

        fields = {**_AS_IDS, "max_tokens": 1, "logprobs": k, "temperature": 1.0}
        return await self.complete(self._prompt(ids), fields, read, retries)

    async def draw(self, request: GenerateRequest, ends: Collection[int]) -> Drawn:
        params = request.params
        fields: dict[str, Any] = {
            **_AS_IDS,
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "seed": request.seed % (1 << 31),
            "logprobs": 1,
        }
        if params.top_k:
            fields["top_k"] = params.top_k
        if params.stop:
            fields["stop"] = list(params.stop)
        return await self.complete(self._prompt(request.prompt.tolist()), fields, self._drawn)

    def _prompt(self, ids: Sequence[int]) -> list[int] | str:
        if self.takes_ids:
            return list(ids)
        text = self.spelling.text(ids[self._hidden(ids) :])
        if text is None:
            raise RefusedError("a prompt whose bytes are no text cannot be sent to it")
        return text

    def _hidden(self, ids: Sequence[int]) -> int:
        """Number of tokens at the start that the server adds itself and does not echo."""
        return int(not self.takes_ids and self.begin is not None and ids[0] == self.begin)

    def _named(self, row: Mapping[str, Any]) -> list[tuple[int | None, float]]:
        return [(self.spelling.id_of(str(text)), number(v)) for text, v in row.items()]

    def _scored(self, found: Any, question: TeacherRequest) -> Scored:
        ids, start, k = question.ids.tolist(), question.start, question.k
        logprobs = _logprobs(found)
        tokens, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
        if not isinstance(tokens, list) or not isinstance(values, list):
            raise LacksError("the answer's logprobs hold no tokens")
        skip = self._hidden(ids)
        read = (found.get("usage") or {}).get("prompt_tokens", len(ids))
        count = min(len(tokens), len(values)) + skip
        if read != len(ids) or count < len(ids):
            raise OtherIdsError(
                f"{len(ids)} tokens were sent, the server read {read} and tells of {count}"
                + (" (it puts a begin token before each text)" if read == len(ids) + 1 else "")
            )
        for place in range(skip, len(ids)):
            if not self.spelling.may_be(str(tokens[place - skip]), ids[place]):
                raise OtherIdsError(
                    f"token {place} is {self.spelling.shown(ids[place])}, "
                    f"the server scored {tokens[place - skip]!r} there"
                )
        if start <= skip:
            raise RefusedError("an echo does not tell the first token's logprob")
        actual = [number(value) for value in values[start - skip : len(ids) - skip]]
        if not k:
            return Scored(rows=[[] for _ in actual], actual=actual)
        top = logprobs.get("top_logprobs")
        if not isinstance(top, list) or len(top) < len(ids) - skip:
            raise LacksError("the answer holds no top_logprobs for each token")
        rows, lost = [], 0
        for place in range(start - skip, len(ids) - skip):
            row = top[place]
            if not isinstance(row, dict) or not row:
                raise LacksError(f"top_logprobs of token {place} are empty")
            best = sorted(self._named(row), key=lambda entry: -entry[1])[:k]
            lost += sum(token is None for token, _ in best)
            rows.append(likeliest(best, k))
        return Scored(rows=rows, actual=actual, lost=lost)

    def _drawn(self, found: Any) -> Drawn:
        logprobs = _logprobs(found)
        spelled = [str(token) for token in logprobs.get("tokens") or []]
        values = [number(value) for value in logprobs.get("token_logprobs") or []]
        if len(spelled) != len(values):
            raise LacksError(f"{len(spelled)} tokens and {len(values)} logprobs came back")
        tokens = [self.spelling.id_of(text) for text in spelled]
        if None in tokens:
            raise AmbiguousError(
                f"the drawn token {spelled[tokens.index(None)]!r} could be several ids; the "
                "server gives texts alone (sampler chat needs no ids: --model server:URL)"
            )
        return Drawn(
            tokens=[token for token in tokens if token is not None],
            logprobs=values,
            is_stopped=choice_of(found).get("finish_reason") == "stop",
        )


def _logprobs(found: Any) -> Mapping[str, Any]:
    logprobs = choice_of(found).get("logprobs")
    if not isinstance(logprobs, dict):
        raise LacksError("the answer holds no logprobs")
    return logprobs
