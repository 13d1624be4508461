"""Any mutated request of any endpoint is answered, and a valid one after it is served."""

from __future__ import annotations

import copy
import gzip
import http.client
import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import tinker
import zstandard
from attrs import define, evolve, field, frozen
from server_process import Running
from tinker import types
from tinker.proto import tinker_public_pb2 as pb
from tinker.proto.request_conv import forward_backward_request_to_proto

from rlvr_tinker_server.api.handlers import ROUTES

pytestmark = pytest.mark.integration

MANY = 60
"""Mutated requests of an endpoint."""
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        "",
        "x",
        "5",
        "step 5",
        "../../etc/passwd",
        "\x00",
        "\ud800",
        "a" * 70_000,
    ),
    *(0, -1, 1.5, 2**31, 2**63, 2**64, 10**400, -(10**400), float("nan"), float("inf"), -0.0),
    *([], {}, [[]], [None] * 3, {"type": "none"}, {"": {}}, "tinker://a/weights/b", "💥"),
)
RAW = (b"", b"{", b"\xff\xfe", b"[" * 200_000, b'{"a":' * 50_000, b"null", b"0", b"\x00" * 99)
HEADERS: tuple[dict[str, str], ...] = (
    {"content-encoding": "gzip"},
    {"content-encoding": "zstd"},
    {"content-encoding": "zstd, zstd"},
    {"content-encoding": "\xe9"},
    {"content-type": "text/plain"},
    {"content-type": "application/x-protobuf; charset=\xff"},
    {"x-api-key": "\xff\xfe"},
    {"x-api-key": ""},
    {"authorization": "Bearer", "x-api-key": ""},
    {"host": "evil.example"},
    {"host": ""},
    {"accept": "nothing/at-all"},
    {"accept-encoding": "br;q=nan"},
    {"expect": "100-continue"},
    {"x-long": "y" * 60_000},
    {"range": "bytes=9-1"},
)
PARTS = (
    "",
    "x",
    "%00",
    "..%2f..",
    "%2e%2e",
    "a" * 3000,
    "%ff",
    "%ed%a0%80",
    "a:b",
    "weights",
    "💥",
)
QUERIES = ("limit=x", "limit=-1", f"limit={10**400}", "offset=1e3", "limit=1&limit=2", "%ff=%00")


@frozen(kw_only=True)
class Sent:
    """A request as it is put on the wire."""

    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(factory=dict)


@define(eq=False)
class Client:
    """Sends requests as they are, and knows a model's next number."""

    url: str
    session: str = ""
    model: str = ""
    number: int = 1

    def send(self, sent: Sent) -> tuple[int, bytes]:
        """Status and body. The time is generous: that there is an answer is what is tested."""
        where = urlsplit(self.url)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
        try:
            connection.putrequest(sent.method, sent.path, skip_host="host" in sent.headers)
            told = {"x-api-key": "tml-local", "content-length": str(len(sent.body))} | sent.headers
            for name, value in told.items():
                connection.putheader(name, value.encode("latin-1"))
            connection.endheaders(sent.body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """A valid request: what is answered, as JSON."""
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, found = self.send(Sent(method=method, path=f"/api/v1/{path}", body=text))
        assert status in (200, 204), (method, path, status, found[:500])
        return json.loads(found) if found[:1] in (b"{", b"[") else found

    def open(self) -> None:
        """A session with a model."""
        asked = {"tags": [], "user_metadata": {}, "sdk_version": tinker.__version__}
        self.session = self.ask("POST", "create_session", asked)["session_id"]
        made = {"session_id": self.session, "model_seq_id": 0, "base_model": "gpt2-new"}
        future = self.ask("POST", "create_model", {**made, "lora_config": {"rank": 2}})
        self.model = self.ask("POST", "retrieve_future", future)["model_id"]

    def step(self, lr: float = 0.0) -> dict[str, Any]:
        """The body of a step under the next number."""
        params = {"learning_rate": lr, "type": "adam"}
        return {"adam_params": params, "model_id": self.model, "seq_id": self.number}

    def train(self) -> str:
        """A valid step, under the first number that nothing used; the id of its request."""
        for _ in range(3):
            text = json.dumps(self.step()).encode()
            sent = Sent(method="POST", path="/api/v1/optim_step", body=text)
            status, found = self.send(sent)
            self.number += 1
            if status == 200:
                future = json.loads(found)
                self.ask("POST", "retrieve_future", {"request_id": future["request_id"]})
                return str(future["request_id"])
            assert b"do two clients work" in found or b"the next one is" in found, found
        raise AssertionError("no number is free")


def passed(client: Client) -> pb.ForwardBackwardRequest:
    """A pass under the next number."""
    datum = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2, 3]),
        loss_fn_inputs={"target_tokens": [2, 3, 4], "weights": [1.0] * 3},
    )
    asked = types.ForwardBackwardRequest(
        forward_backward_input=types.ForwardBackwardInput(data=[datum], loss_fn="cross_entropy"),
        model_id=client.model,
        seq_id=client.number,
    )
    return forward_backward_request_to_proto(asked)


