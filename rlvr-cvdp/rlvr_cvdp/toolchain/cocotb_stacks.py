"""cocotb stacks: a Python with cocotb and pytest, one for each generation of harnesses."""

from __future__ import annotations

import compileall
import fcntl
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import structlog
from attrs import field, frozen

from rlvr import FrozenMap, PrerequisiteError, VerifierError
from rlvr_cvdp.problem import CvdpProblem

log = structlog.get_logger()


PINS: Mapping[int, tuple[str, ...]] = {
    1: ("cocotb==1.9.2", "pytest==8.3.2", "cocotb-bus==0.2.1", "aes==1.2.0"),
    2: (
        "cocotb==2.0.1",
        "pytest==8.3.2",
        "cocotb-bus==0.3.0",
        "cocotbext-axi==0.1.28",
        "aes==1.2.0",
    ),
}
PROVIDES: Mapping[int, frozenset[str]] = {
    1: frozenset({"cocotb_bus", "aes"}),
    2: frozenset({"cocotb_bus", "cocotbext.axi", "aes", "scapy"}),
}
_COMPILED = (
    *("_pytest", "pytest", "cocotb", "cocotb_tools", "pluggy", "iniconfig", "packaging"),
    *("pygments", "find_libpython"),
)


@frozen(kw_only=True)
class Stack:
    """
    A Python that can run harnesses.

    Attributes:
        python: Its interpreter; its folder holds pytest.
        prefixes: Folders that must be visible in the sandbox, beside /usr.
        libpython: The shared library that the simulator embeds.
        versions: Versions of cocotb, pytest and Python.
    """

    generation: int
    python: Path
    site_packages: Path
    prefixes: tuple[Path, ...]
    libpython: Path
    versions: Mapping[str, str] = field(converter=FrozenMap)

    @property
    def name(self) -> str:
        """`cocotb 2.0.1, pytest 8.3.2, Python 3.11`."""
        return ", ".join(f"{key} {value}" for key, value in self.versions.items())

    def lacks(self, needs: tuple[str, ...]) -> list[str]:
        """Those of the packages that it does not hold."""
        places = {need: self.site_packages / need.replace(".", "/") for need in needs}
        held = [n for n, p in places.items() if p.is_dir() or Path(f"{p}.py").is_file()]
        return [need for need in needs if need not in held]


def cache_dir() -> Path:
    """Where stacks are kept: `$RLVR_CACHE_DIR/cvdp`, by default in ~/.cache/rlvr."""
    base = os.environ.get("RLVR_CACHE_DIR") or Path.home() / ".cache" / "rlvr"
    return Path(base).expanduser().absolute() / "cvdp"


def managed_dir(generation: int) -> Path:
    """The folder of a managed stack; its name changes with the pins and the Python."""
    text = " ".join([*PINS[generation], sys.version, sys.base_prefix])
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return cache_dir() / f"stack-{generation}-{digest}"


@functools.cache
def running_stack() -> Stack | None:
    """The environment that rlvr itself runs in, where it has cocotb 2.0 and pytest."""
    site = Path(sysconfig.get_path("purelib"))
    stack = _stack_at(2, Path(sys.prefix), site, Path(sys.executable))
    if stack is not None:
        compile_once(site)
    return stack


def compile_once(site: Path) -> None:
    """
    Give the packages that harnesses import their bytecode, where an installer left it out.

    Sandboxes cannot write it, so that each launch would compile pytest and cocotb anew. A folder
    that may not be written stays as it is.
    """
    for name in _COMPILED:
        source = site / name / "__init__.py"
        if source.is_file() and not Path(importlib.util.cache_from_source(str(source))).exists():
            compileall.compile_dir(str(site / name), quiet=2)


def managed_stack(generation: int) -> Stack | None:
    """The managed stack, None where `rlvr cvdp setup` has not made it."""
    folder = managed_dir(generation)
    if not (folder / "complete").is_file():
        return None
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return _stack_at(
        generation, folder, folder / "lib" / version / "site-packages", folder / "bin" / "python"
    )


