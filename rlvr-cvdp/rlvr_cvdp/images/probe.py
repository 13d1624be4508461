"""Looks into a root or an image: which tools and stacks it holds, at which paths."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr import PrerequisiteError
from rlvr_cvdp.images import recipe
from rlvr_cvdp.images.daemon import daemon_errors
from rlvr_cvdp.images.image import find_image
from rlvr_cvdp.toolchain.cocotb_stacks import Stack, cache_dir
from rlvr_cvdp.toolchain.toolchain import Toolchain, digest_of

if TYPE_CHECKING:
    import docker

_SEEN = "/tmp/rlvr-seen.json"


def toolchain_of_root(root: Path) -> Toolchain:
    """
    The toolchain of a root that `rlvr cvdp build-rootfs` made.

    Raises:
        PrerequisiteError: No such root lies there.
    """
    root = root.expanduser().absolute()
    path = root / recipe.MANIFEST.lstrip("/")
    try:
        manifest = json.loads(path.read_text("utf-8"))
        return _toolchain(f"rootfs {root}", manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        found = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise PrerequisiteError(
            f"the toolchain of the root {root} was asked for.",
            f"found: no manifest {path} that can be read ({found})",
            f"try: sudo rlvr cvdp build-rootfs --out {root}",
        ) from None


def _toolchain(name: str, manifest: Mapping[str, Any], digest: str = "") -> Toolchain:
    """From a manifest. The default digest is over all of the manifest but `created`."""
    stacks, modules = {}, {}
    for key, facts in manifest["stacks"].items():
        generation = int(key)
        stacks[generation] = Stack(
            generation=generation,
            python=Path(facts["python"]),
            site_packages=Path(facts["site_packages"]),
            prefixes=(),
            libpython=Path(facts["libpython"]),
            versions=facts["versions"],
        )
        modules[generation] = frozenset(facts["modules"])
    return Toolchain(
        name=name,
        tools={tool: facts["path"] for tool, facts in manifest["tools"].items()},
        versions={tool: facts["version"] for tool, facts in manifest["tools"].items()},
        stacks=stacks,
        modules=modules,
        digest=digest or digest_of({k: v for k, v in manifest.items() if k != "created"}),
    )


def toolchain_of_image(client: docker.DockerClient, image: str) -> Toolchain:
    """
    The toolchain of an image, ours or anybody's; looked at once for each image id.

    Raises:
        PrerequisiteError: The daemon has no such image, cannot run it, or it lacks Python.
    """
    asked = f"the toolchain of the image {image} was asked for."
    with daemon_errors(asked):
        found = find_image(client, image)
        if found is None:
            raise PrerequisiteError(
                asked,
                "found: the Docker daemon has no such image",
                f"try: rlvr cvdp build-image --tag {image}   (or: docker pull {image})",
            )
        name, identity = f"image {image}", str(found.id)
        kept = cache_dir() / "images" / f"{identity.partition(':')[2]}.json"
        try:
            return _toolchain(name, json.loads(kept.read_text("utf-8")), identity)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            manifest = _look_into(client, identity, asked)
        toolchain = _toolchain(name, manifest, identity)
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(manifest), "utf-8")
    partial.replace(kept)
    return toolchain


def _look_into(client: docker.DockerClient, identity: str, asked: str) -> dict[str, Any]:
    """
    The manifest of an image of ours, or what the script of the recipe finds in another.

    Answers are read from files: what a container prints goes through the daemon's log driver,
    which may drop the end of it or all.
    """
    script = f'exec "$(command -v python3 || echo python)" -c "$LOOK" "{{}}" >{_SEEN}'
    container = client.containers.create(
        identity,
        ["-c", script],
        entrypoint="/bin/sh",
        environment={"LOOK": recipe.furnish_source()},
        network_mode="none",
        use_config_proxy=False,
    )
    try:
        seen = _read(container, recipe.MANIFEST)
        if seen is None:
            container.start()
            status = container.wait(timeout=120)["StatusCode"]
            seen = None if status else _read(container, _SEEN)
        if seen is None:
            words = container.logs().decode(errors="replace").strip()[-300:]
            found = f"found: it does not tell ({words or f'exit status {status}'})"
            do = "it needs /bin/sh, python3 and cocotb; try: rlvr cvdp build-image"
            raise PrerequisiteError(asked, found, do)
    finally:
        container.remove(force=True)
    if "stacks" not in seen:
        seen["stacks"] = _stacks_among(seen.pop("pythons"))
    return seen


def _read(container: Any, path: str) -> dict[str, Any] | None:
    """A JSON object from a container that runs no more, None where there is no such file."""
    from docker.errors import NotFound

    try:
        seen = json.loads(read_file(container, path))
    except (NotFound, ValueError, PrerequisiteError):
        return None
    return seen if isinstance(seen, dict) else None


def read_file(container: Any, path: str) -> bytes:
    """
    A plain file of a container that runs no more.

    Raises:
        PrerequisiteError: It is a folder or a device.
    """
    stream, _ = container.get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
        member = tar.extractfile(tar.getmembers()[0])
        if member is None:
            raise PrerequisiteError(f"{path} in the image is no plain file.")
        return member.read()


def _stacks_among(pythons: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the Pythons on PATH the first of each cocotb generation that can run harnesses."""
    stacks: dict[str, Any] = {}
    for facts in pythons:
        generation = {"1.9": "1", "2.0": "2"}.get(facts["versions"]["cocotb"][:3])
        if generation and facts["has_pytest"] and facts["libpython"]:
            stacks.setdefault(generation, facts)
    return stacks