def valid(client: Client, endpoint: str) -> tuple[str, Any]:
    """The path and the body of a valid request of an endpoint, and of one that would be."""
    numbered = {"model_id": client.model, "seq_id": client.number}
    chunk = {"type": "encoded_text", "tokens": [1, 2, 3]}
    sampling = {"max_tokens": 2, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "stop": ["x"]}
    bodies: dict[str, Any] = {
        "client/config": {"sdk_version": tinker.__version__},
        "create_session": {"tags": ["t"], "user_metadata": {"a": "b"}, "sdk_version": "0.38.0"},
        "session_heartbeat": {"session_id": client.session},
        "create_model": {
            "session_id": client.session,
            "model_seq_id": 0,
            "base_model": "gpt2-new",
            "lora_config": {"rank": 2, "seed": 3, "train_mlp": True},
            "optimizer_config": {"type": "adamw"},
        },
        "get_info": {"model_id": client.model},
        "forward_backward": passed(client).SerializeToString(),
        "optim_step": client.step(),
        "save_weights": {**numbered, "path": "s", "ttl_seconds": 60, "overwrite": True}
        | {"user_metadata": {"a": "b"}},
        "load_weights": {**numbered, "path": f"tinker://{client.model}/weights/kept"}
        | {"optimizer": True, "base_model": "gpt2-new"},
        "save_weights_for_sampler": {**numbered, "path": "w", "ttl_seconds": 60, "kind": "fixed"},
        "weights_info": {"tinker_path": f"tinker://{client.model}/weights/kept"},
        "create_sampling_session": {"session_id": client.session, "base_model": "gpt2-new"}
        | {"sampling_session_seq_id": 1, "model_path": None},
        "asample": {
            "sampling_session_id": f"{client.session}:sample:0",
            "seq_id": client.number,
            "num_samples": 1,
            "prompt": {"chunks": [chunk]},
            "sampling_params": sampling,
            "prompt_logprobs": True,
            "topk_prompt_logprobs": 2,
            "topk_sample_logprobs": 1,
            "prompt_logprobs_last_n": 1,
        },
        "cancel_future": {"request_id": "nothing"},
        "retrieve_future": {"request_id": f"{client.model}:0"},
        "training_runs/{run}/checkpoints/{kind}/{name}/ttl": {"ttl_seconds": 600},
    }
    names = {"session_id": client.session, "sampler_id": f"{client.session}:sample:0"}
    names |= {"run": client.model, "kind": "weights", "name": "kept"}
    return endpoint.format(**names), bodies.get(endpoint, {})


def mutated(chance: random.Random, client: Client, method: str, endpoint: str) -> Sent:
    """A valid request with something wrong with it."""
    path, body = valid(client, endpoint)
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = Sent(method=method, path=f"/api/v1/{path}", body=text)
    kinds: list[Callable[[], Sent]] = [
        lambda: (
            evolve(sent, body=json.dumps(_broken(chance, body)).encode())
            if not isinstance(body, bytes)
            else evolve(sent, body=_broken_pass(chance, client))
        ),
        lambda: evolve(sent, body=chance.choice(RAW)),
        lambda: evolve(sent, body=_flipped(chance, text)),
        lambda: evolve(sent, headers=chance.choice(HEADERS)),
        lambda: evolve(sent, path=f"{sent.path}?{chance.choice(QUERIES)}"),
        lambda: evolve(sent, path=_other_path(chance, endpoint)),
        lambda: evolve(sent, method=chance.choice(("GET", "PUT", "DELETE", "PATCH", "XX"))),
        lambda: _compressed(chance, sent),
    ]
    return chance.choices(kinds, weights=(8, 1, 2, 1, 1, 2, 1, 1))[0]()


