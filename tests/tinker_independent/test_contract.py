"""Our backend holds its contract on a server that somebody else wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from rlvr import Backend, BuildContext
from rlvr.config.core import TrainOptions
from rlvr.testing import BackendContract

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # this server closes connections that the SDK still holds
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class TestIndependentServer(BackendContract):
    """
    The promises of every backend, but for what this server lacks.

    It computes at temperature 1, and its sampling clients follow the live weights (its own bug,
    ../shared/design/peers.md section 4, pitfall 6), so old handles are refused: tinker.snapshots.
    """

    temperatures: ClassVar[tuple[float, ...]] = (1.0,)
    tells_gradient: ClassVar[bool] = False

    @pytest.fixture(autouse=True)
    def _server(self, independent: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in independent.items():
            monkeypatch.setenv(name, value)

    def make_backend(self) -> Backend:
        from rlvr_tinker.backend import TinkerBackend
        from rlvr_tinker.config import TinkerConfig

        config = TinkerConfig(rank=4, timeout_s=240.0, context_length=2048, snapshots=False)
        context = BuildContext(model="tinker:", seed=3, train=TrainOptions(lr=1e-2))
        return TinkerBackend(config, context)

    def prompts(self, policy: Any) -> list[Sequence[int]]:
        return [list(range(5, 5 + count)) for count in (2, 5, 9)]
