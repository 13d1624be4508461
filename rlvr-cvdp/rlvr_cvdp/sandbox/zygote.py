"""How a warm worker is started: the simulator itself, with a design that is named later."""

from __future__ import annotations

from collections.abc import Mapping

from rlvr_cvdp.toolchain.cocotb_stacks import Stack
from rlvr_cvdp.toolchain.toolchain import Toolchain

DESIGN = "/proc/self/fd/200"
PLACEHOLDER = "+" + 200 * "_"
"""Both as in inside/rlvr_zygote.py, which is standard library only and imports nothing of ours."""


def zygote_command(toolchain: Toolchain, stack: Stack) -> list[str]:
    """The simulator's command line, as the runner of the stack's cocotb writes it."""
    libs = stack.site_packages / "cocotb" / "libs"
    return ["/rlvr/real/vvp", "-M", str(libs), "-m", "libcocotbvpi_icarus", DESIGN, PLACEHOLDER]


def zygote_environment(stack: Stack) -> Mapping[str, str]:
    """Its variables: those of a service that decide what Python and cocotb load."""
    return {
        "LANG": "C.UTF-8",
        "HOME": "/code/rundir",
        "PATH": f"/rlvr/bin:{stack.python.parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"/rlvr/python:{stack.site_packages}",
        "PYTHONHASHSEED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LIBPYTHON_LOC": str(stack.libpython),
        "PYGPI_PYTHON_BIN": str(stack.python),
        "VIRTUAL_ENV": str(stack.python.parent.parent),
        "TOPLEVEL_LANG": "verilog",
        "RLVR_COCOTB": str(stack.generation),
        "RLVR_ZYGOTE": "1",
    }
