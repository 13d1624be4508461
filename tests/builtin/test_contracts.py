"""The core's own parts keep the contracts that plugins are held to."""

from __future__ import annotations

from pathlib import Path

from rlvr.builtin.file_checkpointer import FileCheckpointer
from rlvr.builtin.group_sampler import GroupSampler
from rlvr.config.core import CheckpointOptions
from rlvr.parts import BuildContext, Checkpointer, Sampler
from rlvr.testing import CheckpointerContract, SamplerContract


class TestGroupSampler(SamplerContract):
    """Groups from the policy."""

    def make_sampler(self) -> Sampler:
        return GroupSampler()


class TestFileCheckpointer(CheckpointerContract):
    """Folders under the run directory."""

    def make_checkpointer(self, directory: Path) -> Checkpointer:
        return FileCheckpointer(CheckpointOptions(keep=3), BuildContext(run_dir=directory))