def _broken(chance: random.Random, body: Any) -> Any:
    broken = copy.deepcopy(body)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        places = list(_places(broken))
        if not places or chance.random() < 0.05:
            return copy.deepcopy(chance.choice(VALUES))
        holder, key = chance.choice(places)
        if isinstance(holder, dict) and chance.random() < 0.15:
            del holder[key]
        elif isinstance(holder, dict) and chance.random() < 0.1:
            holder[chance.choice(("", "x" * 999, "__class__", "\ud800"))] = copy.deepcopy(
                holder[key]
            )
        else:
            holder[key] = copy.deepcopy(chance.choice(VALUES))
    return broken


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _broken_pass(chance: random.Random, client: Client) -> bytes:
    message = passed(client)
    tensor = message.data[0].loss_fn_inputs[chance.choice(("target_tokens", "weights", "new"))]
    for _ in range(chance.choice((1, 1, 2, 3))):
        change = chance.randrange(12)
        if change == 0:
            tensor.dense = chance.randbytes(chance.choice((0, 1, 3, 7, 8, 24, 12)))
        elif change == 1:
            tensor.shape[:] = chance.choice(
                ([-1], [0], [2**31, 2**31], [2**62, 4], [3, 1], [1] * 99)
            )
        elif change == 2:
            tensor.dtype = chance.choice((0, 1, 2, 3, 77))
        elif change == 3:
            tensor.shape[:] = chance.choice(([3, 2**40], [-1, 3], [3, 4]))
            tensor.sparse_csr.crow_indices = chance.randbytes(8 * chance.choice((0, 1, 4)))
            tensor.sparse_csr.col_indices = chance.randbytes(8 * chance.choice((0, 1, 4)))
        elif change == 4:
            message.data[0].model_input[0].encoded_text.tokens = chance.randbytes(12)
        elif change == 5:
            message.data[0].model_input.add()
        elif change == 6:
            message.loss_fn = chance.choice(("", "ppo", "drop table", "cross_entropy", "\x00"))
        elif change == 7:
            message.loss_fn_config["clip_low_threshold"] = chance.choice((float("nan"), -1e308))
        elif change == 8:
            message.model_id = chance.choice(("", client.session, f"{client.session}:train:9"))
        elif change == 9:
            message.seq_id = chance.choice((0, -1, 2**31 - 1))
        elif change == 10:
            message.data.add()
        else:
            message.forward_only = True
            message.data[0].loss_fn_inputs["weights"].dense = b"\x00\x00\xc0\x7f" * 3
    return bytes(message.SerializeToString())


def _flipped(chance: random.Random, text: bytes) -> bytes:
    if not text or chance.random() < 0.3:
        return text[: chance.randrange(len(text) + 1)] + chance.randbytes(chance.randrange(4))
    flipped = bytearray(text)
    for _ in range(chance.choice((1, 2, 9))):
        flipped[chance.randrange(len(flipped))] = chance.randrange(256)
    return bytes(flipped)


def _other_path(chance: random.Random, endpoint: str) -> str:
    parts = [
        chance.choice(PARTS) if part.startswith("{") or chance.random() < 0.1 else part
        for part in endpoint.split("/")
    ]
    encoded = "/".join(parts).encode()
    return "/api/v1/" + "".join(chr(b) if b < 128 else f"%{b:02x}" for b in encoded)


def _compressed(chance: random.Random, sent: Sent) -> Sent:
    packed = zstandard.ZstdCompressor().compress(chance.choice((sent.body, bytes(80 << 20))))
    headers = {"content-encoding": "zstd"}
    return evolve(sent, body=packed[: chance.choice((len(packed), 9))], headers=headers)


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[Client]:
    """A client with a session, a model, a sampler and a saved state."""
    found = Client(server.url)
    found.open()
    asked = {"model_id": found.model, "seq_id": found.number, "path": "kept"}
    found.number += 1
    found.ask("POST", "retrieve_future", found.ask("POST", "save_weights", asked))
    sampler = {"session_id": found.session, "sampling_session_seq_id": 0, "base_model": "gpt2-new"}
    found.ask("POST", "create_sampling_session", sampler)
    yield found
    found.ask("POST", f"sessions/{found.session}/finish", {})


def check_result(client: Client, request_id: str) -> None:
    """The result of an accepted request is no failure of the server; one out of turn waits."""
    model, _, number = request_id.rpartition(":")
    if model == client.model and int(number) > client.number:
        return
    if model == client.model and int(number) == client.number:
        client.number += 1
    asked = json.dumps({"request_id": request_id}).encode()
    sent = Sent(method="POST", path="/api/v1/retrieve_future", body=asked)
    status, found = client.send(sent)
    assert status == 200, (request_id, status, found[:500])
    assert b'"category": "server"' not in found, found


@pytest.mark.one_of(3)
@pytest.mark.parametrize("method, endpoint", [route[:2] for route in ROUTES], ids=lambda x: x)  # noqa: PT006
def test_mutated_requests_are_answered(client: Client, method: str, endpoint: str) -> None:
    """None of them is a failure of the server, and the next step of the model is taken."""
    chance = random.Random(endpoint)
    for attempt in range(MANY):
        sent = mutated(chance, client, method, endpoint)
        if "finish" in sent.path and client.session in sent.path:
            continue  # the one request that would end the session rightly
        status, found = client.send(sent)
        assert 200 <= status < 500, (sent, status, found[:500])
        assert status not in (408, 409, 429), (sent, status)  # the SDK would repeat it for ever
        if attempt % 3 == 0:
            client.train()
        if status == 200 and b'"request_id"' in found:
            check_result(client, json.loads(found)["request_id"])
        if endpoint.startswith(("training_runs", "checkpoints", "save")):
            client.ask("GET", "checkpoints")
            client.ask("GET", "training_runs")
    client.train()


