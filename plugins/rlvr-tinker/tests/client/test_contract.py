"""The contract kit on what rlvr-tinker offers, against `rlvr tinker-server`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest
from server_process import Running

from rlvr import BuildContext
from rlvr.testing import BackendContract, PluginContract, TeacherContract
from rlvr_tinker.backend import TinkerBackend
from rlvr_tinker.config import TinkerConfig
from rlvr_tinker.teacher import TinkerTeacher

pytestmark = pytest.mark.timeout(600)


class TestPlugin(PluginContract):
    module = "rlvr_tinker.plugin"


class TestBackend(BackendContract):
    """The same promises as on this machine, but for the temperature."""

    temperatures: ClassVar[tuple[float, ...]] = (1.0,)
    exact_nats: ClassVar[float] = 1e-5
    _make: Callable[..., TinkerBackend]

    @pytest.fixture(autouse=True)
    def _server(self, make_backend: Callable[..., TinkerBackend]) -> None:
        """Point the environment at the server."""
        self._make = make_backend

    def make_backend(self) -> TinkerBackend:
        return self._make(seed=3)


class TestTeacher(TeacherContract):
    """A model of the service scores at temperature 1."""

    temperatures: ClassVar[tuple[float, ...]] = (1.0,)

    @pytest.fixture(autouse=True)
    def _server(self, server: Running) -> None:
        """Point the environment at the server."""

    def make_teacher(self) -> TinkerTeacher:
        return TinkerTeacher(TinkerConfig(timeout_s=60.0), BuildContext(model="tinker:tiny"))
