"""Builds a Debian root with simulator, helpers and cocotb stacks, for the bubblewrap sandbox."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from rlvr import PrerequisiteError
from rlvr_cvdp.images import recipe
from rlvr_cvdp.images.mirror import apt_mirror, check_mirror
from rlvr_cvdp.images.wheels import fetch_wheels
from rlvr_cvdp.toolchain.tools import find_tool, install_command

log = structlog.get_logger()

NEEDED_MB = 1500
"""What debootstrap needs while it unpacks; less than half of it stays."""
_FULL_MB = 100


def is_complete(root: Path, suite: str = recipe.SUITE) -> bool:
    """A root of today's recipe lies there, whole."""
    return built_recipe(root) == recipe.recipe_hash(suite)


def built_recipe(root: Path) -> str:
    """The recipe that a root was built by, "" where no root lies there."""
    try:
        manifest = json.loads((root / recipe.MANIFEST.lstrip("/")).read_text("utf-8"))
    except (OSError, ValueError):
        return ""
    return str(manifest.get("recipe", "")) if isinstance(manifest, dict) else ""


def built_rootfs() -> Path | None:
    """The root in rlvr's cache, None where none of today's recipe was built."""
    root = recipe.rootfs_dir()
    return root if is_complete(root) else None


def build_command(root: Path, suite: str = recipe.SUITE) -> str:
    """The command that builds a root, as root and into the folder of the user who asks."""
    if os.geteuid() == 0:
        return f"rlvr cvdp build-rootfs --suite {suite} --out {root}"
    program = Path(sys.executable).parent / "rlvr"
    return f"sudo {program} cvdp build-rootfs --suite {suite} --out {root}"


def build_rootfs(
    *, suite: str = recipe.SUITE, mirror: str = "", out: Path | None = None
) -> tuple[Path, bool]:
    """
    The folder of the root, and whether it was built now; about a minute, needs root.

    It appears under its name when it is whole: a build that breaks off leaves nothing. Builders
    of one folder wait for each other.

    Raises:
        PrerequisiteError: Not root, no debootstrap, no mirror, no room, or a step failed.
        ConfigError: The suite or the mirror does not exist.
    """
    root = (out or recipe.rootfs_dir(suite)).expanduser().absolute()
    if is_complete(root, suite):
        return root, False
    _check_folder(root)
    _check_means(root, suite)
    with _locked(root):
        if is_complete(root, suite):
            return root, False
        _check_room(root)
        mirror = mirror or apt_mirror()
        check_mirror(mirror, suite)
        partial = root.with_name(f"{root.name}.partial")
        _remove_tree(partial)
        try:
            _build(partial, suite, mirror)
            _remove_tree(root)
            partial.rename(root)
        except PrerequisiteError:
            raise
        except OSError as error:
            raise _failed(root, error.strerror or str(error)) from None
        finally:
            _remove_tree(partial)
    return root, True


def _build(root: Path, suite: str, mirror: str) -> None:
    started = time.monotonic()
    log.info("cvdp_rootfs_started", folder=str(root), suite=suite, mirror=mirror)
    include = ",".join(recipe.suite_packages(suite))
    words = ["--variant=minbase", f"--include={include}", suite, str(root), mirror]
    _run_step(root, ["debootstrap", *words])
    log.info("cvdp_rootfs_unpacked", seconds=round(time.monotonic() - started, 1))
    asked = "import sys; print(*sys.version_info[:2])"
    major, minor = _run_step(root, ["chroot", str(root), "python3", "-c", asked]).split()
    wheels = root / recipe.FOLDER.lstrip("/") / "wheels"
    wheels.mkdir(parents=True)
    fetch_wheels(wheels, (int(major), int(minor)))
    script = root / "tmp" / "furnish.py"
    script.write_text(recipe.furnish_source(), "utf-8")
    order = json.dumps(recipe.order(recipe.recipe_hash(suite), suite))
    _run_step(root, ["chroot", str(root), "python3", "/tmp/furnish.py", order])
    log.info("cvdp_rootfs_made", seconds=round(time.monotonic() - started, 1))


def _check_folder(root: Path) -> None:
    if root.exists() and not built_recipe(root) and (not root.is_dir() or any(root.iterdir())):
        raise PrerequisiteError(
            f"a root was to be built in {root}.",
            "found: something else lies there already",
            "give another folder with --out, or remove this one",
        )


def _check_means(root: Path, suite: str) -> None:
    if os.geteuid() != 0:
        root.parent.mkdir(parents=True, exist_ok=True)  # so that it is not root who owns it
        raise PrerequisiteError(
            f"a root for the sandbox was to be built in {root}.",
            "found: you are not root, and unpacking Debian packages needs root",
            f"try: {build_command(root, suite)}",
        )
    if find_tool("debootstrap") is None:
        raise PrerequisiteError(
            "building a root needs debootstrap.",
            "found: no such program on PATH",
            f"try: {install_command('debootstrap')}",
        )


def _check_room(root: Path) -> None:
    free = shutil.disk_usage(root.parent).free // 1_000_000
    if free < NEEDED_MB:
        raise _failed(root, f"{free} MB free, needed: {NEEDED_MB} MB")


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        lock = root.with_name(f"{root.name}.lock").open("w")
    except OSError as error:
        raise _failed(root, f"cannot write {root.parent}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("cvdp_rootfs_awaited", folder=str(root), why="another process builds it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run_step(root: Path, command: list[str]) -> str:
    """
    Run a command with mounts and processes of its own, which end with it; gives what it prints.

    Mounts that debootstrap makes inside the root would else outlive a Ctrl-C, and clearing the
    folder up would reach into them.

    Raises:
        PrerequisiteError: It failed; says why, in its own words.
    """
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        alone = []  # a container that may not mount: then nothing can stay mounted either
    environment = {k: v for k, v in os.environ.items() if k.lower().endswith("_proxy")}
    environment |= {"PATH": recipe.PATH, "LC_ALL": "C.UTF-8", "HOME": "/tmp"}
    done = subprocess.run(
        [*alone, *command],
        capture_output=True,
        text=True,
        errors="replace",
        env=environment,
        check=False,
    )
    if done.returncode:
        raise _failed(root, _reason(done.stdout + done.stderr, root))
    return done.stdout


def _remove_tree(root: Path) -> None:
    """
    Remove a root, whole or in part; nothing where there is none.

    Raises:
        PrerequisiteError: Something is mounted below it.
    """
    mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    inside = [w for w in (line.split()[4] for line in mounts) if w.startswith(f"{root}/")]
    if inside:
        raise _failed(root, f"{inside[0]} is mounted; umount it first")
    if root.exists():
        shutil.rmtree(root)


def _failed(root: Path, found: str) -> PrerequisiteError:
    """The error for a root that could not be built."""
    return PrerequisiteError(
        f"a root for the sandbox could not be built in {root}.",
        f"found: {found}",
        "try: rlvr cvdp build-rootfs --out DIR --mirror URL   (other disk, other mirror)",
    )


def _reason(text: str, root: Path) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("E:", "W: Failure", "ERROR"))]
    words = " / ".join((told or lines)[-3:]) or "it said nothing"
    free = shutil.disk_usage(root.parent).free // 1_000_000
    if "No space left" in text or free < _FULL_MB:
        # debootstrap itself tells a full disk from a failed download no better than this
        return (
            f"no space left on the disk of {root.parent}: {free} MB, needed {NEEDED_MB} ({words})"
        )
    return words
