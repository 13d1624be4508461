"""Docker images for the official runner: fixed names, and the same tools with the older cocotb."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator

# Names that harnesses of v1.0.x hard-code, and that of the image the runner makes for agents.
FIXED_NAMES = ("hdlc/sim:osvb", "patch_image")

_STACKS = ("/opt/cvdp/stack-2/bin", "/opt/cvdp/stack-1/bin")


@contextlib.contextmanager
def fixed_names(image: str) -> Iterator[list[str]]:
    """
    While it is open, the image also has the names that cannot be configured; gives those names.

    Where an image of such a name is there already, it stays what it is.
    """
    given: list[str] = []
    try:
        for name in FIXED_NAMES:
            if _docker("image", "inspect", name, check=False) is None:
                _docker("tag", image, name)
                given.append(name)
        yield given
    finally:
        for name in given:
            _docker("rmi", name, check=False)


@contextlib.contextmanager
def image_with_cocotb1(image: str) -> Iterator[str | None]:
    """
    An image that differs only in the cocotb that comes first in its PATH; gone afterwards.

    None where the image was not made by `rlvr cvdp build-image`, which holds both.
    """
    told = _docker("image", "inspect", image, "--format", "{{json .Config.Env}}")
    paths = [value for value in json.loads(told or "null") or () if value.startswith("PATH=")]
    if not paths or _STACKS[0] not in paths[0]:
        yield None
        return
    tag = image.rpartition(":")[0] + ":cocotb-1"
    made = str(_docker("create", image, "true"))
    try:
        _docker("commit", "--change", f"ENV {paths[0].replace(*_STACKS)}", made, tag)
        yield tag
    finally:
        _docker("rm", made, check=False)
        _docker("rmi", tag, check=False)


def why_no_image(image: str) -> str:
    """Why containers of the image cannot be made, "" where they can."""
    if not docker_answers():
        return "no Docker daemon answers: start one, or set DOCKER_HOST"
    if _docker("compose", "version", check=False) is None:
        return "Docker has no compose command, which the official runner calls: install its plugin"
    if _docker("image", "inspect", image, check=False) is None:
        return f"Docker has no image {image}: rlvr cvdp build-image makes it, or give --image"
    return ""


def docker_answers() -> bool:
    """Whether there is a Docker command, and a daemon that answers it."""
    try:
        return _docker("info", check=False) is not None
    except FileNotFoundError:
        return False


def _docker(*words: str, check: bool = True) -> str | None:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if check:
            raise RuntimeError(f"docker {words[0]} failed: {done.stderr.strip()[-300:]}")
        return None
    return done.stdout.strip()