def _stack_at(generation: int, prefix: Path, site: Path, python: Path) -> Stack | None:
    versions = _versions(site)
    wanted = "2.0." if generation == 2 else "1.9."
    if not versions.get("cocotb", "").startswith(wanted) or "pytest" not in versions:
        return None
    library = libpython()
    if library is None or not (python.parent / "pytest").exists():
        return None
    version = ".".join(str(part) for part in sys.version_info[:3])
    folders = {
        Path(os.path.abspath(prefix)),
        Path(sys.base_prefix).resolve(),
        Path(sys.base_prefix),
    }
    return Stack(
        generation=generation,
        python=Path(os.path.abspath(python)),  # not resolved: a venv is known by its links
        site_packages=site,
        prefixes=tuple(sorted(f for f in folders if not f.is_relative_to("/usr"))),
        libpython=library,
        versions={k: versions[k] for k in ("cocotb", "pytest")} | {"Python": version},
    )


def _versions(site: Path) -> dict[str, str]:
    versions = {}
    for entry in site.glob("*.dist-info"):
        name, _, version = entry.name.removesuffix(".dist-info").partition("-")
        versions[name.lower()] = version
    return versions


@functools.cache
def libpython() -> Path | None:
    """The shared library of this Python, None where it was built or installed without one."""
    try:
        import find_libpython
    except ImportError:
        return None
    found = find_libpython.find_libpython()
    return Path(found) if found else None


def stack_for(problem: CvdpProblem, *, provision: bool) -> Stack:
    """
    The stack that a problem's harness was written for.

    Raises:
        PrerequisiteError: It is not there, and may not or cannot be made.
        VerifierError: The harness imports a package that no stack holds.
    """
    missing = why_no_stack(problem)
    if missing:
        raise VerifierError(f"{problem.id} cannot be verified: {missing}")
    running = _running_for(problem)
    if running is not None:
        return running
    stack = managed_stack(problem.generation)
    if stack is None and provision:
        stack = provision_stack(problem.generation)
    if stack is None:
        raise PrerequisiteError(
            f"{problem.id} needs the stack of cocotb generation {problem.generation}.",
            f"found: none at {managed_dir(problem.generation)}",
            "try: rlvr cvdp setup",
        )
    lacking = stack.lacks(problem.needs)
    if lacking:
        raise VerifierError(f"{problem.id} cannot be verified: {stack.name} lacks {lacking}")
    return stack


def why_no_stack(problem: CvdpProblem) -> str:
    """Why no stack can ever run the harness, "" where one can."""
    missing = sorted(set(problem.needs) - PROVIDES[problem.generation])
    if not missing or _running_for(problem) is not None:
        return ""
    return f"its harness imports {', '.join(missing)}, which no stack of this plugin holds"


def _running_for(problem: CvdpProblem) -> Stack | None:
    """The stack that rlvr itself runs in, where it can run the harness."""
    running = running_stack() if problem.generation == 2 else None
    return None if running is None or running.lacks(problem.needs) else running


def provision_stack(generation: int) -> Stack:
    """
    The managed stack of a generation, made now where it is not there; takes about ten seconds.

    Processes that ask at the same time wait for the one that builds. A build that breaks off
    leaves nothing that looks complete.

    Raises:
        PrerequisiteError: pip could not install it, or this Python has no shared library.
    """
    folder = managed_dir(generation)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / f"{folder.name}.lock").open("w")
    except OSError as error:
        raise _failed(generation, f"cannot write {folder.parent}: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stack = managed_stack(generation)
        if stack is None:
            log.info("cvdp_stack_started", generation=generation, folder=str(folder))
            _build(generation, folder)
            stack = managed_stack(generation)
        if stack is None:
            raise _failed(generation, "this Python has no shared libpython")
        return stack


def _build(generation: int, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
    pip += ["--disable-pip-version-check", *PINS[generation]]
    base = getattr(sys, "_base_executable", sys.executable)
    for command in ([base, "-m", "venv", str(folder)], pip):
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
        except subprocess.CalledProcessError as error:
            words = (error.stderr or error.stdout or "").strip().splitlines()
            raise _failed(generation, words[-1] if words else "no output") from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _failed(generation, str(error)) from None
    (folder / "complete").write_text("\n".join(PINS[generation]) + "\n")
    log.info("cvdp_stack_made", generation=generation, folder=str(folder))


def _failed(generation: int, found: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"the stack of cocotb generation {generation} could not be made "
        f"({', '.join(PINS[generation])}).",
        f"found: {found}",
        "try: rlvr cvdp setup   (needs a package index once)",
    )
