"""The server at its door: malformed bodies, keys, hosts, versions, orders, faults."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from urllib.parse import urlsplit

import pytest
import tinker
import zstandard
from starlette.requests import Request
from tinker import types
from tinker.proto import tinker_public_pb2 as pb
from tinker.proto.request_conv import forward_backward_request_to_proto

from rlvr_tinker_server.api.call import read_body
from rlvr_tinker_server.refusal import Refusal

pytestmark = pytest.mark.integration

VERSION = "0.38.0"


@pytest.fixture
def call(server):
    """One HTTP request: status and body, read as JSON where it is."""

    def ask(method, path, body=None, **headers):
        where = urlsplit(server.url)
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
        sent = {"x-api-key": "tml-local", **{k.replace("_", "-"): v for k, v in headers.items()}}
        if not isinstance(body, bytes | None):
            body = json.dumps(body).encode()
        try:
            connection.request(method, f"/api/v1/{path}", body, sent)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if "json" in answer.headers.get("content-type", ""):
            return answer.status, json.loads(text)
        return answer.status, text

    return ask


@pytest.fixture
def session(call):
    """A session's id; it is ended afterwards."""
    asked = {"tags": [], "user_metadata": {}, "sdk_version": VERSION}
    status, found = call("POST", "create_session", asked)
    assert status == 200
    yield found["session_id"]
    call("POST", f"sessions/{found['session_id']}/finish", {})


@pytest.fixture
def model(call, session):
    """A model's id."""
    asked = {"session_id": session, "model_seq_id": 0, "base_model": "gpt2-new"}
    status, found = call("POST", "create_model", {**asked, "lora_config": {"rank": 2}})
    assert status == 200
    assert fetch(call, found["request_id"])["model_id"] == f"{session}:train:0"
    return f"{session}:train:0"


def fetch(call, request_id):
    """A result."""
    status, found = call("POST", "retrieve_future", {"request_id": request_id})
    assert status == 200, found
    return found


def step(call, model, number, lr=0.0):
    """Send a step of that number."""
    asked = {"adam_params": {"learning_rate": lr}, "model_id": model, "seq_id": number}
    return call("POST", "optim_step", asked)


def passed(model, number, tokens=(1, 2, 3)):
    """The body of a pass."""
    datum = types.Datum(
        model_input=types.ModelInput.from_ints(list(tokens[:-1])),
        loss_fn_inputs={"target_tokens": list(tokens[1:]), "weights": [1.0] * (len(tokens) - 1)},
    )
    asked = types.ForwardBackwardRequest(
        forward_backward_input=types.ForwardBackwardInput(data=[datum], loss_fn="cross_entropy"),
        model_id=model,
        seq_id=number,
    )
    return forward_backward_request_to_proto(asked).SerializeToString()


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("create_session", b"{", "not JSON"),
        ("create_session", b"[1]", "no object"),
        ("create_session", b"\xff\xfe", "not JSON"),
        ("create_session", {"tags": []}, "user_metadata: Field required"),
        ("create_model", {"session_id": 3}, "no CreateModelRequest of tinker 0.38"),
        (
            "optim_step",
            {"model_id": "m", "adam_params": {"learning_rate": "fast"}},
            "learning_rate",
        ),
        ("optim_step", {"model_id": "m", "seq_id": 1, "lr": 1}, "optim_params: Field required"),
        ("asample", {"prompt": {"chunks": [{"type": "smell"}]}}, "no SampleRequest"),
        ("forward_backward", b"\x0a\xff", "no ForwardBackwardRequest"),
        ("weights_info", {"tinker_path": "x"}, "no path of a checkpoint"),
        ("retrieve_future", {}, "request_id: Field required"),
    ],
)
def test_malformed_bodies_are_400_with_a_reason(call, path, body, reason):
    """Whatever is sent, the answer says what is wrong with it; the server's log stays clean."""
    status, found = call("POST", path, body)
    assert status == 400
    assert reason in found["detail"]


def test_ids_of_nobody_are_404(call):
    """Unknown sessions, models, samplers and requests are told from mistakes in a body."""
    for path, body in (
        ("session_heartbeat", {"session_id": "session-x"}),
        ("get_info", {"model_id": "session-x:train:0"}),
        ("retrieve_future", {"request_id": "session-x:train:0:1"}),
        ("optim_step", {"model_id": "x", "seq_id": 1, "adam_params": {}}),
    ):
        status, found = call("POST", path, body)
        assert status == 404, (path, found)
        assert "on this server" in found["detail"]
    assert call("GET", "samplers/x:sample:0")[0] == 404
    assert call("GET", "nothing")[0] == 404


def test_a_key_and_a_host_of_this_machine_are_needed(call):
    """What a page in a browser could send unasked is not let in."""
    assert call("POST", "create_session", {}, x_api_key="")[0] == 401
    assert call("GET", "healthz", x_api_key="") == (200, {"status": "ok"})
    assert call("GET", "healthz", host="evil.example")[0] == 400


