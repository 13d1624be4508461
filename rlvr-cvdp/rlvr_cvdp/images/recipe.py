"""The recipe of our toolchain: which packages, which pins, and the hash that names the result."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from rlvr_cvdp.toolchain.cocotb_stacks import PINS, cache_dir
from rlvr_cvdp.toolchain.toolchain import digest_of

SUITE = "trixie"
"""Debian 13: iverilog 12 accepts SystemVerilog that Debian 12's iverilog 11 rejects."""
PACKAGES = ("iverilog", "verilator", "yosys", "python3", "python3-venv")
LIBPYTHON: Mapping[str, str] = {"bookworm": "libpython3.11", "trixie": "libpython3.13"}
EXTRAS: Mapping[int, tuple[str, ...]] = {1: (), 2: ("coverage==7.13.4",)}
"""What the official image holds beside the pins of the stacks."""
SOURCE_ONLY = ("cocotb-bus==0.2.1",)
"""Pure Python that its authors published without a wheel."""
BUILD_TOOLS = ("setuptools==80.9.0", "wheel==0.45.1")
"""What makes a wheel of the above."""
FOLDER = "/opt/cvdp"
"""Where stacks and manifest lie inside."""
MANIFEST = f"{FOLDER}/manifest.json"
PATH = f"{FOLDER}/stack-2/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER, UID = "cvdp", 1000
"""The unprivileged user of an image."""
LABEL = "rlvr.cvdp.recipe"


def suite_packages(suite: str) -> tuple[str, ...]:
    """The Debian packages of a root; the simulator embeds Python's shared library."""
    return (*PACKAGES, LIBPYTHON.get(suite, "libpython3-dev"))


def pins() -> dict[int, tuple[str, ...]]:
    """Python packages of each stack."""
    return {generation: (*PINS[generation], *EXTRAS[generation]) for generation in sorted(PINS)}


def furnish_source() -> str:
    """The script that makes stacks, user and manifest inside; standard library only."""
    return (files("rlvr_cvdp.images") / "furnish.py").read_text("utf-8")


def order(recipe: str, suite: str) -> dict[str, object]:
    """What the script is told to make."""
    return {
        "recipe": recipe,
        "suite": suite,
        "pins": {str(generation): list(names) for generation, names in pins().items()},
        "wheels": f"{FOLDER}/wheels",
        "folder": FOLDER,
        "user": USER,
        "uid": UID,
    }


def recipe_hash(suite: str, base: str = "") -> str:
    """sha256 over everything that decides what is built; `base` is the image built upon."""
    facts = {
        "suite": "" if base else suite,
        "base": base,
        "packages": PACKAGES if base else suite_packages(suite),
        "pins": {str(generation): names for generation, names in pins().items()},
        "built": [*SOURCE_ONLY, *BUILD_TOOLS],
        "furnish": furnish_source(),
    }
    return digest_of(facts)


def rootfs_dir(suite: str = SUITE) -> Path:
    """Where `rlvr cvdp build-rootfs` puts a root unless told otherwise."""
    return cache_dir() / f"rootfs-{suite}-{recipe_hash(suite)[:12]}"


def image_tag(base: str = "") -> str:
    """The tag that `rlvr cvdp build-image` gives unless told otherwise."""
    return f"rlvr/cvdp-sim:{recipe_hash(SUITE, base)[:12]}"
