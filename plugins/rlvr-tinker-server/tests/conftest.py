"""What the tests of the server share: one thread, a tiny base model, a server in a process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from sdk_leftovers import connections_of_the_sdk, pytest_itemcollected, pytest_sessionfinish
from server_process import Running, started

from rlvr_tinker_server.nets.adapters import AdaptedNet, Shape
from rlvr_tinker_server.nets.model import Model
from rlvr_tinker_server.wire import Row
from rlvr_torch.models.gpt2 import GPT2, GPT2Config

__all__ = ["connections_of_the_sdk", "pytest_itemcollected", "pytest_sessionfinish"]

VOCAB, POSITIONS = 40, 48


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def gpt2() -> GPT2:
    """Two layers, width 16, every weight away from its trivial start value."""
    config = GPT2Config(vocab_size=VOCAB, n_positions=POSITIONS, n_embd=16, n_layer=2, n_head=2)
    model = GPT2.new(config, seed=1)
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for value in model.parameters():
            value += 0.2 * torch.randn(value.shape, generator=random)
    return model


@pytest.fixture
def net(gpt2: GPT2) -> AdaptedNet:
    """The tiny model with room for adapters."""
    return AdaptedNet(gpt2)


@pytest.fixture
def make_model(net: AdaptedNet) -> Callable[..., Model]:
    """A model in training whose adapter changes something already."""

    def make(seed: int = 0, rank: int = 3, **shape: bool) -> Model:
        kind = Shape(rank=rank, **shape)
        factors = net.new_factors(kind, seed)
        random = torch.Generator().manual_seed(seed)
        for _, b in factors.values():
            b.normal_(0, 0.02, generator=random)
        return Model(net=net, shape=kind, seed=seed, factors=factors)

    return make


@pytest.fixture
def make_row() -> Callable[..., Row]:
    """A datum of random tokens with the tensors of the named kind of loss."""

    def make(length: int, seed: int = 0, **inputs: Any) -> Row:
        random = np.random.default_rng(seed)
        ids = random.integers(0, VOCAB, length + 1)
        return Row(tokens=ids[:-1], inputs={"target_tokens": ids[1:], **inputs})

    return make


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A real server of a tiny model, in a process of its own; faults may be asked for."""
    model = f"gpt2:new?layers=2&heads=2&width=16&positions={POSITIONS}"
    state = tmp_path_factory.mktemp("tinker-server")
    env = {"OMP_NUM_THREADS": "1"}
    with started(
        model, "--faults", "--threads", "1", "--max-adapters", "64", state=state, env=env
    ) as running:
        before = {name: os.environ.get(name) for name in running.environment}
        os.environ.update(running.environment)
        yield running
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
