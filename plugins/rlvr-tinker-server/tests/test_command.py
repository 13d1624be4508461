"""`rlvr tinker-server`: options that cannot be, and a server that is killed and started again."""

from __future__ import annotations

import socket
from concurrent import futures

import numpy as np
import pytest
import tinker
from server_process import started
from tinker import types
from tinker.types import AdamParams

from rlvr import BackendError, ConfigError
from rlvr_tinker_server.command import is_loopback, main
from rlvr_tinker_server.nets.base import open_base

MODEL = "gpt2:new?layers=1&heads=1&width=8&positions=16"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--host", "0.0.0.0"], "no --key-file"),
        (["--host", "192.168.1.7"], "no --key-file"),
        (["--host", "example.org"], "no --key-file"),
        (["--port", "-1"], "--port -1: must be 0 or more"),
        (["--port", "70000"], "must be 65535 or less"),
        (["--max-rank", "0"], "--max-rank 0: must be 1 or more"),
        (["--session-timeout-s", "nan"], "--session-timeout-s"),
        (["--key-file", "/nowhere/key"], "cannot be read"),
        (["--model", "starter"], "no --plugin"),
    ],
)
def test_options_that_cannot_be(words, reason):
    """Each is refused before anything is loaded (exit 2)."""
    with pytest.raises(ConfigError, match=reason):
        main(["--model", MODEL, *words])


def test_a_key_that_is_easy_to_guess_is_refused(tmp_path):
    """A file without a real key is a mistake; nothing is served with it."""
    file = tmp_path / "key"
    for key in ("", "tml-1", "secret-secret-secret-secret", "tml-" + "é" * 30):
        file.write_text(key)
        with pytest.raises(ConfigError, match="no key in it"):
            main(["--model", MODEL, "--host", "0.0.0.0", "--key-file", str(file)])


def test_a_port_that_is_taken():
    """The address and the reason are named, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--port {port}(.|\n)*--port 0"):
            main(["--model", MODEL, "--port", str(port)])


def test_what_loopback_is():
    """Only addresses that nobody else reaches."""
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.evil.org", "")))


def test_a_folder_of_somebody_else_is_not_replaced(tmp_path):
    """The tokenizer goes where a server has put one, or where nothing is; else: exit 2."""
    mine = tmp_path / "tokenizer"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")

    with pytest.raises(ConfigError, match="--state"):
        open_base(MODEL, exports=tmp_path, threads=1)
    assert (mine / "notes.txt").read_text() == "mine"

    for _ in range(2):  # the second finds the first's
        base = open_base(MODEL, exports=tmp_path / "state", threads=1)
        assert (tmp_path / "state" / "tokenizer" / "tokenizer.json").is_file()
    assert base.tokenizer_at == str(tmp_path / "state" / "tokenizer")


def datum():
    """Four tokens."""
    return types.Datum(
        model_input=types.ModelInput.from_ints([1, 2, 3, 4]),
        loss_fn_inputs={"target_tokens": [2, 3, 4, 5], "weights": [1.0] * 4},
    )


def train(client):
    """One step; logprobs before it."""
    passed = client.forward_backward([datum()], "cross_entropy")
    client.optim_step(AdamParams(learning_rate=0.05)).result(60)
    return passed.result(60).loss_fn_outputs[0]["logprobs"].to_numpy()


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(600)
def test_killing_the_server_loses_what_was_not_saved_and_nothing_else(tmp_path):
    """A key of its own, a kill in the middle, a second server: the run goes on bit for bit."""
    key = "tml-" + "k" * 32
    (tmp_path / "key").write_text(key)
    options = ("--key-file", str(tmp_path / "key"), "--max-adapters", "2", "--threads", "1")
    with started(MODEL, *options, "--faults", state=tmp_path / "state") as server:
        service = tinker.ServiceClient(base_url=server.url, api_key=key)
        client = service.create_lora_training_client(server.name, rank=2, seed=1).result()
        train(client)
        path = client.save_state("one").result().path
        wanted = [train(client) for _ in range(3)]

        service.create_lora_training_client(server.name, rank=2).result()
        with pytest.raises(tinker.BadRequestError, match="holds 2 adapters, the most it may"):
            service.create_lora_training_client(server.name, rank=2).result()
        with pytest.raises(tinker.AuthenticationError, match="not the one this server was"):
            tinker.RestClient(
                base_url=server.url, api_key="tml-other"
            ).list_user_checkpoints().result()
        with (
            pytest.raises(BackendError, match="is used by another server"),
            started(MODEL, state=tmp_path / "state"),
        ):
            pass
        server.kill()
        ending = service.close("errored").future()  # else it asks for the dead server for ever
        futures.wait([ending], timeout=1)
        ending.cancel()
    with started(MODEL, *options, state=tmp_path / "state") as server:
        again = tinker.ServiceClient(base_url=server.url, api_key=key)
        client = again.create_training_client_from_state_with_optimizer(path).result()
        found = [train(client) for _ in range(3)]
        again.close("success").result()

    assert all(np.array_equal(x, y) for x, y in zip(found, wanted, strict=True))
