"""What the file checkpointer promises beyond the contract: its seal, and a full disk."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
from pathlib import Path

import pytest

from rlvr import BuildContext, CheckpointError
from rlvr.builtin.file_checkpoints import FileCheckpointer, FileCheckpointOptions
from rlvr.testing.fakes import TinyBackend


def checkpointer(directory: Path) -> FileCheckpointer:
    return FileCheckpointer(FileCheckpointOptions(keep=2), BuildContext(run_dir=directory))


def test_a_changed_state_is_not_resumed_from(tmp_path: Path) -> None:
    """One digit changed in the saved state of a checkpoint found on disk is noticed."""
    asyncio.run(checkpointer(tmp_path).save(3, {"step": 3}, TinyBackend()))
    (found,) = checkpointer(tmp_path).list()
    manifest = found.path / "manifest.json"
    record = json.loads(manifest.read_text())
    record["state"]["step"] = 4
    manifest.write_text(json.dumps(record))

    (found,) = checkpointer(tmp_path).list()
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        asyncio.run(checkpointer(tmp_path).load(found, TinyBackend()))


class FullDisk(TinyBackend):
    """A backend whose disk fills up after the first file."""

    async def save(self, directory: Path) -> None:
        await super().save(directory)
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_keeps_the_old_checkpoint(tmp_path: Path) -> None:
    """The failed one leaves nothing behind; the old one is named and still good."""
    keeper = checkpointer(tmp_path)
    good = asyncio.run(keeper.save(1, {"step": 1}, TinyBackend(seed=4)))

    with pytest.raises(CheckpointError, match=r"No space left(.|\n)*step-000001"):
        asyncio.run(keeper.save(2, {"step": 2}, FullDisk()))

    assert [c.step for c in keeper.list()] == [1]
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step-000001"]
    keeper.verify(good)


def test_what_a_killed_run_left_half_written_goes(tmp_path: Path) -> None:
    """Killed as it wrote or removed: the folder is no checkpoint, and the next save clears it."""
    keeper = checkpointer(tmp_path)
    asyncio.run(keeper.save(1, {"step": 1}, TinyBackend()))
    for name in (".writing-1", ".removing-step-000000"):
        (tmp_path / "checkpoints" / name).mkdir()
        (tmp_path / "checkpoints" / name / "weights").write_text("as large as a model")

    assert [c.step for c in keeper.list()] == [1]
    asyncio.run(keeper.save(2, {"step": 2}, TinyBackend()))
    found = sorted(p.name for p in (tmp_path / "checkpoints").iterdir())
    assert found == ["step-000001", "step-000002"]


def test_a_removal_that_is_cut_off_leaves_no_half_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two files of an old one: what still has its name is whole."""
    keeper = checkpointer(tmp_path)
    for step in (1, 2):
        asyncio.run(keeper.save(step, {"step": step}, TinyBackend()))

    def killed(path: Path) -> None:
        if "step-000001" in path.name:
            next(p for p in (path / "model").rglob("*") if p.is_file()).unlink()
            raise KeyboardInterrupt

    monkeypatch.setattr("rlvr.builtin.file_checkpoints._remove", killed)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(keeper.save(3, {"step": 3}, TinyBackend()))

    assert [c.step for c in keeper.list()] == [2, 3]
    for found in keeper.list():
        keeper.verify(found)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    """`checkpoint.keep=2`: the third save removes the first, also where text sorts otherwise."""
    keeper = checkpointer(tmp_path)
    for step in (999_998, 999_999, 1_000_000):
        asyncio.run(keeper.save(step, {"step": step}, TinyBackend()))

    assert [c.step for c in keeper.list()] == [999_999, 1_000_000]


def weights_of(checkpoint: Path) -> Path:
    return next(path for path in (checkpoint / "model").rglob("*") if path.is_file())


def test_a_damaged_one_is_never_kept_in_place_of_an_intact_one(tmp_path: Path) -> None:
    """Also where its manifest is whole, later ones pass its step, and the process is another."""
    for step in (10, 12):
        asyncio.run(checkpointer(tmp_path).save(step, {"step": step}, TinyBackend(seed=step)))
    weights_of(tmp_path / "checkpoints" / "step-000012").write_bytes(b"cut")

    asyncio.run(checkpointer(tmp_path).save(15, {"step": 15}, TinyBackend(seed=15)))
    assert [c.step for c in checkpointer(tmp_path).list()] == [10, 12, 15]
    asyncio.run(checkpointer(tmp_path).save(20, {"step": 20}, TinyBackend(seed=20)))
    assert [c.step for c in checkpointer(tmp_path).list()] == [15, 20]


def test_a_copy_under_another_step_is_not_trusted(tmp_path: Path) -> None:
    """The run would go on from an older state than it says."""
    keeper = checkpointer(tmp_path)
    good = asyncio.run(keeper.save(4, {"step": 4}, TinyBackend()))
    shutil.copytree(good.path, good.path.with_name("step-000009"))

    keeper.verify(good)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        keeper.verify(keeper.list()[-1])


@pytest.mark.parametrize("change", ["file", "link to nothing"])
def test_what_is_no_folder_of_checkpoints_is_no_empty_one(change: str, tmp_path: Path) -> None:
    """Such as of a disk that is not mounted: a run would begin anew, and lose its record."""
    folder = tmp_path / "checkpoints"
    if change == "file":
        folder.touch()
    else:
        folder.symlink_to("scratch")
    with pytest.raises(CheckpointError, match="checkpoints"):
        checkpointer(tmp_path).list()


def test_what_the_run_passed_by_takes_no_place_of_what_it_writes(tmp_path: Path) -> None:
    """Newer ones that are whole, and that this version's backend could not load."""
    for step in (4, 6, 8):
        asyncio.run(checkpointer(tmp_path).save(step, {"step": step}, TinyBackend(seed=step)))

    keeper = checkpointer(tmp_path)
    asyncio.run(keeper.save(5, {"step": 5}, TinyBackend(seed=5)))
    keeper.verify(next(c for c in keeper.list() if c.step == 5))


def test_a_persons_own_files_among_checkpoints_stay(tmp_path: Path) -> None:
    """Whatever their names are."""
    folder = tmp_path / "checkpoints"
    (folder / "step-2").mkdir(parents=True)
    mine = [folder / name for name in (".my-notes", "step-1", "step-2/analysis.csv")]
    for path in mine:
        path.touch()
    (folder / ".link-x").symlink_to("nothing")
    keeper = checkpointer(tmp_path)
    for step in range(5, 10):
        asyncio.run(keeper.save(step, {"step": step}, TinyBackend(seed=step)))

    assert all(path.exists() for path in mine)
    assert (folder / ".link-x").is_symlink()
    assert [c.step for c in keeper.list() if c.digest] == [8, 9]
