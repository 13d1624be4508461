"""Model specs."""

from __future__ import annotations

import pytest

from rlvr import ConfigError
from rlvr_servers.client.address import Address


@pytest.mark.parametrize(
    ("spec", "chat", "model"),
    [
        ("server:http://h:8000#m", "http://h:8000/v1/chat/completions", "m"),
        ("server:http://h:8000/#m", "http://h:8000/v1/chat/completions", "m"),
        ("server:https://h/api/v3#org/m:free", "https://h/api/v3/chat/completions", "org/m:free"),
        ("server:https://h/v1/chat/completions#m", "https://h/v1/chat/completions", "m"),
        ("server:https://h/v1?api-version=2#m", "https://h/v1/chat/completions?api-version=2", "m"),
        ("server:http://[::1]:8000", "http://[::1]:8000/v1/chat/completions", ""),
    ],
)
def test_where_requests_go(spec: str, chat: str, model: str) -> None:
    """A URL as people paste it leads to the chat path, with its query, and to the model."""
    address = Address.parse(spec)

    assert address.url("/v1/chat/completions") == chat
    assert address.model == model


@pytest.mark.parametrize(
    "spec", ["server:", "server:localhost:8000#m", "server:ftp://h#m", "server:http://h:x#m"]
)
def test_what_is_no_address_is_refused(spec: str) -> None:
    """With an example of one that is."""
    with pytest.raises(ConfigError, match="server:http://localhost:8000#NAME"):
        Address.parse(spec)


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    """Model specs are written into results."""
    with pytest.raises(ConfigError) as caught:
        Address.parse("server:http://me:hush@h#m")

    assert "RLVR_SERVER_KEY" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_this_machine_is_local() -> None:
    """No proxy of the environment stands between."""
    assert Address.parse("server:http://localhost:1#m").is_local
    assert not Address.parse("server:http://example.org#m").is_local
