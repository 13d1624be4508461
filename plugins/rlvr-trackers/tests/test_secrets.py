"""What trackers tell nobody: secrets of the configuration, of URLs and of the environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tracker_fixture import Lines, raising, run_in, stopped, told

from rlvr import BuildContext
from rlvr_trackers.entries import HIDDEN, public_config
from rlvr_trackers.mlflow import MLflow, MLflowOptions


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("server.api_key", "sk-1", HIDDEN),
        ("hub.token", "hf_1", HIDDEN),
        ("db.password", "x", HIDDEN),
        ("x.secret", ["a", "b"], HIDDEN),
        ("http.headers", {"Authorization": "Bearer 1"}, HIDDEN),
        ("x.api-key", "k", HIDDEN),
        (
            "x.hub",
            {"accessToken": "t", "clientSecret": "s"},
            dict.fromkeys(("accessToken", "clientSecret"), HIDDEN),
        ),
        ("sampler.max_tokens", 64, 64),
        ("server.api_key", "", ""),
        ("sad.keyword", "verilog", "verilog"),
        ("server.api_key_env", "MY_KEY", "MY_KEY"),
        ("mlflow.uri", "https://me:pw@host:5000/a", f"https://{HIDDEN}@host:5000/a"),
        ("mlflow.uri", "https://me:p@ss@host/a", f"https://{HIDDEN}@host/a"),
        ("mlflow.uri", "postgresql://me:p/w@host/a", f"postgresql://{HIDDEN}@host/a"),
        ("mlflow.uri", "https://host:5000/users/@me", "https://host:5000/users/@me"),
        ("mlflow.uri", "http://h/x?pwd=abc&page=2", f"http://h/x?pwd={HIDDEN}&page=2"),
        ("a.folder", "runs/\udcff", "runs/?"),
        ("trackio.url", "http://h/?write_token=abc&a=1", f"http://h/?write_token={HIDDEN}&a=1"),
        ("a.files", ("one", "two"), ["one", "two"]),
        ("a.map", {"token": "t", "size": 3}, {"token": HIDDEN, "size": 3}),
        ("a.path", Path("x/y"), "x/y"),
        ("a.none", None, None),
    ],
)
def test_configuration_has_no_secrets_and_nothing_else_is_hidden(
    tmp_path: Path, name: str, value: Any, shown: Any
) -> None:
    """By the option's last word, and in URLs; numbers and empty texts are no secrets."""
    config = public_config(run_in(tmp_path, **{name: value}))

    assert config[name] == shown
    assert config["run.algo"] == "grpo"
    json.dumps(config)


@pytest.mark.parametrize(
    "text",
    [
        "no answer of http://me:SECRET@host/x?token=SECRET/api/2.0",
        "Max retries exceeded with url: /x?a=1&token=SECRET/api&name=rlvr",
        "in header value: 'Bearer the-longer-SECRET\\n'",
        f"{'x' * 964} http://me:SECRET@host",  # a text is cut at 1000 characters
    ],
)
def test_a_failure_is_told_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Of URLs, whole or cut, and of the environment; what is no secret stays."""
    monkeypatch.setenv("A_TOKEN", "the-longer")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "the-longer-SECRET\n")
    monkeypatch.setenv("B_TOKEN", "folder")
    monkeypatch.setenv("PWD", "/a/folder")

    line = stopped(Lines(log=raising(OSError(f"/a/folder {text}"))), tmp_path, range(1, 2))

    assert "SECRET" not in line["found"]
    assert "/a/folder " in line["found"]


def test_what_a_tracker_prints_has_no_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On either stream; standard error is given back."""
    address, before = "sent to http://me:SECRET@host", sys.stderr

    def start() -> None:
        print(address)
        print(address, file=sys.stderr, flush=True)

    Lines(start=start).run_started(run=run_in(tmp_path))

    assert capsys.readouterr().err.count(f"sent to http://{HIDDEN}@host\n") == 2
    assert sys.stderr is before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_mlflow_tells_no_password_of_a_server_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the whole URI, and then its path alone."""
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    uri = "http://me:SECRET@127.0.0.1:9/x?token=SECRET"

    told(MLflow(MLflowOptions(uri=uri), BuildContext()), tmp_path, range(1, 2))

    said = capsys.readouterr().err
    assert "127.0.0.1" in said
    assert "SECRET" not in said
