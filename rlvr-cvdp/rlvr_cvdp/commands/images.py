"""`rlvr cvdp build-rootfs` and `rlvr cvdp build-image`."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rlvr_cvdp.commands.arguments import parser_of
from rlvr_cvdp.images import recipe
from rlvr_cvdp.images.daemon import docker_client
from rlvr_cvdp.images.image import build_image
from rlvr_cvdp.images.probe import toolchain_of_image, toolchain_of_root
from rlvr_cvdp.images.rootfs import build_rootfs
from rlvr_cvdp.toolchain.toolchain import Toolchain


def rootfs(argv: list[str]) -> int:
    """Build the root that the bubblewrap sandbox uses as its /usr."""
    parser = parser_of(
        "build-rootfs",
        "Build a Debian root with iverilog, verilator, yosys and both cocotb stacks "
        "(about a minute; needs root, debootstrap and a Debian mirror).",
        *("build-rootfs", "build-rootfs --out /srv/cvdp-root", "build-rootfs --json"),
        has_dataset=False,
    )
    parser.add_argument("--suite", default=recipe.SUITE, help="Debian release (%(default)s)")
    parser.add_argument("--mirror", default="", help="Debian archive; default: that of apt")
    parser.add_argument("--out", type=Path, help="folder; default: in rlvr's cache")
    options = parser.parse_args(argv)
    begun = time.monotonic()
    root, is_new = build_rootfs(suite=options.suite, mirror=options.mirror, out=options.out)
    toolchain = toolchain_of_root(root)
    if options.json:
        print(json.dumps({"folder": str(root), "built": is_new, **_facts(toolchain)}))
    else:
        took = f"built in {time.monotonic() - begun:.0f} s" if is_new else "is there already"
        print(f"{root}: {took}")
        print(f"  {_words(toolchain)}")
    return 0


def image(argv: list[str]) -> int:
    """Build the image that the Docker sandbox runs."""
    parser = parser_of(
        "build-image",
        "Build a Docker image with iverilog, verilator, yosys and both cocotb stacks: "
        "on a base image, or from the root of `rlvr cvdp build-rootfs` (no registry needed).",
        *("build-image", "build-image --base debian:trixie-slim"),
        "build-image --also nvidia/cvdp-sim:v1.0.0",
        has_dataset=False,
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--base", default="", help="Debian or Ubuntu image to build upon")
    source.add_argument("--from-rootfs", type=Path, help="root to import; default: in the cache")
    parser.add_argument("--tag", default="", help=f"name of the image ({recipe.image_tag()})")
    parser.add_argument("--also", action="append", default=[], help="one more name for it")
    parser.add_argument("--network", default="", help="network of the build with --base (host)")
    options = parser.parse_args(argv)
    begun = time.monotonic()
    tag, identity, is_new = build_image(
        base=options.base,
        tag=options.tag,
        also=options.also,
        network=options.network,
        root=options.from_rootfs,
    )
    took = time.monotonic() - begun
    with docker_client() as client:
        toolchain = toolchain_of_image(client, tag)
    if options.json:
        print(json.dumps({"tag": tag, "id": identity, "built": is_new, **_facts(toolchain)}))
    else:
        print(f"{tag}: {f'built in {took:.0f} s' if is_new else 'is there already'} ({identity})")
        print(f"  {_words(toolchain)}")
    return 0


def _facts(toolchain: Toolchain) -> dict[str, object]:
    return {
        "versions": dict(toolchain.versions),
        "stacks": {str(g): dict(s.versions) for g, s in sorted(toolchain.stacks.items())},
        "digest": toolchain.digest,
    }


def _words(toolchain: Toolchain) -> str:
    tools = [f"{name} {number}" for name, number in toolchain.versions.items()]
    return ", ".join([*tools, *(stack.name for _, stack in sorted(toolchain.stacks.items()))])