def test_clients_of_another_version_are_told(call):
    """An older SDK speaks another wire: the first request says which one is served."""
    asked = {"tags": [], "user_metadata": {}}
    for version, reason in (("0.24.1", "an older wire"), ("new", "says no SDK version")):
        for path, body in (
            ("client/config", {"sdk_version": version}),
            ("create_session", {**asked, "sdk_version": version}),
        ):
            status, found = call("POST", path, body)
            assert status == 400
            assert reason in found["detail"]


def test_large_bodies_are_refused(call):
    """Also those that are small until they are decompressed."""
    bomb = zstandard.ZstdCompressor().compress(b"\0" * (65 << 20))
    assert len(bomb) < 100_000
    status, found = call("POST", "forward_backward", bomb, content_encoding="zstd")
    assert (status, "larger than 64 MiB" in found["detail"]) == (413, True)
    assert call("POST", "forward_backward", b"x", content_encoding="zstd")[0] == 400
    assert call("POST", "forward_backward", b"x", content_encoding="br")[0] == 415


def test_compressed_passes_are_read(call, model):
    """zstd, as the SDK sends it where it is asked to."""
    body = zstandard.ZstdCompressor().compress(passed(model, 1))
    status, found = call("POST", "forward_backward", body, content_encoding="zstd")
    assert status == 200
    output = pb.ForwardBackwardOutput.FromString(fetch(call, found["request_id"]))
    assert output.metrics["loss:sum"] > 0


def test_a_body_that_stops_is_not_waited_for():
    """Where less comes than content-length says, the client is told to send it again."""
    parts = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive():
        return parts.pop() if parts else await asyncio.sleep(3600)

    scope = {"type": "http", "method": "POST", "headers": [(b"content-length", b"99")]}
    with pytest.raises(Refusal, match="content-length") as refused:
        asyncio.run(asyncio.wait_for(read_body(Request(scope, receive)), 60))
    assert refused.value.status == 408


REFUSED = {
    "save_weights": {"path": "step 5"},
    "save_weights_for_sampler": {"path": "../x"},
    "load_weights": {"path": "nowhere", "optimizer": True},
    "optim_step": {"adam_params": {"learning_rate": "fast"}},
}


@pytest.mark.parametrize("endpoint", REFUSED)
def test_a_refused_request_uses_up_its_number(call, model, endpoint):
    """What follows it is done; sent again it is refused again."""
    asked = {"model_id": model, "seq_id": 1, **REFUSED[endpoint]}
    for _ in range(2):
        assert call("POST", endpoint, asked)[0] == 400
    status, found = step(call, model, 2)
    assert status == 200
    assert fetch(call, found["request_id"])["metrics"]["steps"] == 1.0
    assert fetch(call, f"{model}:1")["category"] == "user"


def test_an_update_without_a_refused_pass_is_not_made(call, model):
    """The numbers are used up, and the step that lacks the pass's gradients says so."""
    message = pb.ForwardBackwardRequest.FromString(passed(model, 1))
    message.data[0].loss_fn_inputs["weights"].dense = b"odd"
    status, refused = call("POST", "forward_backward", message.SerializeToString())
    assert (status, "whole number of" in refused["detail"]) == (400, True)

    _, first = step(call, model, 2)
    _, second = step(call, model, 3)
    assert "its gradients are incomplete" in fetch(call, first["request_id"])["error"]
    assert fetch(call, second["request_id"])["metrics"]["steps"] == 1.0


def test_requests_wait_for_those_before_them(call, model):
    """The third and second come first, and are done after the first."""
    third = step(call, model, 3)[1]["request_id"]
    second = step(call, model, 2)[1]["request_id"]
    found = {}
    waiting = threading.Thread(target=lambda: found.update(fetch(call, third)))
    waiting.start()
    time.sleep(0.3)
    assert not found
    first = step(call, model, 1)[1]["request_id"]
    waiting.join(60)
    assert [fetch(call, one)["metrics"]["steps"] for one in (first, second)] == [1, 2]
    assert found["metrics"]["steps"] == 3


def test_settings_of_sampling_may_be_left_out(call, session):
    """What a request does not say has the API's defaults: temperature 1, up to the context."""
    asked = {"session_id": session, "sampling_session_seq_id": 0, "base_model": "gpt2-new"}
    sampler = call("POST", "create_sampling_session", asked)[1]["sampling_session_id"]
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]}
    asked = {"prompt": prompt, "sampling_params": {"stop": []}, "seq_id": 0}
    found = call("POST", "asample", {**asked, "sampling_session_id": sampler})[1]
    output = pb.SampleResponse.FromString(fetch(call, found["request_id"]))
    assert len(output.sequences[0].tokens) == 45 * 4
    assert len(found["sample_sequence_ids"]) == 1


