"""One owner of a run directory: a lock that ends with its process, whatever else is there."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr import ConfigError, ExitCode
from rlvr.records import lock as locks
from rlvr.records.lock import LOCK
from rlvr.records.owner import RunOwnedError, apart_from_runs, owned, writing_to
from rlvr.records.run_directory import RECORDS

pytestmark = pytest.mark.integration

OWN = """
import os, sys, time
from pathlib import Path
from rlvr import RlvrError
from rlvr.records.owner import owned
where, go = Path(sys.argv[1]), Path(sys.argv[2])
while not go.exists():
    time.sleep(0.001)
try:
    with owned(where, makes=True):
        with (where / "winners").open("a") as file:
            file.write(f"{os.getpid()}\\n")
        exec(sys.argv[3])
        print("owned", flush=True)
        sys.stdin.read()
except RlvrError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def start(where: Path, *, go: Path | None = None, then: str = "") -> subprocess.Popen[str]:
    """A process that owns `where` until its standard input ends."""
    words = [sys.executable, "-c", OWN, str(where), str(go or where.parent), then]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@contextlib.contextmanager
def another(where: Path, then: str = "") -> Iterator[subprocess.Popen[str]]:
    """Another process, which owns `where` while the block runs."""
    process = start(where, then=then)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "owned\n", process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()


def killed(where: Path, then: str = "") -> int:
    """The id of a process that owned `where` and was killed."""
    with another(where, then) as process:
        return process.pid


@pytest.mark.thorough
def test_of_many_that_begin_at_once_one_owns_the_directory(tmp_path: Path) -> None:
    """Whoever comes second is told who is first, and has written nothing (exit 2)."""
    for attempt in range(2):
        where, go = tmp_path / f"run{attempt}", tmp_path / f"go{attempt}"
        with contextlib.ExitStack() as ended:
            all_of_them = [ended.enter_context(start(where, go=go)) for _ in range(6)]
            go.touch()
            while len(still := [p for p in all_of_them if p.poll() is None]) > 1:
                time.sleep(0.01)
            (winner,) = still
            said = [p.communicate()[1] for p in all_of_them if p is not winner]
            assert winner.stdout is not None
            assert winner.stdout.readline() == "owned\n"
            assert (where / "winners").read_text() == f"{winner.pid}\n"
            winner.communicate()

        assert winner.returncode == 0
        assert {p.returncode for p in all_of_them if p is not winner} == {ExitCode.USAGE}
        assert all(f"process {winner.pid} on" in text for text in said), said


