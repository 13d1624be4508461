"""Run inside a fresh root, by its own Python: makes the cocotb stacks, a user and the manifest.

Standard library only, and no import of rlvr: this file is copied into the root. Its one argument
is a JSON object with `pins`, `wheels` (folder), `folder`, `user`, `uid`, `recipe` and `suite`; an
empty one asks for a description of what is there already.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time

TOOLS = {"iverilog": "-V", "vvp": "-V", "verilator": "--version", "yosys": "-V"}
UNUSED = (
    *("/usr/share/doc", "/usr/share/man", "/usr/share/info", "/usr/share/locale"),
    *("/usr/share/lintian", "/usr/share/fonts", "/usr/share/javascript", "/var/log"),
    *("/usr/share/sphinx_rtd_theme", "/var/cache", "/var/lib/apt/lists"),
)
EMPTY = ("/code", "/rundir/harness", "/src", "/var/log", "/var/cache/apt/archives/partial")
DESCRIBE = r"""
import json, os, re, sys, sysconfig
from importlib import metadata
site = sysconfig.get_path("purelib")
found = {d.metadata["Name"].lower(): d.version for d in metadata.distributions()}
modules = set()
for name in os.listdir(site):
    below = os.path.join(site, name)
    plain = name[:-3] if name.endswith(".py") else name
    if not plain.isidentifier() or plain == "__pycache__":
        continue
    modules.add(plain)
    if os.path.isdir(below) and not os.path.exists(os.path.join(below, "__init__.py")):
        modules.update(plain + "." + n for n in os.listdir(below) if n.isidentifier())
try:
    import find_libpython
    library = find_libpython.find_libpython() or ""
except ImportError:
    library = ""
python = sys.executable
print(json.dumps({
    "python": python, "site_packages": site, "libpython": library and os.path.realpath(library),
    "versions": {"cocotb": found.get("cocotb", ""), "pytest": found.get("pytest", ""),
                 "Python": "%d.%d.%d" % sys.version_info[:3]},
    "has_pytest": os.path.exists(os.path.join(os.path.dirname(python), "pytest")),
    "modules": sorted(modules), "distributions": found,
}))
"""


def answer_of(*command: str) -> str:
    """What a command prints, "" where it cannot run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def describe_tools() -> dict[str, dict[str, str]]:
    """Real path and version of each installed tool."""
    found = {}
    for name, flag in TOOLS.items():
        path = shutil.which(name)
        if path:
            number = re.search(r"\d+\.\d+(?:\.\d+)?", answer_of(path, flag))
            found[name] = {
                "path": os.path.realpath(path),
                "version": number.group(0) if number else "?",
            }
    return found


def describe_stack(python: str) -> dict[str, object]:
    """What an interpreter offers to harnesses; empty where it is too old to tell."""
    done = subprocess.run([python, "-c", DESCRIBE], capture_output=True, text=True)
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


def make_stack(folder: str, pins: list[str], wheels: str) -> str:
    """A virtual environment with the pins, installed from the folder of wheels; its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = os.path.join(folder, "bin", "python")
    pip = [python, "-I", "-m", "pip", "install", "--quiet", "--no-input", "--no-index"]
    pip += ["--no-cache-dir", "--root-user-action=ignore", "--find-links", wheels]
    subprocess.run([*pip, *pins], check=True, env={"PATH": os.environ["PATH"], "HOME": "/tmp"})
    return python


def tidy() -> None:
    """Take away what a simulation never reads, and what would let a user become another."""
    for path in UNUSED:
        shutil.rmtree(path, ignore_errors=True)
    for path in EMPTY:
        os.makedirs(path, exist_ok=True)
    for start in ("/usr", "/etc", "/opt"):
        for folder, names, leaves in os.walk(start):
            for path in (os.path.join(folder, name) for name in (*names, *leaves)):
                mode = os.lstat(path).st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    continue
                plain = stat.S_IMODE(mode) & ~(stat.S_ISUID | stat.S_ISGID) | 0o444
                plain |= 0o111 if stat.S_ISDIR(mode) else 0
                if plain != stat.S_IMODE(mode):
                    os.chmod(path, plain)


def look() -> dict[str, object]:
    """What a root that somebody else made offers: its tools and the Pythons on PATH."""
    pythons = dict.fromkeys(path for n in ("python3", "python") if (path := shutil.which(n)))
    found = [describe_stack(path) for path in pythons]
    return {"tools": describe_tools(), "pythons": [facts for facts in found if facts]}


def main(order: dict[str, object]) -> None:
    """Do what the order says and write the manifest last; without an order, tell what is here."""
    if not order:
        print(json.dumps(look()))
        return
    folder, wheels = str(order["folder"]), str(order["wheels"])
    stacks = {}
    for generation, pins in dict(order["pins"]).items():  # type: ignore[call-overload]
        stacks[generation] = describe_stack(
            make_stack(f"{folder}/stack-{generation}", list(pins), wheels)
        )
    shutil.rmtree(wheels, ignore_errors=True)
    tidy()
    user, uid = str(order["user"]), str(order["uid"])
    with open("/etc/passwd", "r+") as passwd, open("/etc/group", "a") as group:
        if f":{uid}:" not in passwd.read():
            passwd.write(f"{user}:x:{uid}:{uid}::/tmp:/bin/sh\n")
            group.write(f"{user}:x:{uid}:\n")
    packages = answer_of("dpkg-query", "-W", "-f", "${Package} ${Version}\n").split("\n")
    manifest = {
        "recipe": order["recipe"],
        "suite": order["suite"],
        "tools": describe_tools(),
        "stacks": stacks,
        "packages": dict(line.split(" ", 1) for line in packages if " " in line),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    with open(f"{folder}/manifest.json", "w") as out:
        json.dump(manifest, out, indent=1, sort_keys=True)
    os.remove(__file__)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
