"""Which model is meant where nobody names one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from server_process import Running

from rlvr_tinker.service.model_spec import only_model


def test_the_only_model_of_a_server(server: Running) -> None:
    """By its name, so that the run's configuration says it."""
    assert only_model() == "tinker:tiny"


@pytest.fixture
def saying(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A server that says the first element of the list, whatever is asked."""
    said: list[Any] = [None]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(said[0]).encode()
            self.send_response(200 if self.headers["X-API-Key"] == "tml-mine" else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Silent."""

    with HTTPServer(("127.0.0.1", 0), Handler) as there:
        thread = threading.Thread(target=there.serve_forever)
        thread.start()
        monkeypatch.setenv("TINKER_BASE_URL", f"http://127.0.0.1:{there.server_port}/")
        monkeypatch.setenv("TINKER_API_KEY", "tml-mine")
        yield said
        there.shutdown()
        thread.join()


ONE = {"supported_models": [{"model_name": "one"}]}


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (ONE, "tinker:one"),
        ({"supported_models": []}, ""),
        ({"supported_models": [{"model_name": "one"}, {"model_name": "two"}]}, ""),
        ({"supported_models": [{"model_name": ""}]}, ""),
        ({"supported_models": None}, ""),
        ({}, ""),
        ("no models", ""),
    ],
)
def test_several_or_none_are_not_chosen_from(saying: list[Any], answer: Any, found: str) -> None:
    """What cannot be told is left to the opening of the backend, with its own errors."""
    saying[0] = answer

    assert only_model() == found


def test_without_a_server_or_a_key_nothing_is_asked(
    saying: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a wrong key, or an address where nobody answers, an error here."""
    saying[0] = ONE
    monkeypatch.setenv("TINKER_API_KEY", "tml-other")
    assert only_model() == ""
    monkeypatch.setenv("TINKER_API_KEY", "")
    assert only_model() == ""
    monkeypatch.setenv("TINKER_API_KEY", "tml-mine")
    for url in ("", "http://127.0.0.1:9", "nonsense", "http://"):
        monkeypatch.setenv("TINKER_BASE_URL", url)
        assert only_model() == ""
