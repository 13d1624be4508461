"""
Servers of the Tinker API that the tests of this folder talk to, and the command line beside them.

Each test is skipped, with the reason said aloud, where what it needs is not installed.
`make test-tinker-independent` installs it, into environments of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import rlvr_process
from attrs import frozen
from sdk_leftovers import pytest_sessionfinish

from rlvr.builtin.toy import starter

__all__ = ["pytest_sessionfinish"]

ROOT = Path(__file__).parents[2]
TESTBED = Path(os.environ.get("TINKER_TESTBED", ROOT.parent / "shared/tools/tinker-testbed"))
UP_S = 480.0
"""Seconds that the test bed may take until its engine runs: what it imports is large."""

QUIET = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

os.environ.update(QUIET)  # also for the backends that the tests make in this process


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Starts `rlvr tinker-server` for a model spec; it ends after the tests."""
    for name in ("tinker", "torch", "starlette", "uvicorn", "rlvr_torch"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    from server_process import started

    with ExitStack() as running:

        def serve(spec: str, *options: str) -> Any:
            state = tmp_path_factory.mktemp("state")
            words = ("--threads", "1", *options)
            return running.enter_context(started(spec, *words, state=state, env=QUIET))

        yield serve


@pytest.fixture(scope="session")
def serving() -> Callable[..., AbstractContextManager[Any]]:
    """The same for a test that ends and starts its server itself."""
    for name in ("tinker", "torch", "starlette", "uvicorn", "rlvr_torch"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    from server_process import started

    return lambda spec, state, port=0: started(
        spec, "--threads", "1", state=state, port=port, env=QUIET
    )


@pytest.fixture(scope="session")
def toy_spec() -> str:
    """The toy task's own model: untrained, over the toy's six tokens."""
    return starter()


@pytest.fixture(scope="session")
def toy_server(serve: Callable[..., Any], toy_spec: str) -> Any:
    """`rlvr tinker-server` with the toy's model."""
    return serve(toy_spec)


@pytest.fixture(scope="session")
def run_rlvr() -> Callable[..., str]:
    """Runs the command line beside a server's environment; gives what it said."""

    def run(environment: dict[str, str], *words: str) -> str:
        done = rlvr_process.run_rlvr(*words, env={**os.environ, **environment}, timeout_s=900)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-4000:]
        return said

    return run


@frozen(kw_only=True)
class Bed:
    """The test bed's server: how a client finds it, and its sudden end."""

    environment: Mapping[str, str]
    kill: Callable[[], None]


@pytest.fixture(scope="session")
def testbed() -> Callable[..., AbstractContextManager[Bed]]:
    """Starts the test bed's server, a third party's, at a port; what its state holds is kept."""
    pytest.importorskip("tinker", reason="tinker is not installed")
    if os.environ.get("TINKER_TESTBED_URL"):
        pytest.skip("the server at TINKER_TESTBED_URL is somebody's: it is not killed")
    python = os.environ.get("TINKER_TESTBED_PYTHON", "")
    if not (TESTBED / "tx_launch.py").is_file():
        pytest.skip(f"no test bed at {TESTBED} (TINKER_TESTBED=FOLDER names it)")
    if not python:
        pytest.skip("TINKER_TESTBED_PYTHON is not set (make test-tinker-independent sets it)")
    run = Path(os.environ["TINKER_TESTBED_RUN"])
    run.mkdir(parents=True, exist_ok=True)
    model = run / "tiny-qwen3"
    if not (model / "model.safetensors").is_file():
        subprocess.run(
            [python, str(TESTBED / "mk_tiny.py"), "qwen3", str(model)],
            env={**os.environ, "HEAD_STD": "0.15"},
            check=True,
            capture_output=True,
        )
    return partial(_serving, python, model, run / "jaxcache")


@pytest.fixture(scope="session")
def independent(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, str]]:
    """The environment that reaches a server of the test bed with a tiny model."""
    if url := os.environ.get("TINKER_TESTBED_URL"):  # one that runs already
        yield _environment(url)
        return
    start = request.getfixturevalue("testbed")
    with start(tmp_path_factory.mktemp("independent"), free_port()) as bed:
        yield bed.environment


def _environment(url: str) -> dict[str, str]:
    return {"TINKER_BASE_URL": url, "TINKER_API_KEY": "tml-any", "TINKER_TELEMETRY": "0"}


@contextlib.contextmanager
def _serving(python: str, model: Path, compiled: Path, state: Path, port: int) -> Iterator[Bed]:
    """As the test bed's up.sh starts it; what was compiled is kept for the next time."""
    log = state / f"server-{time.time_ns()}.log"
    settings = {
        "--base-model": str(model),
        "--backend": "jax",
        "--backend-config": '{"max_lora_adapters": 32, "max_lora_rank": 8, '
        '"sample_max_num_sequences": 16, "train_micro_batch_size": 16}',
        "--checkpoints-base": str(state / "checkpoints"),
        "--database-url": f"sqlite:///{state / 't.db'}",
        "--port": str(port),
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            [python, "tx_launch.py", "api", *(w for pair in settings.items() for w in pair)],
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=TESTBED,
            start_new_session=True,  # its engine ends with it
            env={
                **os.environ,
                "JAX_PLATFORMS": "cpu",
                "JAX_COMPILATION_CACHE_DIR": str(compiled),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
                "PYTHONDONTWRITEBYTECODE": "1",  # the folder is somebody else's
            },
        )

    def kill() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    try:
        begun = time.monotonic()
        while "Starting background engine..." not in log.read_text("utf-8", "replace"):
            if process.poll() is not None or time.monotonic() - begun > UP_S:
                pytest.fail(f"the test bed is not up:\n{log.read_text()[-2000:]}")
            time.sleep(0.25)
        yield Bed(environment=_environment(f"http://127.0.0.1:{port}"), kill=kill)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            kill()


def free_port() -> int:
    """A port of loopback that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
