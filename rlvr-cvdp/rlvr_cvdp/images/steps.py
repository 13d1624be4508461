"""Steps of building a root: run one with mounts of its own, clear up, say what went wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from rlvr import PrerequisiteError
from rlvr_cvdp.images.recipe import PATH

NEEDED_MB = 1500
"""What debootstrap needs while it unpacks; less than half of it stays."""
_FULL_MB = 100


def run_step(root: Path, command: list[str]) -> str:
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
    environment |= {"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": "/tmp"}
    done = subprocess.run(
        [*alone, *command],
        capture_output=True,
        text=True,
        errors="replace",
        env=environment,
        check=False,
    )
    if done.returncode:
        raise failed(root, _reason(done.stdout + done.stderr, root))
    return done.stdout


def remove_tree(root: Path) -> None:
    """
    Remove a root, whole or in part; nothing where there is none.

    Raises:
        PrerequisiteError: Something is mounted below it.
    """
    mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    inside = [w for w in (line.split()[4] for line in mounts) if w.startswith(f"{root}/")]
    if inside:
        raise failed(root, f"{inside[0]} is mounted; umount it first")
    if root.exists():
        shutil.rmtree(root)


def failed(root: Path, found: str) -> PrerequisiteError:
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
