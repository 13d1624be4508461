"""The promises of a checkpointer, as tests to inherit."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import resource
import signal
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlvr.errors import CheckpointError
from rlvr.parts import Checkpointer
from rlvr.testing.contract import (
    Contract,
    check_declarations,
    check_part,
    differing,
    not_given,
    opened,
    same,
)
from rlvr.testing.fakes.tiny import TinyBackend
from rlvr.types import Checkpoint

STATE: dict[str, Any] = {"step": 3, "cursor": {"epoch": 1, "order": [2, 0, 1]}, "note": "é"}


class CheckpointerContract(Contract):
    """Tests of a checkpointer's promises. Define `make_checkpointer`."""

    def make_checkpointer(self, directory: Path) -> Checkpointer:
        """A new checkpointer that keeps at least two checkpoints in `directory`."""
        raise not_given(self, "make_checkpointer")

    # --- promises -------------------------------------------------------------------------------

    def test_is_a_checkpointer(self, tmp_path: Path) -> None:
        """It derives from `Checkpointer`, misspells no name, and the right methods are async."""
        part = self.make_checkpointer(tmp_path)
        check_part(part, Checkpointer)
        check_declarations(part)

    def test_load_gives_back_what_was_saved(self, tmp_path: Path) -> None:
        """State and backend come back equal, through a checkpointer made anew."""
        backend = TinyBackend(seed=1)
        saved = self._save(tmp_path, 3, STATE, backend)
        other = TinyBackend(seed=2)
        state = self._load(tmp_path, saved, other)
        same("state that was loaded", state, STATE)
        same("digest of the weights that were loaded", _digest(other), _digest(backend))

    def test_lists_oldest_first(self, tmp_path: Path) -> None:
        """Complete checkpoints stand in the order of their steps, each with its digest."""
        steps = (1, 2)
        saved = [self._save(tmp_path, step, STATE, TinyBackend(seed=step)) for step in steps]
        found = self._list(tmp_path)
        same("steps that list gives", [checkpoint.step for checkpoint in found], [1, 2])
        digests = [checkpoint.digest for checkpoint in found]
        assert all(digests), f"list gives an empty digest: {digests}"
        assert len(set(digests)) == 2, f"list gives one digest for different weights: {digests}"
        pairs = zip(saved, found, strict=True)
        differ = next((differing(a, b) for a, b in pairs if a != b), "")
        assert not differ, f"what save gave and what list gives have different {differ}"

    def test_empty_directory_lists_nothing(self, tmp_path: Path) -> None:
        """Before the first save there is no checkpoint, and no error."""
        same("list of an empty directory", self._list(tmp_path), [])

    def test_verify_accepts_what_is_whole(self, tmp_path: Path) -> None:
        """A checkpoint as it was written passes."""
        saved = self._save(tmp_path, 1, STATE, TinyBackend())
        self._verify(tmp_path, saved)

    def test_one_changed_byte_is_found(self, tmp_path: Path) -> None:
        """In whichever file a byte differs, neither verify nor load accepts the checkpoint."""
        saved = self._save(tmp_path, 1, STATE, TinyBackend())
        for file in _files(saved.path):
            whole = file.read_bytes()
            for place in range(0, len(whole), 1 + len(whole) // 16):
                broken = bytearray(whole)
                broken[place] ^= 1
                file.write_bytes(bytes(broken))
                self._assert_refused(tmp_path, saved, f"byte {place} of {file.name} was changed")
            file.write_bytes(whole)
        self._verify(tmp_path, saved)

    def test_missing_and_truncated_files_are_found(self, tmp_path: Path) -> None:
        """A file that is gone or cut short is found, whichever it is."""
        saved = self._save(tmp_path, 1, STATE, TinyBackend())
        for file in _files(saved.path):
            whole = file.read_bytes()
            file.write_bytes(whole[:-1])
            self._assert_refused(tmp_path, saved, f"{file.name} was cut short")
            file.unlink()
            self._assert_refused(tmp_path, saved, f"{file.name} was removed")
            file.write_bytes(whole)

    @pytest.mark.parametrize("error", [OSError("No space left on device"), KeyboardInterrupt()])
    def test_failing_save_leaves_the_previous_one(
        self, tmp_path: Path, error: BaseException
    ) -> None:
        """A full disk or Ctrl-C while saving: the older checkpoint is listed, whole and loads."""
        before = self._save(tmp_path, 1, STATE, TinyBackend(seed=1))
        with pytest.raises((CheckpointError, type(error))):
            self._save(tmp_path, 2, STATE, _Failing(error))
        self._assert_whole(tmp_path, before)

    def test_kill_while_saving_leaves_the_previous_one(self, tmp_path: Path) -> None:
        """Killed within any of its files, a save leaves the older one; saving then works."""
        if not hasattr(os, "fork") or sys.platform == "darwin":
            pytest.skip("needs a fork that is safe")
        before = self._save(tmp_path, 1, STATE, TinyBackend(seed=1))
        with tempfile.TemporaryDirectory() as temporary:
            for number in itertools.count(1):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads
                    child = os.fork()
                if child == 0:
                    try:
                        os.environ["TMPDIR"] = tempfile.tempdir = (
                            temporary  # a killed one removes none
                        )
                        _die_within_file(number)
                        self._save(tmp_path, 2, STATE, TinyBackend(seed=2))
                    finally:
                        os._exit(0)
                if not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
                    break  # it writes fewer files
                self._assert_whole(tmp_path, before)
        assert number > 1, "the save opened no file to write into"
        self._save(tmp_path, 2, STATE, TinyBackend(seed=2))
        steps = [checkpoint.step for checkpoint in self._list(tmp_path)]
        same("steps that list gives after the next save", steps, [1, 2])

    def test_saving_a_step_again_replaces_it_whole(self, tmp_path: Path) -> None:
        """The same step saved twice leaves one checkpoint, the newer."""
        self._save(tmp_path, 1, STATE, TinyBackend(seed=1))
        newer = TinyBackend(seed=2)
        saved = self._save(tmp_path, 1, STATE, newer)
        steps = [checkpoint.step for checkpoint in self._list(tmp_path)]
        same("steps that list gives where step 1 was saved twice", steps, [1])
        other = TinyBackend(seed=3)
        self._load(tmp_path, saved, other)
        same("digest of the weights of step 1, saved twice", _digest(other), _digest(newer))

    def test_a_pinned_checkpoint_outlives_the_newest(self, tmp_path: Path) -> None:
        """The checkpoint that `pin` names stays while others come and go."""

        async def body() -> list[int]:
            async with opened(self.make_checkpointer(tmp_path)) as part:
                await part.save(1, {}, TinyBackend())
                part.pin(None)  # nothing was pinned
                part.pin(1)
                for step in range(2, 30):
                    await part.save(step, {}, TinyBackend())
                return [checkpoint.step for checkpoint in part.list()]

        steps = asyncio.run(body())
        same("the last step that list gives after that of step 29", steps[-1], 29)
        assert steps[0] == 1, f"step 1 was pinned; it lists {steps}: define `pin`, or remove none"

    # --- helpers --------------------------------------------------------------------------------

    def _do(self, directory: Path, method: str, *args: Any) -> Any:
        """The result of a method of a new checkpointer, awaited if it is a coroutine."""

        async def run() -> Any:
            async with opened(self.make_checkpointer(directory)) as checkpointer:
                found = getattr(checkpointer, method)(*args)
                return await found if inspect.isawaitable(found) else found

        return asyncio.run(run())

    def _save(
        self, directory: Path, step: int, state: dict[str, Any], backend: TinyBackend
    ) -> Checkpoint:
        checkpoint = self._do(directory, "save", step, state, backend)
        assert isinstance(checkpoint, Checkpoint), (
            f"save gave a {type(checkpoint).__name__}, no Checkpoint"
        )
        kind = type(checkpoint.path).__name__
        assert isinstance(checkpoint.path, Path), f"save gave a Checkpoint whose path is a {kind}"
        assert checkpoint.step == step, "save gave the Checkpoint of another step"
        return checkpoint

    def _load(self, directory: Path, which: Checkpoint, backend: TinyBackend) -> dict[str, Any]:
        state = self._do(directory, "load", which, backend)
        assert isinstance(state, dict), f"load gave a {type(state).__name__}, no dict"
        return state

    def _list(self, directory: Path) -> list[Checkpoint]:
        return list(self._do(directory, "list"))

    def _verify(self, directory: Path, which: Checkpoint) -> None:
        self._do(directory, "verify", which)

    def _assert_refused(self, directory: Path, which: Checkpoint, what: str) -> None:
        for act in (self._verify, lambda d, w: self._load(d, w, TinyBackend())):
            try:
                act(directory, which)
            except CheckpointError:
                continue
            pytest.fail(f"{what}, and the checkpoint was accepted")

    def _assert_whole(self, directory: Path, before: Checkpoint) -> None:
        """After a save of step 2 that was cut off; it may have been complete by then."""
        found = {checkpoint.step: checkpoint for checkpoint in self._list(directory)}
        says = f"the save of step 2 was cut off, and list gives the steps {[*found]}"
        assert [*found] in ([1], [1, 2]), f"{says}; step 1 was whole"
        for step, checkpoint in {**found, 1: before}.items():
            backend = TinyBackend(seed=9)
            try:
                self._verify(directory, checkpoint)
                state = self._load(directory, checkpoint, backend)
            except CheckpointError as error:
                do = "write beside it, and rename what is complete"
                raise AssertionError(f"{says}; {step} does not load ({error}): {do}") from error
            assert state == STATE, f"{says}; {step} has another state"
            assert _digest(backend) == _digest(TinyBackend(seed=step)), f"{says}; {step} is another"


class _Failing(TinyBackend):
    """Writes half of its file and then raises the error."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(seed=2)
        self._error = error

    async def save(self, directory: Path) -> None:
        (directory / "tiny.npz").write_bytes(np.arange(100).tobytes())
        raise self._error


def _die_within_file(number: int) -> None:
    """The process ends as by SIGKILL once it has written a byte into the file opened so late."""
    opened = 0

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal opened
        if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            opened += 1
            if opened == number:
                resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))

    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # else Python gets an OSError
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(heard)


def _digest(backend: TinyBackend) -> str:
    return asyncio.run(backend.policy()).digest


def _files(folder: Path) -> list[Path]:
    found = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    files = [file for file in found if file.is_file() and file.stat().st_size]
    assert files, f"the checkpoint {folder} holds no file"
    return files
