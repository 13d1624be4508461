"""vLLM: `prompt_logprobs` of `/v1/completions` scores, `return_token_ids` draws."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from attrs import define

from rlvr import GenerateRequest, SamplingParams, TeacherRequest
from rlvr_servers.client.endpoint import BrokenError, MissingError, RefusedError
from rlvr_servers.protocols.protocol import (
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

NEUTRAL = {
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Sent with every request: a model's generation_config.json would silently choose others."""


def drawing(params: SamplingParams, ends: Collection[int]) -> dict[str, Any]:
    """How a completion is drawn, in the words of vLLM and SGLang; `ends` are all that end it."""
    return {
        **NEUTRAL,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k or -1,
        "stop": list(params.stop),
        "stop_token_ids": sorted(ends),
        "ignore_eos": True,
        "skip_special_tokens": False,
    }


@define
class Vllm(ServerProtocol):
    """
    The protocol of `vllm serve`.

    `prompt_logprobs=k` gives k entries a position, and the actual token's where it is none of
    them. Logprobs are those of temperature 1 unless the server was started with
    `--logprobs-mode processed_logprobs`; k is at most its `--max-logprobs` (20 by default).
    """

    lacks = (
        "teach through a server with prompt_logprobs (vllm serve NAME), or another kind of server: "
        "sglang:URL, server:URL"
    )

    async def served(self) -> Served:
        listed = self.endpoint.listed.get(self.endpoint.model, {})
        return Served(
            context_length=int(listed.get("max_model_len") or 0),
            tokenizer=str(listed.get("root") or ""),
        )

    async def ids_of(self, text: str) -> list[int] | None:
        body = {"model": self.endpoint.model, "prompt": text, "add_special_tokens": False}
        try:
            return await self.endpoint.ask("/tokenize", body, lambda found: list(found["tokens"]))
        except (MissingError, RefusedError, KeyError, TypeError):
            return None

    async def score(self, question: TeacherRequest, retries: int | None = None) -> Scored:
        fields = {
            **NEUTRAL,
            "max_tokens": 1,
            "temperature": question.temperature,
            "prompt_logprobs": question.k,
            "return_token_ids": True,
        }
        return await self.complete(
            question.ids.tolist(), fields, lambda found: _scored(found, question), retries
        )

    async def draw(self, request: GenerateRequest, ends: Collection[int]) -> Drawn:
        fields = {
            **drawing(request.params, ends),
            "max_tokens": request.params.max_tokens,
            "seed": request.seed % (1 << 63),
            "logprobs": 0,  # of the drawn token alone
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        return await self.complete(request.prompt.tolist(), fields, _drawn)

    async def drawn_spread(self, ids: list[int], temperature: float) -> float:
        """Nats between the likeliest and the fifth likeliest next token at a temperature."""
        fields = {**NEUTRAL, "max_tokens": 1, "temperature": temperature, "seed": 0, "logprobs": 5}
        return await self.complete(ids, fields, _spread)


def _spread(found: Any) -> float:
    top = (choice_of(found).get("logprobs") or {}).get("top_logprobs") or [{}]
    values = [number(value) for value in top[0].values()]
    return max(values) - min(values) if values else 0.0


def _scored(found: Any, question: TeacherRequest) -> Scored:
    ids = question.ids.tolist()
    choice = choice_of(found)
    rows = choice.get("prompt_logprobs")
    if not isinstance(rows, list):
        raise LacksError("the answer holds no prompt_logprobs")
    sent = choice.get("prompt_token_ids")
    if len(rows) != len(ids) or (sent is not None and list(sent) != ids):
        raise OtherIdsError(f"{len(ids)} tokens were sent, {len(rows)} others were scored")
    best, actual = [], []
    for place in range(question.start, len(ids)):
        row = rows[place]
        if not isinstance(row, dict):
            raise BrokenError(f"no logprobs of token {place}")
        token = str(ids[place])
        if token not in row:
            raise OtherIdsError(f"token {place} is id {token}, the answer scores {list(row)[:3]}")
        rank = row[token].get("rank")
        entries = {int(i): number(entry.get("logprob")) for i, entry in row.items()}
        actual.append(entries[ids[place]])
        if rank is not None and rank > len(row):  # given besides the k likeliest
            del entries[ids[place]]
        best.append(likeliest(entries.items(), question.k))
    return Scored(rows=best, actual=actual)


def _drawn(found: Any) -> Drawn:
    choice = choice_of(found)
    logprobs = choice.get("logprobs") or {}
    tokens = choice.get("token_ids")
    if tokens is None:  # an older server writes `token_id:5`
        spelled = list(map(str, logprobs.get("tokens") or []))
        is_known = all(token.startswith("token_id:") for token in spelled)
        tokens = [token.removeprefix("token_id:") for token in spelled] if is_known else []
    values = logprobs.get("token_logprobs") or []
    if len(tokens) != len(values):
        raise LacksError(f"{len(tokens)} token ids and {len(values)} logprobs came back")
    return Drawn(
        tokens=list(map(int, tokens)),
        logprobs=list(map(number, values)),
        is_stopped=choice.get("finish_reason") == "stop",
    )
