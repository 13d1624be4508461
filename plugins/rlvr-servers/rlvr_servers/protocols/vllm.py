"""vLLM: `prompt_logprobs` of `/v1/completions` scores, `return_token_ids` draws."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from attrs import define

from rlvr import SamplingParams
from rlvr_servers.client.endpoint import Endpoint, MissingError, RefusedError
from rlvr_servers.client.requests import BrokenError
from rlvr_servers.protocols.protocol import (
    Drawn,
    LacksError,
    OtherIdsError,
    Scored,
    Served,
    likeliest,
    number,
)

NEUTRAL = {
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Sent with every request: a model's generation_config.json would choose others in silence."""


@define
class Vllm:
    """
    The protocol of `vllm serve`.

    `prompt_logprobs=k` gives k entries a position, and the actual token's where it is none of
    them. Logprobs are those of temperature 1 unless the server was started with
    `--logprobs-mode processed_logprobs`; k is at most its `--max-logprobs` (20 by default).
    """

    line: Endpoint
    kind = "vLLM"
    lacks = (
        "teach through a server with prompt_logprobs (vllm serve NAME), or another kind of server: "
        "sglang:URL, server:URL"
    )

    async def served(self) -> Served:
        listed = self.line.listed
        return Served(
            context_length=int(listed.get("max_model_len") or 0),
            tokenizer=str(listed.get("root") or ""),
        )

    async def ids_of(self, text: str) -> list[int] | None:
        body = {"model": self.line.model, "prompt": text, "add_special_tokens": False}
        try:
            return await self.line.ask(
                self.line.address.root("/tokenize"), body, lambda found: list(found["tokens"])
            )
        except (MissingError, RefusedError, KeyError, TypeError):
            return None

    async def score(
        self,
        ids: Sequence[int],
        start: int,
        k: int,
        temperature: float,
        retries: int | None = None,
    ) -> Scored:
        body = {
            "model": self.line.model,
            "prompt": list(ids),
            "max_tokens": 1,
            "temperature": temperature,
            **NEUTRAL,
            "prompt_logprobs": k,
            "return_token_ids": True,
        }
        return await self.line.ask(
            self.line.address.url("/completions"),
            body,
            lambda found: _scored(found, ids, start, k),
            retries=retries,
        )

    async def draw(
        self, ids: Sequence[int], params: SamplingParams, seed: int, ends: Collection[int]
    ) -> Drawn:
        body = {
            "model": self.line.model,
            "prompt": list(ids),
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k or -1,
            **NEUTRAL,
            "seed": seed % (1 << 63),
            "stop": list(params.stop),
            "stop_token_ids": sorted(ends),
            "ignore_eos": True,  # the ends are all there are
            "skip_special_tokens": False,
            "logprobs": 0,  # the drawn token's and no other
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        return await self.line.ask(self.line.address.url("/completions"), body, _drawn)

    async def drawn_spread(self, ids: Sequence[int], temperature: float) -> float:
        """How far apart the likeliest next tokens are told to be at a temperature, nats."""
        body = {
            "model": self.line.model,
            "prompt": list(ids),
            "max_tokens": 1,
            "temperature": temperature,
            **NEUTRAL,
            "seed": 0,
            "logprobs": 5,
        }
        return await self.line.ask(self.line.address.url("/completions"), body, _spread)


def _spread(found: Any) -> float:
    top = (_choice(found).get("logprobs") or {}).get("top_logprobs") or [{}]
    values = sorted(number(value) for value in top[0].values())
    return values[-1] - values[0] if values else 0.0


def _choice(found: Any) -> Mapping[str, Any]:
    try:
        choice: Mapping[str, Any] = found["choices"][0]
        choice.get("index")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise BrokenError("the answer is no completion") from error
    return choice


def _scored(found: Any, ids: Sequence[int], start: int, k: int) -> Scored:
    choice = _choice(found)
    rows = choice.get("prompt_logprobs")
    if not isinstance(rows, list):
        raise LacksError("the answer holds no prompt_logprobs")
    sent = choice.get("prompt_token_ids")
    if len(rows) != len(ids) or (sent is not None and list(sent) != list(ids)):
        raise OtherIdsError(f"{len(ids)} tokens were sent, {len(rows)} others were scored")
    best, actual = [], []
    for place in range(start, len(ids)):
        row = rows[place]
        if not isinstance(row, dict):
            raise BrokenError(f"no logprobs of token {place}")
        token = str(int(ids[place]))
        if token not in row:
            raise OtherIdsError(f"token {place} is id {token}, the answer scores {list(row)[:3]}")
        rank = row[token].get("rank")
        is_extra = rank is not None and rank > len(row)  # it came besides the likeliest
        kept = {i: e for i, e in row.items() if not (is_extra and i == token)}
        entries = [(int(i), number(e.get("logprob"))) for i, e in kept.items()]
        actual.append(number(row[token].get("logprob")))
        best.append(likeliest(entries, k))
    return Scored(rows=best, actual=actual)


def _drawn(found: Any) -> Drawn:
    choice = _choice(found)
    logprobs = choice.get("logprobs") or {}
    tokens = choice.get("token_ids")
    if tokens is None:
        tokens = token_ids(logprobs.get("tokens") or [])
    values = logprobs.get("token_logprobs") or []
    if len(tokens) != len(values):
        raise LacksError(f"{len(tokens)} token ids and {len(values)} logprobs came back")
    return Drawn(
        tokens=[int(token) for token in tokens],
        logprobs=[number(value) for value in values],
        is_stopped=choice.get("finish_reason") == "stop",
    )


def token_ids(spelled: Sequence[Any]) -> list[int]:
    """Ids of tokens that a server wrote as `token_id:5`; [] where it wrote one otherwise."""
    found = [str(token) for token in spelled]
    if not all(token.startswith("token_id:") for token in found):
        return []
    return [int(token.removeprefix("token_id:")) for token in found]
