"""The core's own parts hold the contracts that plugins hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rlvr import (
    Backend,
    BuildContext,
    Callback,
    Checkpointer,
    Curriculum,
    Problem,
    Sampler,
    Teacher,
)
from rlvr.builtin.file_checkpoints import FileCheckpointer, FileCheckpointOptions
from rlvr.builtin.learning_curve import LearningCurve
from rlvr.curriculum import builtin
from rlvr.rollouts.group import GroupSampler
from rlvr.rollouts.references import ReferenceSampler
from rlvr.testing import (
    BackendContract,
    CallbackContract,
    CheckpointerContract,
    CurriculumContract,
    PluginContract,
    SamplerContract,
    TeacherContract,
    TinyBackend,
    TinyTeacher,
)


class TestPlugin(PluginContract):
    module = "rlvr.builtin.plugin"


class TestEpochs(CurriculumContract):
    patience = 4

    def make_curriculum(self) -> Curriculum:
        return builtin.Epochs(None, BuildContext())


class TestByDifficulty(CurriculumContract):
    patience = 24

    def make_curriculum(self) -> Curriculum:
        return builtin.ByDifficulty(builtin.DifficultyOptions(ramp_steps=20), BuildContext())


class TestByPassRate(CurriculumContract):
    patience = 24

    def make_curriculum(self) -> Curriculum:
        return builtin.ByPassRate(builtin.PassRateOptions(), BuildContext())


class TestByStrength(CurriculumContract):
    @pytest.fixture(autouse=True)
    def audit(self, tmp_path: Path) -> None:
        """An audit of half of the problems; one of them has no strength."""
        self._file = tmp_path / "audit.json"
        entries = {p.id: {"strength": i / 5} for i, p in enumerate(self._audited())}
        entries[next(iter(entries))] = {"strength": None}
        self._file.write_text(json.dumps({"version": 1, "problems": entries}))

    def _audited(self) -> Sequence[Problem]:
        return self.problems()[:6]

    def make_curriculum(self) -> Curriculum:
        return builtin.ByStrength(builtin.StrengthOptions(audit=str(self._file)), BuildContext())


class TestGroupSampler(SamplerContract):
    def make_sampler(self) -> Sampler:
        return GroupSampler()


class TestReferenceSampler(SamplerContract):
    def make_sampler(self) -> Sampler:
        return ReferenceSampler(None, BuildContext())


class TestFileCheckpointer(CheckpointerContract):
    def make_checkpointer(self, directory: Path) -> Checkpointer:
        return FileCheckpointer(FileCheckpointOptions(), BuildContext(run_dir=directory))


class TestLearningCurve(CallbackContract):
    def make_callback(self, directory: Path) -> Callback:
        return LearningCurve(None, BuildContext(run_dir=directory))


class TestTinyTeacher(TeacherContract):
    def make_teacher(self) -> Teacher:
        return TinyTeacher()


class TestTinyBackend(BackendContract):
    def make_backend(self) -> Backend:
        return TinyBackend()
