"""`--sandbox`, `--rootfs` and `--image` of subcommands that judge, and what judged, in words."""

from __future__ import annotations

import argparse
from typing import Any

from rlvr_cvdp.sandbox.base import Sandbox


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
