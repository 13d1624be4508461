"""Checks of roots and images, for `rlvr doctor`: both are optional."""

from __future__ import annotations

from rlvr import CheckResult, PrerequisiteError
from rlvr_cvdp.images import recipe
from rlvr_cvdp.images.daemon import docker_client, start_command
from rlvr_cvdp.images.image import find_image
from rlvr_cvdp.images.probe import toolchain_of_root
from rlvr_cvdp.images.rootfs import build_command, built_rootfs


def rootfs() -> CheckResult:
    """The root for the bubblewrap sandbox was built."""
    root = built_rootfs()
    if root is None:
        wanted = recipe.rootfs_dir()
        return CheckResult(ok=False, found=f"none at {wanted}", fix=build_command(wanted))
    return CheckResult(
        ok=True, found=f"{root}: iverilog {toolchain_of_root(root).versions['iverilog']}"
    )


def docker() -> CheckResult:
    """A Docker daemon answers and has the image."""
    tag = recipe.image_tag()
    try:
        with docker_client() as client:
            version = client.version()["Version"]
            found = find_image(client, tag)
    except PrerequisiteError as error:
        words = str(error).splitlines()
        return CheckResult(ok=False, found=words[1].strip(), fix=start_command())
    if found is None:
        return CheckResult(
            ok=False, found=f"Docker {version} without {tag}", fix="rlvr cvdp build-image"
        )
    return CheckResult(ok=True, found=f"Docker {version}, {tag}")
