"""Opens the sandbox that the options ask for; the options of subcommands that judge."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr import ConfigError
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.sandbox.base import Sandbox
from rlvr_cvdp.sandbox.bubblewrap import BubblewrapSandbox, can_make_namespaces
from rlvr_cvdp.toolchain.toolchain import host_toolchain
from rlvr_cvdp.toolchain.tools import find_tool, tool_version

_MOST_WARM = 16
_GOOD_IVERILOG = 12
"""11 rejects 3.5 % of the designs that 12 and 13 take."""


def open_sandbox(config: CvdpConfig, *, workers: int = 1, hidden: Sequence[Path] = ()) -> Sandbox:
    """
    The sandbox of `cvdp.sandbox`; as an async context manager it keeps slots warm.

    Args:
        config: Options of the task and the reward.
        workers: Slots that are in use at the same time, of this and all other sandboxes.
        hidden: What no slot may show: the data set, this package.

    Raises:
        PrerequisiteError: What it needs is not there; says what to do.
        ConfigError: An image for a sandbox that runs none.
    """
    warm = min(config.warm if config.warm >= 0 else workers, _MOST_WARM)
    kind = config.sandbox if config.sandbox != "auto" else _best(config)
    if config.image and kind != "docker":
        raise ConfigError(
            f"cvdp.image={config.image} was asked for.",
            f"found: cvdp.sandbox={kind}, which runs no image",
            "leave one of the two out, or give cvdp.sandbox=docker",
        )
    if kind == "docker":
        from rlvr_cvdp.sandbox.docker import open_docker

        return open_docker(config, warm=warm, workers=workers)
    root = _root(config)
    if root is None:
        toolchain = host_toolchain(provision=config.provision)
    else:
        from rlvr_cvdp.images.probe import toolchain_of_root

        toolchain = toolchain_of_root(root)
    return BubblewrapSandbox(
        toolchain, root=root, hidden=hidden, disk_mb=config.disk_mb, warm=warm, workers=workers
    )


def _best(config: CvdpConfig) -> str:
    """Docker where an image is named; bubblewrap where it works; else docker where it seems to."""
    if config.image:
        return "docker"
    if find_tool("bwrap") and can_make_namespaces():
        return "bubblewrap"
    is_there = "DOCKER_HOST" in os.environ or Path("/var/run/docker.sock").exists()
    return "docker" if is_there else "bubblewrap"


def _root(config: CvdpConfig) -> Path | None:
    if config.rootfs == "host":
        return None
    if config.rootfs != "auto":
        return Path(config.rootfs).expanduser().absolute()
    iverilog = find_tool("iverilog")
    version = tool_version(iverilog).partition(".")[0] if iverilog else ""
    if version.isdecimal() and int(version) >= _GOOD_IVERILOG:
        return None
    from rlvr_cvdp.images.rootfs import built_rootfs

    return built_rootfs()


def add_sandbox_options(parser: argparse.ArgumentParser) -> None:
    """The options of a run that decide which toolchain judges: `cvdp.sandbox` and its kin."""
    group = parser.add_argument_group("sandbox, as cvdp.sandbox, cvdp.rootfs and cvdp.image")
    kinds = ("auto", "bubblewrap", "docker")
    group.add_argument("--sandbox", choices=kinds, default="auto", help="default: %(default)s")
    group.add_argument(
        "--rootfs", default="auto", metavar="DIR", help="host, a folder, or auto (%(default)s)"
    )
    group.add_argument("--image", default="", help="default: that of rlvr cvdp build-image")


def sandbox_keywords(options: argparse.Namespace) -> dict[str, Any]:
    """What the options say, as keywords of `CvdpConfig`."""
    return {name: getattr(options, name) for name in ("sandbox", "rootfs", "image")}


def judged_with(sandbox: Sandbox) -> str:
    """The line for stderr: "judged with bubblewrap, rootfs DIR, iverilog 12.0"."""
    toolchain = sandbox.toolchain
    version = toolchain.versions.get("iverilog", "")
    simulator = f"iverilog {version}" if version else "no iverilog"
    return f"judged with {sandbox.name}, {toolchain.name}, {simulator}"