def test_the_second_owner_names_the_first(tmp_path: Path) -> None:
    """Host, process and command of the owner stand in the refusal."""
    with another(tmp_path / "r") as first:
        with pytest.raises(RunOwnedError, match=rf"process {first.pid} on {os.uname().nodename}"):
            owned(tmp_path / "r").__enter__()
        record = json.loads((tmp_path / "r" / LOCK).read_text())

    assert record["pid"] == first.pid
    assert record["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert RunOwnedError.exit_code == ExitCode.USAGE


def test_one_process_owns_a_directory_once(tmp_path: Path) -> None:
    """By another path to it, too; and again after it has let go of it."""
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with owned(tmp_path / "run"), pytest.raises(RunOwnedError, match=str(os.getpid())):
        owned(tmp_path / "link").__enter__()
    (tmp_path / "run").mkdir()
    with owned(tmp_path / "link") as left:
        assert left == {}


def test_a_dead_owner_is_replaced_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed process blocks nobody: who it was is said."""
    pid = killed(tmp_path / "r")
    with owned(tmp_path / "r") as left:
        pass

    assert left["pid"] == pid
    assert f"process {pid} on" in (said := capsys.readouterr().err)
    assert "takes it over" in said


def test_a_process_id_that_is_used_again_blocks_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text of a free lock decides nothing: not with a living process's id, nor a host's."""
    for record in (
        {"pid": 1, "host": os.uname().nodename},
        {"pid": os.getppid(), "host": os.uname().nodename, "boot": "of an earlier start"},
        {"pid": 1, "host": "elsewhere"},
    ):
        (tmp_path / LOCK).write_text(json.dumps(record))
        with owned(tmp_path) as left:
            assert left["pid"] == record["pid"]
        (tmp_path).mkdir(exist_ok=True)

    assert "the machine was restarted" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"\n", b"{", b"\xff\xfe", b"[]", b"null", b'{"pid": "1"}', b'{"pid": true}'),
        *(b'{"pid": 3, "host": "\\u001b[2J"}', b'{"pid": 1e999, "host": "h"}'),
        *(b"[" * 9999, b"9" * 5000),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_whatever_a_free_lock_file_holds_is_taken_over(
    tmp_path: Path, text: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """A crash between making the file and writing it, a damaged one, another program's."""
    (tmp_path / "run.json").touch()
    (tmp_path / LOCK).write_bytes(text)
    with owned(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()

    assert (tmp_path / LOCK).read_bytes() == b""
    assert "\x1b" not in capsys.readouterr().err


def test_an_owner_that_has_not_said_who_it_is_still_owns(tmp_path: Path) -> None:
    """Between the lock and its text nobody else gets in."""
    with another(tmp_path / "r", "os.truncate(where / 'owner.lock', 0)"):  # noqa: SIM117
        with pytest.raises(RunOwnedError, match="does not name"):
            owned(tmp_path / "r").__enter__()


def test_a_lock_file_that_is_removed_lets_nobody_in(tmp_path: Path) -> None:
    """A person who removes it, because it looks stale, gets no second owner."""
    with another(tmp_path / "r"):
        (tmp_path / "r" / LOCK).unlink()
        with pytest.raises(RunOwnedError):
            owned(tmp_path / "r").__enter__()


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe", "loop"])
def test_what_is_no_file_in_the_place_of_the_lock_is_named(tmp_path: Path, kind: str) -> None:
    """It is neither followed nor waited for nor written."""
    (victim := tmp_path / "victim").write_text("precious")
    run = tmp_path / "r"
    run.mkdir()
    place = run / LOCK
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to({"link": victim, "loop": place}.get(kind, tmp_path / "nothing"))

    with pytest.raises(ConfigError, match="cannot be written") as refused:
        owned(run).__enter__()

    assert LOCK in str(refused.value)
    assert victim.read_text() == "precious"
    assert not (tmp_path / "nothing").exists()


MULTIPROCESSING = (
    "import multiprocessing; "
    "multiprocessing.get_context({!r}).Process(target=time.sleep, args=(60,)).start()"
)
CHILDREN = {
    "fork": "[os._exit(0) if time.sleep(60) else 0 for _ in '1' if os.fork() == 0]",
    "program": "import subprocess; subprocess.Popen(['sleep', '60'], close_fds=False)",
    "spawned": "os.posix_spawnp('sleep', ['sleep', '60'], os.environ)",
    "worker": MULTIPROCESSING.format("fork"),
    "grandchild": "import subprocess; subprocess.Popen('sleep 60 & sleep 60', shell=True)",
    "server": MULTIPROCESSING.format("forkserver"),
    # a started program has the lock until the kernel closes it, after its parent may go on
    "starting": "import subprocess; from rlvr.records.lock import _held; "
    "subprocess.Popen(['sleep', '0.5'], pass_fds=tuple(_held))",
}


@pytest.mark.parametrize("kind", CHILDREN)
def test_a_child_that_outlives_its_parent_does_not_own(tmp_path: Path, kind: str) -> None:
    """Forked or started, a child never keeps a dead owner's directory locked."""
    where = tmp_path / "r"
    process = subprocess.Popen(
        [sys.executable, "-c", OWN, str(where), str(tmp_path), CHILDREN[kind]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"owned\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with owned(where) as left:
            assert left["pid"] == process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.stdin.close()
        process.stdout.close()


def test_a_forked_child_that_leaves_the_block_releases_nothing(tmp_path: Path) -> None:
    """The parent's lock, and its name in it, stay."""
    with owned(tmp_path / "r", makes=True):
        before = (tmp_path / "r" / LOCK).read_text()
        with contextlib.suppress(SystemExit), contextlib.ExitStack() as parent:
            parent.enter_context(owned(tmp_path / "other", makes=True))
            child = os.fork()
            if child == 0:
                parent.close()
                os._exit(0)
            os.waitpid(child, 0)
            assert (tmp_path / "other" / LOCK).read_text()
            with pytest.raises(RunOwnedError):
                owned(tmp_path / "other").__enter__()
        assert (tmp_path / "r" / LOCK).read_text() == before


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A run directory on a file system without locks."""
    (run := tmp_path / "without locks").mkdir()
    (run / "run.json").touch()
    monkeypatch.setattr(locks.tempfile, "gettempdir", lambda: str(tmp_path))
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        if str(run) in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOLCK, "No locks available")
        real(descriptor, operation)

    monkeypatch.setattr(locks.fcntl, "flock", flock)
    return run


def test_without_locks_two_of_one_machine_are_told_apart(no_locks: Path) -> None:
    """A lock of the machine stands in for that of the file system."""
    with owned(no_locks), pytest.raises(RunOwnedError, match=f"process {os.getpid()}"):
        owned(no_locks).__enter__()
    with owned(no_locks) as left:
        assert left == {}


def test_without_locks_an_owner_elsewhere_is_asked_about(no_locks: Path) -> None:
    """Nobody here can know whether it lives: the person says so by removing the file."""
    (no_locks / LOCK).write_text(json.dumps({"pid": 7, "host": "elsewhere"}))

    with pytest.raises(RunOwnedError, match="process 7 on elsewhere did not release it"):
        owned(no_locks).__enter__()

    (no_locks / LOCK).unlink()
    with owned(no_locks) as left:
        assert left == {}


def test_a_file_system_that_locks_files_alone_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS refuses to lock a folder that is open for reading."""
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).is_dir():
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(descriptor, operation)

    monkeypatch.setattr(locks.fcntl, "flock", flock)
    with owned(tmp_path / "r", makes=True), pytest.raises(RunOwnedError):
        owned(tmp_path / "r").__enter__()


def test_a_directory_where_nothing_was_written_is_removed(tmp_path: Path) -> None:
    """A run that could not begin leaves nothing; what somebody else put there stays."""
    with owned(tmp_path / "deep" / "r", makes=True):
        pass
    assert not (tmp_path / "deep" / "r").exists()

    with owned(tmp_path / "kept", makes=True):
        (tmp_path / "kept" / "notes").touch()
    assert [p.name for p in (tmp_path / "kept").iterdir()] == ["notes"]


def test_a_missing_or_unwritable_directory_is_named(tmp_path: Path) -> None:
    """A person's mistake is one message, not a traceback."""
    with pytest.raises(ConfigError, match="No such file"):
        owned(tmp_path / "nowhere").__enter__()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        owned(tmp_path / "file" / "r", makes=True).__enter__()


def a_run(path: Path) -> Path:
    (path / "trajectories").mkdir(parents=True)
    (path / "run.json").touch()
    return path


def test_results_inside_a_run_directory_need_its_owner(tmp_path: Path) -> None:
    """Of every command that writes a file: in a run directory it owns it, elsewhere it need not."""
    run = a_run(tmp_path / "r")
    with owned(run):
        for inside in (run / "x.jsonl", run / "trajectories" / "x.jsonl"):
            with pytest.raises(RunOwnedError):
                writing_to(inside).__enter__()
        with writing_to(tmp_path / "x.jsonl"), writing_to(None):
            pass
    with writing_to(run / "x.jsonl"), pytest.raises(RunOwnedError):
        owned(run).__enter__()


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_no_result_takes_the_place_of_a_record(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whatever path it is named: absolute, relative, through links, there already or not."""
    run = a_run(tmp_path / "r")
    (tmp_path / "linked").symlink_to(run)
    (tmp_path / "record").symlink_to(run / name)
    monkeypatch.chdir(tmp_path)
    paths = ["r", f"r/{name}", run / name, f"linked/{name}", f"r/trajectories/../{name}", "record"]
    if name == "run.json":
        paths += ["r/trajectories/step-000001.jsonl", "r/checkpoints/step-000009/model"]
    before = sorted(run.rglob("*"))

    for path in paths:
        with pytest.raises(ConfigError, match="only its run writes"):
            apart_from_runs(Path(path)).__enter__()

    assert sorted(run.rglob("*")) in (before, sorted([*before, run / LOCK]))
    with writing_to(run / "mine.json"), pytest.raises(RunOwnedError):
        owned(run).__enter__()


def test_results_do_not_go_into_a_run_that_begins(tmp_path: Path) -> None:
    """Between the lock and the first record a directory is its owner's already."""
    with another(tmp_path / "r"), pytest.raises(RunOwnedError):
        apart_from_runs(tmp_path / "r" / "model").__enter__()


def test_the_copy_of_a_directory_is_no_owners(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its lock speaks of the directory that was copied: nobody has left the copy."""
    (a_run(tmp_path / "r") / "run.json").touch()
    with another(tmp_path / "r") as owner:
        shutil.copytree(tmp_path / "r", tmp_path / "copy")
        with owned(tmp_path / "copy") as left:
            assert (left["pid"], left["why"]) == (owner.pid, "a copy")
            with pytest.raises(RunOwnedError, match=str(owner.pid)):
                owned(tmp_path / "r").__enter__()
    said = capsys.readouterr().err
    assert "is a copy of a directory that process" in said
    assert "was left by" not in said
    (tmp_path / "r").rename(tmp_path / "moved")
    with owned(tmp_path / "moved") as left:
        assert left["why"] == "its lock is free"


def test_devices_are_numbered_anew_after_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same directory is no copy of itself then."""
    there = a_run(tmp_path / "r").stat()
    record = {"pid": 1, "host": os.uname().nodename, "boot": "earlier", "device": there.st_dev + 1}
    (tmp_path / "r" / LOCK).write_text(json.dumps({**record, "inode": there.st_ino}))
    with owned(tmp_path / "r") as left:
        assert left["why"] == "the machine was restarted"


def test_nothing_stays_open(tmp_path: Path) -> None:
    """Refused or released, a lock leaves no descriptor behind."""

    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before: Any = count()
    for _ in range(5):
        with owned(tmp_path / "r", makes=True), pytest.raises(RunOwnedError):
            owned(tmp_path / "r").__enter__()
    assert count() == before


@pytest.mark.parametrize("makes", [True, False])
def test_a_full_disk_leaves_no_lock_file(
    makes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the folder that was made for it."""

    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if not makes:
        (tmp_path / "r").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(ConfigError, match="No space left"), owned(tmp_path / "r", makes=makes):
            pass
    assert not (tmp_path / "r").exists()
    with owned(tmp_path / "r", makes=True):
        pass
