"""A `rlvr tinker-server` in a process of its own, on loopback, with a tiny model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from attrs import define

from rlvr import BuildContext, Datum
from rlvr.config.core import TrainOptions

pytest.importorskip("starlette", reason="rlvr-tinker-server is not installed")

from server_process import Running, started

from rlvr_tinker.backend import TinkerBackend
from rlvr_tinker.config import TinkerConfig

POSITIONS = 64
ENV = {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny GPT-2 whose tokens are far from equally likely, as a folder."""
    import torch

    from rlvr_torch.models.bpe import BytePairTokenizer
    from rlvr_torch.models.gpt2 import GPT2, GPT2Config
    from rlvr_torch.models.save import save_net

    config = GPT2Config(vocab_size=257, n_positions=POSITIONS, n_embd=16, n_layer=1, n_head=2)
    model = GPT2.new(config, seed=1)
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for value in model.parameters():
            value += 0.1 * torch.randn(value.shape, generator=random)
    folder = tmp_path_factory.mktemp("tiny")
    save_net(model, BytePairTokenizer.bytes_only(), folder)
    return folder


@pytest.fixture(scope="session")
def running(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for all tests; it does wrong what a test asks it to."""
    state = tmp_path_factory.mktemp("state")
    options = ("--faults", "--threads", "1", "--name", "tiny", "--max-rank", "16")
    with started(f"gpt2:{model_dir}", *options, state=state, env=ENV) as server:
        yield server


@define
class Faults:
    """What the server does wrong; no certificates are read to ask it."""

    url: str

    def set(self, *rules: dict[str, Any]) -> None:
        """Replace the rules; the server counts requests anew."""
        place = f"{self.url}/api/v1/faults"
        httpx.post(place, json={"rules": rules}, verify=False).raise_for_status()

    def requests(self, endpoint: str) -> int:
        """Requests of an endpoint since the rules were set."""
        found = httpx.get(f"{self.url}/api/v1/faults", verify=False).json()
        return int(found["requests"].get(endpoint, 0))


@pytest.fixture
def server(running: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    """The server, with the environment that a client finds it by, and no faults."""
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)
    Faults(running.url).set()
    return running


@pytest.fixture
def faults(server: Running) -> Iterator[Faults]:
    """The server's faults, gone when the test is over."""
    found = Faults(server.url)
    yield found
    found.set()


@pytest.fixture
def make_backend(server: Running) -> Callable[..., TinkerBackend]:
    """Make a backend of the server; keywords are `tinker.*` options, or the context's."""

    def make(model: str = "tinker:", **more: Any) -> TinkerBackend:
        known = {"run_dir", "steps", "sampling", "seed"}
        context = {name: more.pop(name) for name in known & set(more)}
        config = TinkerConfig(**{"rank": 4, "timeout_s": 20.0, **more})
        train = TrainOptions(lr=1e-2)
        return TinkerBackend(config, BuildContext(model=model, train=train, **context))

    return make


@pytest.fixture
def data() -> Sequence[Datum]:
    """Three sequences of different lengths, as a sampler not quite the model would have left."""
    return make_data(seed=5)


def make_data(seed: int) -> Sequence[Datum]:
    random = np.random.default_rng(seed)
    made = []
    for number, (prompt, length) in enumerate([(3, 5), (1, 9), (6, 2)]):
        mask = np.arange(prompt + length) >= prompt
        made.append(
            Datum(
                tokens=random.integers(1, 257, prompt + length),
                mask=mask,
                logprobs=np.where(mask, -5.5 + random.normal(0, 0.3, prompt + length), 0),
                advantages=np.where(mask, random.normal(), 0),
                weights=mask / 16,
                problem_id=f"p{number}",
            )
        )
    return made
