"""A real HTTP server that speaks the protocol, with answers that a test decides."""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

Decide = Callable[[dict[str, Any], int], "Say"]


@define
class Say:
    """One reply: a completion's text, or any status and body."""

    text: str | None = ""
    finish: str = "stop"
    status: int = 200
    body: str | None = None
    delay_s: float = 0.0
    headers: dict[str, str] = field(factory=dict)

    def render(self, model: str) -> str:
        if self.body is not None:
            return self.body
        message = {"role": "assistant", "content": self.text}
        choices = [{"index": 0, "message": message, "finish_reason": self.finish}]
        return json.dumps({"model": model, "choices": choices})


@define
class FakeServer:
    """What was asked of the server, and what it answers (`decide(request, number)`)."""

    Say = Say

    url: str = ""
    decide: Decide = lambda request, number: Say("b")
    models: tuple[str, ...] = ("tiny",)
    listing_status: int = 200
    requests: list[dict[str, Any]] = field(factory=list)
    keys: list[str | None] = field(factory=list)
    paths: list[str] = field(factory=list)
    busy: int = 0
    most_busy: int = 0
    lock: Any = field(factory=threading.Lock)

    @property
    def spec(self) -> str:
        return f"server:{self.url}#tiny"


def _handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_args: Any) -> None:
            pass

        def _send(self, status: int, text: str, headers: dict[str, str]) -> None:
            body = text.encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            server.keys.append(self.headers.get("Authorization"))
            server.paths.append(self.path)
            listing = {"data": [{"id": name} for name in server.models]}
            self._send(server.listing_status, json.dumps(listing), {})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with server.lock:
                server.busy += 1
                server.most_busy = max(server.most_busy, server.busy)
                server.requests.append(request)
                server.keys.append(self.headers.get("Authorization"))
                server.paths.append(self.path)
                number = len(server.requests)
            try:
                say = server.decide(request, number)
                time.sleep(say.delay_s)
            finally:
                with server.lock:
                    server.busy -= 1
            self._send(say.status, say.render(request["model"]), say.headers)

    return Handler


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A server on a free port of this machine."""
    fake = FakeServer()

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_args: Any) -> None:
            """A client that went away meanwhile is part of some tests."""

    http = Quiet(("127.0.0.1", 0), _handler(fake))
    fake.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield fake
    http.shutdown()
    http.server_close()
    thread.join()


# --- doubles that compute with a real model -------------------------------------------------------


@functools.cache
def _doubles() -> Any:
    spec = importlib.util.spec_from_file_location(
        "rlvr_servers_doubles", Path(__file__).with_name("doubles.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _model_folder(folder: Path, spec: str, seed: int) -> Path:
    """A small model as transformers reads it; weights far enough apart to be told."""
    torch = pytest.importorskip("torch", reason="the doubles compute with torch")
    pytest.importorskip("transformers", reason="the doubles compute with transformers")
    source = pytest.importorskip("rlvr_torch.models.source", reason="rlvr-torch is not installed")
    from rlvr_torch.models.save import save_net

    found = source.ModelSource.parse(spec, seed)
    tokenizer = found.tokenizer()
    net = found.net(tokenizer.vocab_size)
    with torch.no_grad():
        for value in net.module.parameters():
            if value.dim() > 1:
                value.mul_(8.0)
    save_net(net, tokenizer, folder)
    return folder


@pytest.fixture(scope="session")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """257 tokens, 64 positions."""
    folder = tmp_path_factory.mktemp("bytes")
    return _model_folder(folder, "gpt2:new?layers=1&heads=2&width=32&positions=64", 5)


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy task's own model with other weights: 6 tokens, 16 positions."""
    from rlvr.builtin.toy import starter

    return _model_folder(tmp_path_factory.mktemp("toy"), starter(), 11)


@pytest.fixture
def double() -> Iterator[Callable[..., Any]]:
    """Starts doubles of servers: `double("vllm", folder, most_k=5)`; they end after the test."""
    module, running = _doubles(), []

    def start(kind: str, folder: Path, **settings: Any) -> Any:
        running.append(module.Double(kind=kind, folder=folder, **settings).start())
        return running[-1]

    yield start
    for one in running:
        one.stop()