def test_a_request_sent_twice_is_done_once(call, model):
    """A client that lost the answer asks again; another request under the number is refused."""
    body = passed(model, 1)
    first = call("POST", "forward_backward", body)
    assert call("POST", "forward_backward", body) == first
    steps = [step(call, model, 2), step(call, model, 2)]
    assert steps[0] == steps[1]
    assert fetch(call, steps[0][1]["request_id"])["metrics"]["steps"] == 1
    assert fetch(call, steps[0][1]["request_id"])["metrics"]["steps"] == 1

    status, found = step(call, model, 2, lr=0.5)
    assert status == 400
    assert "do two clients work on it?" in found["detail"]


def test_two_clients_in_one_session_are_told(call, session, model):
    """A second create_model under a number that was used for another one is refused."""
    asked = {"session_id": session, "model_seq_id": 0, "base_model": "gpt2-new"}
    again = call("POST", "create_model", {**asked, "lora_config": {"rank": 2}})
    assert again[0] == 200
    status, found = call("POST", "create_model", {**asked, "lora_config": {"rank": 3}})
    assert status == 400
    assert "do two clients work in one session?" in found["detail"]


def test_a_finished_session_is_gone(call, session, model):
    """410 to the heartbeat, as the SDK expects; whoever waited for a result is told."""
    later = step(call, model, 2)[1]["request_id"]  # waits for number 1
    found = []
    waiting = threading.Thread(
        target=lambda: found.append(call("POST", "retrieve_future", {"request_id": later}))
    )
    waiting.start()
    time.sleep(0.3)
    assert call("POST", f"sessions/{session}/finish", {"reason": {"type": "success"}})[0] == 200
    waiting.join(60)
    assert "has ended" in found[0][1]["error"]
    assert call("POST", "session_heartbeat", {"session_id": session})[0] == 410
    assert call("POST", "get_info", {"model_id": model})[0] == 410


@pytest.fixture
def faults(call):
    """Sets what goes wrong; nothing does afterwards."""

    def rules(*described):
        status, found = call("POST", "faults", {"rules": described})
        assert status == 200, found

    yield rules
    rules()


@pytest.fixture
def client(server):
    """A model in training, of the real SDK."""
    service = tinker.ServiceClient(base_url=server.url, api_key="tml-local")
    yield service.create_lora_training_client("gpt2-new", rank=2, seed=0).result()
    service.close("success").result()


def forward(client):
    """A pass of the SDK's."""
    datum = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2]),
        loss_fn_inputs={"target_tokens": [2, 3], "weights": [1.0, 1.0]},
    )
    return client.forward([datum], "cross_entropy")


@pytest.mark.parametrize("status", [500, 503, 408, 402])
def test_answers_that_the_sdk_repeats(call, faults, client, status):
    """A few bad answers to the question for a result: asked again, and then it is there."""
    faults({"on": "retrieve_future", "do": "status", "status": status, "times": 1})
    assert forward(client).result(60).metrics["loss:sum"] > 0
    assert call("GET", "faults")[1]["requests"]["retrieve_future"] >= 2


def test_a_request_that_is_refused_for_a_while(call, faults, client):
    """429 to the request itself: the SDK backs off and sends it again."""
    faults({"on": "forward_backward", "do": "status", "status": 429, "times": 1})
    assert forward(client).result(60).metrics["loss:sum"] > 0
    assert call("GET", "faults")[1]["requests"]["forward_backward"] == 2


def test_a_result_that_never_comes(faults, client):
    """An answer that stays away: the client's own deadline ends the waiting."""
    faults({"on": "retrieve_future", "do": "slow", "delay_s": 5.0, "times": None})
    with pytest.raises(TimeoutError):
        forward(client).result(0.5)


def test_failures_and_numbers_that_are_none(faults, client):
    """A failed future says so; NaN arrives as NaN."""
    faults({"on": "retrieve_future", "do": "fail", "category": "user"})
    with pytest.raises(tinker.RequestFailedError, match="a fault was asked for"):
        forward(client).result(60)
    faults({"on": "retrieve_future", "do": "nan"})
    found = forward(client).result(60)
    assert found.metrics["loss:sum"] != found.metrics["loss:sum"]
    assert all(x != x for x in found.loss_fn_outputs[0]["logprobs"].data)


def test_a_connection_that_breaks(call, faults, client):
    """The SDK asks again after a broken answer."""
    faults({"on": "retrieve_future", "do": "drop", "times": 1})
    assert forward(client).result(60).metrics["loss:sum"] > 0
    assert call("GET", "faults")[1]["requests"]["retrieve_future"] == 2


@pytest.mark.parametrize("rules", [{}, {"rules": [{"on": "x"}]}, {"rules": [{"do": "sing"}]}])
def test_rules_that_are_none_are_refused(call, rules):
    """A mistyped fault must not make a test pass."""
    status, found = call("POST", "faults", rules)
    assert status == 400
    assert "no rules" in found["detail"]
