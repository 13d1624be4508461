"""One request and its reply, against a server of this process."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from rlvr_servers.client.http import UnreachableError, exchange


class Echo(BaseHTTPRequestHandler):
    """Gives the body back."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def answer(url: str, body: dict[str, Any]) -> Any:
    """The reply as if the server stood elsewhere, where proxies of the environment count."""
    return asyncio.run(exchange(url, key="", body=body, timeout_s=20, is_local=False)).json()


@pytest.mark.parametrize(
    "around",
    [
        {"NO_PROXY": "localhost,[::1],fe80::/10"},
        {"ALL_PROXY": "socks5h://127.0.0.1:9"},
        {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"},
    ],
)
def test_proxies_are_those_that_other_programs_take(
    url: str, around: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As urllib reads the environment: nothing in it makes a server unreachable by its form."""
    for name, value in around.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setenv(name.lower(), value)
    assert answer(url, {"a": 1}) == {"a": 1}


def test_a_proxy_is_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not there says so."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(UnreachableError):
        answer(url, {"a": 1})


def test_half_characters_arrive_escaped(url: str) -> None:
    """What JSON can hold is sent, whether or not it is text."""
    body = {"text": json.loads('"\\ud83d half"')}
    assert answer(url, body) == body
