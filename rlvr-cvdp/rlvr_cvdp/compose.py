"""Compose files and env files of the harnesses, as far as the official runner uses them."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from rlvr_cvdp.harness import has_plain_build, runs_cocotb, uses_tool
from rlvr_cvdp.paths import tree_path
from rlvr_cvdp.problem import Service

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPEN_IMAGES = re.compile(r"__OSS_\w+__|hdlc?/(sim|impl)|nvidia/cvdp-sim", re.IGNORECASE)


class HarnessError(ValueError):
    """The harness cannot be run here; the text says why."""


def parse_services(harness: Mapping[str, str]) -> tuple[Service, ...]:
    """
    The services of `docker-compose.yml`, in order.

    Raises:
        HarnessError: No usable compose file, an image that is not an open-source simulator, a
            missing env file or command.
    """
    text = harness.get("docker-compose.yml") or harness.get("docker-compose.yaml")
    if not text:
        raise HarnessError("the harness has no docker-compose.yml")
    try:
        compose = _load(text)
    except yaml.YAMLError as error:
        raise HarnessError(
            f"docker-compose.yml is not YAML: {str(error).splitlines()[0]}"
        ) from None
    services = compose.get("services") if isinstance(compose, dict) else None
    if not isinstance(services, dict) or not services:
        raise HarnessError("docker-compose.yml names no services")
    return tuple(_service(str(name), entry, harness) for name, entry in services.items())


@functools.lru_cache(maxsize=64)
def _load(text: str) -> Any:
    """The document; many problems share theirs, and YAML is slow to read."""
    return yaml.load(text, Loader=_LOADER)


def _service(name: str, entry: Any, harness: Mapping[str, str]) -> Service:
    if not isinstance(entry, dict):
        raise HarnessError(f"service {name} of docker-compose.yml is empty")
    for image in _images(entry, harness):
        if not _OPEN_IMAGES.search(image):
            raise HarnessError(f"service {name} needs the image {image}")
    command = [entry.get("entrypoint") or [], entry.get("command") or []]
    argv = [
        word
        for part in command
        for word in (shlex.split(part) if isinstance(part, str) else [str(c) for c in part])
    ]
    if not argv:
        raise HarnessError(f"service {name} has no command")
    argv = [word.replace("$$", "$") for word in argv]
    environment = _environment(name, entry, harness)
    simulator = environment.get("SIM", "icarus") or "icarus"
    if simulator != "icarus":
        raise HarnessError(f"service {name} needs the simulator {simulator}")
    return Service(
        name=name,
        command=tuple(argv),
        working_dir=str(entry.get("working_dir") or "/code/rundir").rstrip("/") or "/code/rundir",
        environment=environment,
        runs_cocotb=runs_cocotb(argv, harness),
        has_plain_build=has_plain_build(argv, harness),
        tool=uses_tool(argv, harness),
    )


def _images(entry: Mapping[str, Any], harness: Mapping[str, str]) -> list[str]:
    """The images that a service runs in or is built from; stages of its own are none."""
    build = entry.get("build")
    if not build:
        return [str(entry["image"])] if entry.get("image") else []
    place = build if isinstance(build, dict) else {"context": build}
    folder = str(place.get("context") or ".")
    dockerfile = str(place.get("dockerfile") or "Dockerfile")
    text = harness.get(tree_path(f"{folder}/{dockerfile}") or "", "")
    stages = re.findall(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", text, re.I | re.M)
    own = {name.lower() for _, name in stages if name}
    return [image for image, _ in stages if image.lower() not in own]


def _environment(name: str, entry: dict[str, Any], harness: Mapping[str, str]) -> dict[str, str]:
    environment: dict[str, str] = {}
    listed = entry.get("env_file") or []
    for item in listed if isinstance(listed, list) else [listed]:
        path = str(item.get("path") if isinstance(item, dict) else item)
        text = harness.get(tree_path(path) or path)
        if text is None:
            raise HarnessError(f"service {name} names the env file {path}, which is not there")
        environment.update(parse_env(text))
    own = entry.get("environment") or {}
    if isinstance(own, list):
        own = dict(str(line).partition("=")[::2] for line in own)
    environment.update({str(k): "" if v is None else str(v) for k, v in own.items()})
    return environment


def parse_env(text: str) -> dict[str, str]:
    """Variables of an env file: blanks around `=`, quotes and comments as compose reads them."""
    environment = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        key, value = key.strip(), value.strip()
        if not equals or key.startswith("#") or not key:
            continue
        quoted = re.match(r"""(["'])(.*?)\1\s*(#.*)?$""", value)
        environment[key] = quoted[2] if quoted else re.split(r"\s+#", value)[0].strip()
    return environment
