"""
Protocol doubles of vLLM, SGLang and an echo server: no servers, but what they say on the wire.

Written from the servers' own schemas: vLLM 0.32 `entrypoints/openai/completion/protocol.py`,
`serve/tokenize`, `serve/lora`, `serve/dev/rpc`; SGLang 0.5.23 `managers/io_struct.py`,
`entrypoints/http_server.py`; OpenAI's completions. Their numbers come from a real model: a
folder that transformers reads, so that answers are checked against the local teacher's. Faults are
what a test puts in. Scheduling, batching, caches and the servers' own mistakes are not here.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from attrs import define, field

Reply = tuple[int, Any]


class Refusal(Exception):
    """A 400 with the server's words."""


def _model(folder: Path | str) -> Any:
    from transformers import GPT2LMHeadModel

    return GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").eval()


@lru_cache(maxsize=4)
def _read(folder: str, _written: int) -> tuple[Any, Any]:
    """Model and tokenizer, which doubles of one folder share: none changes them."""
    from transformers import AutoTokenizer

    return _model(folder), AutoTokenizer.from_pretrained(folder)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_args: Any) -> None:
        """A client that went away meanwhile is part of some tests."""


@define
class Double:
    """
    One server with one model.

    Attributes:
        kind: "vllm", "sglang" or "echo".
        most_k: Largest k; 0: any. More is refused, or cut where `cuts_k`.
        honours: Whether logprobs follow the temperature.
        faults: `(path, request, number of the request) -> None`, or what is answered instead: a
            status and body, "die" (the connection is cut), or a function that changes the answer.
        delay_s: Before each answer.
    """

    kind: str
    folder: Path
    most_k: int = 20
    cuts_k: bool = False
    honours: bool = False
    takes_ids: bool = True
    spells_ids: bool = True
    takes_weights: bool = True
    context: int = 0
    delay_s: float = 0.0
    faults: Callable[[str, dict[str, Any], int], Any] = lambda path, request, number: None
    requests: list[tuple[str, dict[str, Any]]] = field(factory=list)
    busy: int = 0
    most_busy: int = 0
    port: int = 0
    weight_version: str = "default"
    loaded: list[str] = field(factory=list)
    model: Any = None
    tokenizer: Any = None
    adapters: dict[str, Any] = field(factory=dict)
    lock: Any = field(factory=threading.RLock)
    _last: tuple[Any, ...] = (None, None, None)
    _http: Any = None
    _thread: Any = None

    # --- the server -----------------------------------------------------------------------------

    def start(self) -> Double:
        """Listen, on the port of before where it had one."""
        if self.model is None:
            written = (self.folder / "model.safetensors").stat().st_mtime_ns
            self.model, self.tokenizer = _read(str(self.folder), written)
            self.loaded.append(str(self.folder))
        self._http = _Http(("127.0.0.1", self.port), self._handler())
        self.port = self._http.server_port
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """As if it had died: nobody listens."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._thread.join()
            self._http = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def spec(self) -> str:
        scheme = "server" if self.kind == "echo" else self.kind
        return f"{scheme}:{self.url}#tiny"

    def load(self, folder: Path | str) -> None:
        self.model = _model(folder)
        self.loaded.append(str(folder))

    def _handler(double) -> type[BaseHTTPRequestHandler]:  # `self` is the request's
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_args: Any) -> None:
                pass

            def do_GET(self) -> None:
                self._answer({})

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                self._answer(json.loads(self.rfile.read(length) or b"{}"))

            def _answer(self, request: dict[str, Any]) -> None:
                path = self.path.partition("?")[0]
                with double.lock:
                    double.requests.append((path, request))
                    number = len(double.requests)
                    double.busy += 1
                    double.most_busy = max(double.most_busy, double.busy)
                try:
                    time.sleep(double.delay_s)
                    fault = double.faults(path, request, number)
                    if fault == "die":
                        self.close_connection = True
                        self.connection.close()
                        return
                    if isinstance(fault, tuple):
                        status, found = fault
                    else:
                        status, found = double.answer(path, request)
                        if callable(fault):
                            found = fault(found)
                finally:
                    with double.lock:
                        double.busy -= 1
                body = (found if isinstance(found, str) else json.dumps(found)).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler

    def answer(self, path: str, request: dict[str, Any]) -> Reply:
        routes = {
            "vllm": {
                "/v1/models": self._models,
                "/v1/completions": self._vllm,
                "/tokenize": self._tokenize,
                "/collective_rpc": self._rpc,
                "/reset_prefix_cache": lambda _: (200, ""),
                "/v1/load_lora_adapter": self._adapter,
                "/v1/unload_lora_adapter": self._drop_adapter,
            },
            "sglang": {
                "/v1/models": self._models,
                "/get_model_info": self._info,
                "/generate": self._generate,
                "/update_weights_from_disk": self._update,
                "/load_lora_adapter": self._adapter,
                "/unload_lora_adapter": self._drop_adapter,
            },
            "echo": {"/v1/models": self._models, "/v1/completions": self._echo},
        }[self.kind]
        if path not in routes:
            return 404, {"detail": "Not Found"}
        try:
            with self.lock:
                return routes[path](request)
        except Refusal as error:
            return 400, {"error": {"message": str(error), "type": "BadRequestError", "code": 400}}

    def _models(self, _request: dict[str, Any]) -> Reply:
        card: dict[str, Any] = {"id": "tiny", "object": "model", "owned_by": self.kind}
        if self.kind != "echo":
            card |= {"root": str(self.folder), "max_model_len": self.positions}
        return 200, {"object": "list", "data": [card]}

    # --- the model ------------------------------------------------------------------------------

    @property
    def positions(self) -> int:
        return int(self.context or self.model.config.n_positions)

    def logits(self, ids: list[int], adapter: str = "") -> Any:
        """(S, V); one answer asks several times for the same."""
        import torch

        model = self.adapters.get(adapter, self.model)
        if self._last[:2] != (model, ids):
            with torch.no_grad():
                self._last = model, list(ids), model(torch.tensor([ids])).logits[0].float()
        return self._last[2]

    def rows(self, ids: list[int], temperature: float, adapter: str = "") -> Any:
        """(S, V) logprobs; row t belongs to token t, row 0 means nothing."""
        import torch

        scale = temperature if self.honours and temperature else 1.0
        told = torch.log_softmax(self.logits(ids, adapter) / scale, -1)
        return torch.cat([told[:1] * 0, told[:-1]])

    def draw(
        self, ids: list[int], count: int, params: dict[str, Any], ends: list[int], adapter: str = ""
    ) -> tuple[list[int], list[float], str]:
        import torch

        generator = torch.Generator().manual_seed(int(params.get("seed") or 0) % (1 << 62))
        temperature = params.get("temperature", 1.0)
        drawn: list[int] = []
        told: list[float] = []
        while len(drawn) < count and len(ids) + len(drawn) < self.positions:
            logits = self.logits([*ids, *drawn], adapter)[-1]
            scaled = torch.log_softmax(logits / (temperature or 1.0), -1)
            if temperature == 0:
                token = int(logits.argmax())
            else:
                token = int(torch.multinomial(scaled.exp(), 1, generator=generator))
            raw = torch.log_softmax(logits, -1)
            drawn.append(token)
            told.append(float((scaled if self.honours else raw)[token]))
            if token in ends:
                return drawn, told, "stop"
        return drawn, told, "length"

    def _limit(self, k: int, what: str) -> int:
        if self.most_k and k > self.most_k:
            if not self.cuts_k:
                raise Refusal(
                    f"Requested {what} of {k}, which is greater than max allowed: {self.most_k}"
                )
            return self.most_k
        return k

    def _ids(self, request: dict[str, Any]) -> list[int]:
        prompt = request["prompt"]
        if isinstance(prompt, str):
            prompt = self.tokenizer.encode(prompt, add_special_tokens=False)
        elif not self.takes_ids:
            raise Refusal("Input should be a valid string")
        if len(prompt) + (request.get("max_tokens") or 0) > self.positions:
            raise Refusal(
                f"This model's maximum context length is {self.positions} tokens. However, you "
                f"requested {len(prompt)} in the prompt."
            )
        return list(prompt)

    # --- vLLM -----------------------------------------------------------------------------------

    def _tokenize(self, request: dict[str, Any]) -> Reply:
        tokens = self.tokenizer.encode(request["prompt"], add_special_tokens=False)
        return 200, {"tokens": tokens, "count": len(tokens), "max_model_len": self.positions}

    def _vllm(self, request: dict[str, Any]) -> Reply:
        name = request.get("model")
        if name not in ("tiny", *self.adapters):
            error = {"message": f"The model `{name}` does not exist.", "code": 404}
            return 404, {"error": error}
        ids = self._ids(request)
        k = request.get("prompt_logprobs")
        temperature = request["temperature"]
        choice: dict[str, Any] = {"index": 0, "prompt_logprobs": None}
        if k is not None:
            self._refuse_more(k)
            width = self._limit(k, "prompt logprobs")
            rows = self.rows(ids, temperature, name)
            choice["prompt_logprobs"] = [None, *map(self._row(rows, width), enumerate(ids[1:], 1))]
        tokens, told, reason = self.draw(
            ids, request["max_tokens"], request, request.get("stop_token_ids") or [], name
        )
        choice |= {"text": self.tokenizer.decode(tokens), "finish_reason": reason}
        if request.get("return_token_ids"):
            choice |= {"token_ids": tokens, "prompt_token_ids": ids}
        if request.get("logprobs") is not None:
            choice["logprobs"] = {
                "tokens": [f"token_id:{t}" for t in tokens],
                "token_logprobs": told,
                "top_logprobs": [self._next(ids, temperature, request["logprobs"], name)],
            }
        return 200, {"model": name, "choices": [choice], "usage": {"prompt_tokens": len(ids)}}

    def _refuse_more(self, k: int) -> None:
        if k < 0:
            raise Refusal("prompt_logprobs must be a positive value or -1")

    def _row(self, rows: Any, k: int) -> Callable[[tuple[int, int]], dict[str, Any]]:
        def row(placed: tuple[int, int]) -> dict[str, Any]:
            place, token = placed
            order = rows[place].argsort(descending=True).tolist()
            kept = [token, *order[:k]]
            return {
                str(i): {
                    "logprob": float(rows[place][i]),
                    "rank": order.index(i) + 1,
                    "decoded_token": self.tokenizer.decode([i]),
                }
                for i in dict.fromkeys(kept)
            }

        return row

    def _next(self, ids: list[int], temperature: float, k: int, adapter: str) -> dict[str, float]:
        import torch

        scale = temperature if self.honours and temperature else 1.0
        row = torch.log_softmax(self.logits(ids, adapter)[-1] / scale, -1)
        values, order = row.topk(min(k, len(row))) if k else ([], [])
        return {f"token_id:{int(i)}": float(v) for i, v in zip(order, values, strict=True)}

    def _rpc(self, request: dict[str, Any]) -> Reply:
        if not self.takes_weights:
            return 404, {"detail": "Not Found"}
        assert request["method"] == "reload_weights"
        self.load(request["kwargs"]["weights_path"])
        return 200, {"results": [None]}

    def _adapter(self, request: dict[str, Any]) -> Reply:
        if not self.takes_weights:
            return 404, {"detail": "Not Found"}
        from peft import PeftModel
        from transformers import GPT2LMHeadModel

        base = GPT2LMHeadModel.from_pretrained(self.folder, attn_implementation="eager")
        model = PeftModel.from_pretrained(base, request["lora_path"]).eval()
        self.adapters[request["lora_name"]] = model
        self.loaded.append(request["lora_path"])
        return 200, {"success": True, "rid": None} if self.kind == "sglang" else "Success"

    def _drop_adapter(self, request: dict[str, Any]) -> Reply:
        self.adapters.pop(request["lora_name"], None)
        return 200, {"success": True}

    # --- SGLang ---------------------------------------------------------------------------------

    def _info(self, _request: dict[str, Any]) -> Reply:
        return 200, {
            "model_path": str(self.folder),
            "tokenizer_path": str(self.folder),
            "is_generation": True,
            "weight_version": self.weight_version,
        }

    def _update(self, request: dict[str, Any]) -> Reply:
        if not self.takes_weights:
            return 404, {"detail": "Not Found"}
        path = request["model_path"]
        if not Path(path).is_dir():
            message = f"Failed to get weights: {path} is no folder"
            return 400, {"success": False, "message": message, "num_paused_requests": 0}
        self.load(path)
        self.weight_version = request.get("weight_version") or self.weight_version
        message = "Succeeded to update model weights."
        return 200, {"success": True, "message": message, "num_paused_requests": 0}

    def _generate(self, request: dict[str, Any]) -> Reply:
        ids = request.get("input_ids")
        if ids is None:
            ids = self.tokenizer.encode(request["text"], add_special_tokens=False)
        if len(ids) >= self.positions:
            raise Refusal(
                f"The input ({len(ids)} tokens) is longer than the model's context length "
                f"({self.positions} tokens)."
            )
        params = request["sampling_params"]
        adapter = request.get("lora_path", "")
        asked = {**params, "seed": params.get("sampling_seed")}
        ends = params.get("stop_token_ids") or []
        count = params.get("max_new_tokens", 128)
        tokens, told, reason = self.draw(list(ids), count, asked, ends, adapter)
        meta: dict[str, Any] = {
            "prompt_tokens": len(ids),
            "cached_tokens": 0,
            "weight_version": self.weight_version,
            "finish_reason": {"type": reason},
        }
        if request.get("return_logprob"):
            meta["output_token_logprobs"] = [
                [v, t, None] for v, t in zip(told, tokens, strict=True)
            ]
            begin = request.get("logprob_start_len", -1)
            if begin is not None and begin >= 0:
                meta |= self._input(ids, begin, request.get("top_logprobs_num") or 0, adapter)
        text = self.tokenizer.decode(tokens)
        return 200, {"text": text, "output_ids": tokens, "meta_info": meta}

    def _input(self, ids: list[int], begin: int, k: int, adapter: str) -> dict[str, Any]:
        width = self._limit(k, "top_logprobs_num")
        rows = self.rows(list(ids), 1.0, adapter)  # never at a temperature
        own = [[float(rows[t][ids[t]]), int(ids[t]), None] for t in range(begin + 1, len(ids))]
        found: dict[str, Any] = {"input_token_logprobs": [[None, int(ids[begin]), None], *own]}
        if width:
            tops = [rows[t].topk(min(width, rows.shape[1])) for t in range(begin + 1, len(ids))]
            found["input_top_logprobs"] = [
                None,
                *([[float(v), int(i), None] for v, i in zip(*top, strict=True)] for top in tops),
            ]
        return found

    # --- OpenAI with echo -----------------------------------------------------------------------

    def _spelled(self, token: int) -> str:
        return f"token_id:{token}" if self.spells_ids else self.tokenizer.decode([token])

    def _echo(self, request: dict[str, Any]) -> Reply:
        ids = self._ids(request)
        k = self._limit(request.get("logprobs") or 0, "logprobs")
        tokens, told, reason = self.draw(ids, request["max_tokens"], request, [self._end()])
        whole = [*ids, *tokens] if request.get("echo") else tokens
        rows = self.rows([*ids, *tokens], request["temperature"])[-len(whole) :]
        values: list[float | None] = [
            float(row[token]) for row, token in zip(rows, whole, strict=True)
        ]
        if not self.honours and not request.get("echo"):
            values = list(told)
        top: list[Any] = [
            {self._spelled(int(i)): float(row[i]) for i in row.topk(min(k, len(row))).indices}
            for row in rows
        ]
        if request.get("echo"):
            values[0] = top[0] = None
        logprobs = {
            "tokens": [self._spelled(t) for t in whole],
            "token_logprobs": values,
            "top_logprobs": top,
            "text_offset": [0] * len(whole),
        }
        choice = {
            "index": 0,
            "text": self.tokenizer.decode(whole),
            "logprobs": logprobs if request.get("logprobs") else None,
            "finish_reason": reason,
        }
        usage = {"prompt_tokens": len(ids)}
        return 200, {"model": "tiny", "choices": [choice], "usage": usage}

    def _end(self) -> int:
        return int(self.tokenizer.eos_token_id)
