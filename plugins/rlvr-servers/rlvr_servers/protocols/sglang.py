"""SGLang: `/generate` with `logprob_start_len` scores and draws, by token ids both ways."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from attrs import define, field

from rlvr import GenerateRequest, TeacherRequest
from rlvr_servers.client.endpoint import BrokenError, MissingError, RefusedError
from rlvr_servers.protocols.protocol import (
    Drawn,
    LacksError,
    OtherIdsError,
    Scored,
    Served,
    ServerProtocol,
    likeliest,
    number,
)
from rlvr_servers.protocols.vllm import drawing

T = TypeVar("T")


@define
class Sglang(ServerProtocol):
    """
    The protocol of `python -m sglang.launch_server`.

    Scoring draws nothing (`max_new_tokens` 0; 1 for builds that refuse 0) and begins at
    `logprob_start_len`, so a cached prefix is not computed again. The sampling temperature never
    changes logprobs of the prompt; those of drawn tokens are at the temperature they were drawn
    with.
    """

    lacks = "start it with: python -m sglang.launch_server; or name a server of another kind"
    _fewest: int = field(default=0, init=False)

    async def served(self) -> Served:
        try:
            info = await self.endpoint.ask("/get_model_info", None, dict)
        except (MissingError, RefusedError, TypeError, ValueError):
            info = {}
        listed = self.endpoint.listed.get(self.endpoint.model, {})
        return Served(
            context_length=int(listed.get("max_model_len") or 0),
            tokenizer=str(info.get("tokenizer_path") or info.get("model_path") or ""),
            version=str(info.get("weight_version") or ""),
        )

    async def ids_of(self, text: str) -> list[int] | None:
        def read(meta: Any) -> list[int]:
            return [int(entry[1]) for entry in _entries(meta)]

        try:
            return await self._read_prompt({"text": text}, 0, 0, read)
        except (RefusedError, IndexError, TypeError):
            return None

    async def score(self, question: TeacherRequest, retries: int | None = None) -> Scored:
        def read(meta: Any) -> Scored:
            return _scored(meta, question)

        prompt = {"input_ids": question.ids.tolist()}
        return await self._read_prompt(prompt, question.start - 1, question.k, read, retries)

    async def draw(self, request: GenerateRequest, ends: Collection[int]) -> Drawn:
        sampling = {
            **drawing(request.params, ends),
            "max_new_tokens": request.params.max_tokens,
            "sampling_seed": request.seed % (1 << 63),
            "no_stop_trim": True,
        }
        body = {"input_ids": request.prompt.tolist(), "sampling_params": sampling}
        return await self._generate(body, _drawn)

    async def _read_prompt(
        self,
        prompt: Mapping[str, Any],
        begin: int,
        k: int,
        read: Callable[[Any], T],
        retries: int | None = None,
    ) -> T:
        """What `read` makes of the `meta_info` of a prompt's tokens from `begin` on."""

        async def ask() -> T:
            body = {
                **prompt,
                "sampling_params": {"temperature": 0, "max_new_tokens": self._fewest},
                "logprob_start_len": begin,
                "top_logprobs_num": k,
                "return_text_in_logprobs": False,
            }
            return await self._generate(body, lambda found: read(_meta(found)), retries)

        try:
            return await ask()
        except RefusedError as error:
            if self._fewest or "max_new_tokens" not in str(error):
                raise
            self._fewest = 1
            return await ask()

    async def _generate(
        self, body: dict[str, Any], read: Callable[[Any], T], retries: int | None = None
    ) -> T:
        body |= {"return_logprob": True} | ({"lora_path": self.adapter} if self.adapter else {})
        return await self.endpoint.ask("/generate", body, read, retries=retries)


def _meta(found: Any) -> Mapping[str, Any]:
    meta = found.get("meta_info") if isinstance(found, dict) else None
    if not isinstance(meta, dict):
        raise BrokenError("the answer has no meta_info")
    return meta


def _entries(meta: Mapping[str, Any]) -> list[Any]:
    entries = meta.get("input_token_logprobs")
    if not isinstance(entries, list) or not entries:
        raise LacksError("the answer holds no input_token_logprobs")
    return entries


def _scored(meta: Mapping[str, Any], question: TeacherRequest) -> Scored:
    entries, start, k = _entries(meta), question.start, question.k
    wanted = question.ids[start - 1 :].tolist()  # the first entry belongs to what comes before
    try:
        found = [int(entry[1]) for entry in entries]
    except (IndexError, TypeError, ValueError) as error:
        raise BrokenError("input_token_logprobs hold something else than entries") from error
    if found != wanted:
        raise OtherIdsError(
            f"tokens {wanted[:5]}... ({len(wanted)}) were sent from position {start - 1} on, "
            f"{found[:5]}... ({len(found)}) were scored"
        )
    actual = [number(entry[0]) for entry in entries[1:]]
    if not k:
        return Scored(rows=[[] for _ in actual], actual=actual)
    top = meta.get("input_top_logprobs")
    if not isinstance(top, list) or len(top) != len(entries) or not all(top[1:]):
        raise LacksError("the answer holds no input_top_logprobs for each token")
    rows = [likeliest(((int(e[1]), number(e[0])) for e in row), k) for row in top[1:]]
    return Scored(rows=rows, actual=actual)


def _drawn(found: Any) -> Drawn:
    meta = _meta(found)
    reason = meta.get("finish_reason")
    kind = reason.get("type") if isinstance(reason, dict) else reason
    if kind == "abort":
        raise BrokenError(f"the server broke the request off: {str(reason)[:200]}")
    entries = meta.get("output_token_logprobs")
    if not isinstance(entries, list):
        raise LacksError("the answer holds no output_token_logprobs")
    tokens = [int(entry[1]) for entry in entries]
    own = found.get("output_ids")
    if own is not None and [int(i) for i in own] != tokens:
        raise OtherIdsError("output_ids and output_token_logprobs name different tokens")
    return Drawn(
        tokens=tokens,
        logprobs=[number(entry[0]) for entry in entries],
        is_stopped=kind == "stop",
        version=str(meta.get("weight_version") or ""),
    )
