"""The core's own parts hold the contracts that plugins hold."""

from __future__ import annotations

from pathlib import Path

from rlvr.builtin.file_checkpointer import FileCheckpointer
from rlvr.builtin.group_sampler import GroupSampler
from rlvr.builtin.reference_sampler import ReferenceSampler
from rlvr.config.core import CheckpointOptions
from rlvr.parts import Backend, BuildContext, Checkpointer, Sampler
from rlvr.testing import (
    BackendContract,
    CheckpointerContract,
    PluginContract,
    SamplerContract,
    TinyBackend,
)


class TestPlugin(PluginContract):
    module = "rlvr.builtin.plugin"


class TestGroupSampler(SamplerContract):
    def make_sampler(self) -> Sampler:
        return GroupSampler()


class TestReferenceSampler(SamplerContract):
    def make_sampler(self) -> Sampler:
        return ReferenceSampler(None, BuildContext())


class TestFileCheckpointer(CheckpointerContract):
    def make_checkpointer(self, directory: Path) -> Checkpointer:
        return FileCheckpointer(CheckpointOptions(), BuildContext(run_dir=directory))


class TestTinyBackend(BackendContract):
    def make_backend(self) -> Backend:
        return TinyBackend()
