"""Makes a Docker image with our toolchain: from a base image, or by importing a built root."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from rlvr import PrerequisiteError
from rlvr_cvdp.images import recipe
from rlvr_cvdp.images.daemon import daemon_failure, docker_client
from rlvr_cvdp.images.rootfs import build_rootfs
from rlvr_cvdp.images.wheels import fetch_wheels

if TYPE_CHECKING:
    import docker

log = structlog.get_logger()

_APT = f"""\
RUN apt-get update \\
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \\
    {" ".join(recipe.PACKAGES)} \\
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \\
    "libpython$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')" \\
 && rm -rf /var/lib/apt/lists/*
"""


def build_image(
    *,
    base: str = "",
    tag: str = "",
    also: Sequence[str] = (),
    network: str = "",
    root: Path | None = None,
) -> tuple[str, str, bool]:
    """
    Tag and id of the image, and whether it was made now.

    With `base` the packages are installed on that image (Debian or Ubuntu); without, the root of
    `rlvr cvdp build-rootfs` (made where it is missing, or the one at `root`) is imported.

    Raises:
        PrerequisiteError: No daemon, or it failed; no base image; no root and none can be made.
    """
    tag = tag or recipe.image_tag(base=base)
    wanted = recipe.recipe_hash("" if base else recipe.SUITE, base)
    with docker_client(f"the image {tag} was to be built.") as client:
        found = find_image(client, tag)
        is_new = found is None or (found.labels or {}).get(recipe.LABEL) != wanted
        if is_new:
            log.info("cvdp_image_started", tag=tag, base=base or "rootfs")
            if base:
                _from_base(client, base, tag, wanted, network)
            else:
                _from_root(client, build_rootfs(out=root)[0], tag, wanted)
        image = client.images.get(tag)
        for name in also:
            image.tag(*split_tag(name))
        return tag, str(image.id), is_new


def find_image(client: docker.DockerClient, name: str) -> Any:
    """The image of that name, None where the daemon has none."""
    from docker.errors import ImageNotFound

    try:
        return client.images.get(name)
    except ImageNotFound:
        return None


def split_tag(name: str) -> tuple[str, str]:
    """Repository and tag: `a/b:1` is `a/b` and `1`; a port is no tag."""
    repository, colon, tag = name.rpartition(":")
    return (name, "latest") if not colon or "/" in tag else (repository, tag)


def _from_root(client: docker.DockerClient, root: Path, tag: str, recipe_hash: str) -> None:
    repository, version = split_tag(tag)
    changes = [f"ENV PATH={recipe.PATH}", "WORKDIR /code", 'CMD ["/bin/sh"]']
    changes.append(f"LABEL {recipe.LABEL}={recipe_hash}")
    words = ["tar", "-C", str(root), "--numeric-owner", "--ignore-failed-read"]
    words += ["--exclude=./dev/*", "--exclude=./proc/*", "--exclude=./sys/*", "-c", "."]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as tar:
        try:
            told = client.api.import_image_from_data(
                _chunks(tar), repository=repository, tag=version, changes=changes
            )
        finally:
            tar.kill()
    _raise_if_failed(tag, (json.loads(line) for line in told.splitlines() if line.strip()))


def _chunks(tar: subprocess.Popen[bytes]) -> Iterator[bytes]:
    assert tar.stdout is not None
    while chunk := tar.stdout.read(1 << 20):
        yield chunk


def _from_base(
    client: docker.DockerClient, base: str, tag: str, recipe_hash: str, network: str
) -> None:
    """Two builds: the second needs wheels for the Python that the first has installed."""
    interim = f"{split_tag(tag)[0]}:packages-{recipe_hash[:12]}"
    try:
        _build(client, interim, {"Dockerfile": f"FROM {base}\n{_APT}".encode()}, network)
    except PrerequisiteError as error:
        if find_image(client, base) is not None:
            raise
        found = str(error).splitlines()[1].strip().removeprefix("found: ")
        raise PrerequisiteError(
            f"an image was to be built upon {base}.",
            f"found: the daemon has no such image and could not pull it ({found})",
            "try: rlvr cvdp build-image   (from debootstrap: needs no registry)",
        ) from None
    try:
        asked = ["/usr/bin/python3", "-c", "import sys; print(*sys.version_info[:2])"]
        told = client.containers.run(interim, asked, remove=True, network_mode="none")
        major, minor = told.split()
        order = json.dumps(recipe.order(recipe_hash, f"on {base}"))
        lines = [
            f"FROM {interim}",
            f"COPY cvdp {recipe.FOLDER}/",
            f"RUN {json.dumps(['/usr/bin/python3', f'{recipe.FOLDER}/furnish.py', order])}",
            f"ENV PATH={recipe.PATH}",
            "WORKDIR /code",
            f"LABEL {recipe.LABEL}={recipe_hash}",
        ]
        contents = {
            "Dockerfile": "\n".join(lines).encode(),
            "cvdp/furnish.py": recipe.furnish_source().encode(),
        }
        with tempfile.TemporaryDirectory() as folder:
            fetch_wheels(Path(folder), (int(major), int(minor)))
            contents |= {f"cvdp/wheels/{p.name}": p.read_bytes() for p in Path(folder).iterdir()}
        _build(client, tag, contents, "none")
    finally:
        client.images.remove(interim)


def _build(client: docker.DockerClient, tag: str, contents: dict[str, bytes], network: str) -> None:
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name, data in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    context.seek(0)
    options = {"network_mode": network} if network else {}
    told = client.api.build(
        fileobj=context, custom_context=True, tag=tag, rm=True, forcerm=True, decode=True, **options
    )
    _raise_if_failed(tag, told)


def _raise_if_failed(tag: str, told: Iterable[dict[str, Any]]) -> None:
    last = ""
    for message in told:
        last = str(message.get("stream", "")).strip() or last
        if "error" in message:
            words = f"{message['error']} (after: {last[-200:]})" if last else str(message["error"])
            raise daemon_failure(f"the image {tag} was to be built.", words)