def nested(depth: int) -> Any:
    """Lists in lists."""
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def everywhere(body: Any, kind: type, value: Any) -> Any:
    """The body with `value` in the place of each value of a kind."""
    changed = copy.deepcopy(body)
    for holder, key in list(_places(changed)):
        if type(holder[key]) is kind:
            holder[key] = copy.deepcopy(value)
    return changed


def with_ids(body: Any, **ids: Any) -> Any:
    """The body with other numbers and names of what it is about."""
    return {**body, **{key: value for key, value in ids.items() if key in body}}


NUMBERS = ("seq_id", "model_seq_id", "sampling_session_seq_id")
NAMES = ("session_id", "model_id", "sampling_session_id", "request_id", "tinker_path")
KINDS: dict[str, Callable[[Any], Any]] = {
    "huge ints": lambda body: everywhere(body, int, 10**30),
    "deep nesting": lambda body: {**body, "user_metadata": nested(900), "tags": nested(900)},
    "wrong types in lists": lambda body: everywhere(body, list, [1, "a", None, {}, [1.5], True]),
    "texts for dicts": lambda body: everywhere(body, dict, "text"),
    "negative numbers": lambda body: with_ids(body, **dict.fromkeys(NUMBERS, -7)),
    "a number used before": lambda body: with_ids(
        {**body, "unknown": 1}, **dict.fromkeys(NUMBERS, 1)
    ),
    "unknown ids": lambda body: with_ids(body, **dict.fromkeys(NAMES, "session-gone:train:0")),
    "NaN": lambda body: everywhere(everywhere(body, float, float("nan")), int, float("nan")),
    "Infinity": lambda body: everywhere(everywhere(body, float, float("inf")), int, -float("inf")),
    "a list": lambda body: [body, body],
}
WIRES: dict[str, Callable[[bytes], tuple[bytes, dict[str, str]]]] = {
    "empty": lambda text: (b"", {}),
    "no UTF-8": lambda text: (text.replace(b'"', b'"\xff\xc3', 3), {}),
    "UTF-16": lambda text: (text.decode("latin-1").encode("utf-16"), {}),
    "a byte order mark": lambda text: (b"\xef\xbb\xbf" + text, {}),
    "plain as gzip": lambda text: (text, {"content-encoding": "gzip"}),
    "plain as zstd": lambda text: (text, {"content-encoding": "zstd"}),
    "gzip cut short": lambda text: (gzip.compress(text)[:-9], {"content-encoding": "gzip"}),
    "keys twice": lambda text: (text[:-1] + b', "seq_id": -1, "model_id": 3}', {}),
    "JSON as protobuf": lambda text: (text, {"content-type": "application/x-protobuf"}),
    "two texts": lambda text: (text + text, {}),
}


@pytest.mark.parametrize("method, endpoint", [route[:2] for route in ROUTES], ids=lambda x: x)  # noqa: PT006
def test_each_kind_of_mutation_is_answered_within_a_second(
    client: Client, method: str, endpoint: str
) -> None:
    """And a step of the model after it is taken: no kind leaves a client waiting."""
    kinds: dict[str, Callable[[], Sent]] = {}
    path, body = valid(client, endpoint)
    if "finish" in path:
        return  # its body says nothing: each of them would end the session rightly
    if not isinstance(body, bytes):
        for name, change in KINDS.items():
            kinds[name] = lambda change=change: Sent(
                method=method,
                path=f"/api/v1/{path}",
                body=json.dumps(change(valid(client, endpoint)[1])).encode(),
            )
    for name, pack in WIRES.items():

        def packed(pack: Callable[[bytes], tuple[bytes, dict[str, str]]] = pack) -> Sent:
            now = valid(client, endpoint)[1]
            text, headers = pack(now if isinstance(now, bytes) else json.dumps(now).encode())
            return Sent(method=method, path=f"/api/v1/{path}", body=text, headers=headers)

        kinds[name] = packed
    for name, make in kinds.items():
        begun = time.monotonic()
        status, found = client.send(make())
        spent = time.monotonic() - begun

        assert 200 <= status < 500, (name, status, found[:500])
        assert status not in (408, 409, 429), (name, status)
        assert spent < 1, (name, spent)
        if status == 200 and b'"request_id"' in found:
            check_result(client, json.loads(found)["request_id"])
        client.train()
