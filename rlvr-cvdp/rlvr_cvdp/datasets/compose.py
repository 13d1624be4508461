"""Reads the parts of a harness's compose and env files that the official runner uses."""

from __future__ import annotations

import functools
import posixpath
import re
import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from rlvr_cvdp.datasets.harness import has_plain_build, runs_cocotb, uses_tool
from rlvr_cvdp.paths import tree_path
from rlvr_cvdp.problem import Service

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPEN_IMAGES = re.compile(
    r"(__OSS_(SIM|PNR)_IMAGE__"
    r"|(docker\.io/)?(hdlc/(sim|impl)|nvidia/cvdp-sim)"
    r"|(ghcr\.io/)?hdl/(sim/osvb|impl/pnr))"
    r"(:[\w.-]+)?(@sha256:[0-9a-f]{64})?",
    re.IGNORECASE | re.ASCII,
)
_OTHER_FILES = ("extends", "volumes_from", "configs", "secrets")


class HarnessError(ValueError):
    """The harness cannot be run here; the text says why."""

    kind = "harness"


def parse_services(harness: Mapping[str, str]) -> tuple[Service, ...]:
    """
    The services of `docker-compose.yml`, in order.

    Raises:
        HarnessError: No usable compose file, no image or one that is not an open-source
            simulator, a missing env file, Dockerfile or command, a service that depends on one
            that is not there, a mount of what is not here.
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
    if compose.get("include"):
        raise HarnessError("docker-compose.yml includes other compose files, which are not read")
    for name, entry in services.items():
        if not isinstance(entry, dict):
            raise HarnessError(f"service {name} of docker-compose.yml is empty")
        for other in map(str, _listed(entry.get("depends_on"))):
            if other not in map(str, services):
                raise HarnessError(f"service {name} depends on {other}, which is not there")
    return tuple(_service(str(name), entry, harness) for name, entry in services.items())


@functools.lru_cache(maxsize=64)
def _load(text: str) -> Any:
    """The YAML document; kept, since many problems share one and YAML is slow to read."""
    return yaml.load(text, Loader=_LOADER)


def _service(name: str, entry: Mapping[str, Any], harness: Mapping[str, str]) -> Service:
    _check_place(name, entry, harness)
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
        environment=environment,
        runs_cocotb=runs_cocotb(argv, harness),
        has_plain_build=has_plain_build(argv, harness),
        tool=uses_tool(argv, harness),
    )


def _images(name: str, entry: Mapping[str, Any], harness: Mapping[str, str]) -> list[str]:
    """The images that a service runs in or is built from; stages of its own are none."""
    build = entry.get("build")
    if not build:
        if not entry.get("image"):
            raise HarnessError(f"service {name} has neither an image nor a build")
        return [str(entry["image"])]
    place = build if isinstance(build, dict) else {"context": build}
    path = f"{place.get('context') or '.'}/{place.get('dockerfile') or 'Dockerfile'}"
    inline = place.get("dockerfile_inline")
    text = str(inline) if inline else harness.get(tree_path(path) or "")
    if text is None:
        raise HarnessError(f"service {name} is built from {path}, which is not there")
    stages = re.findall(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", text, re.I | re.M)
    if not stages:
        raise HarnessError(f"service {name} is built from {path}, which names no image")
    own: set[str] = set()
    images = []
    for image, stage in stages:
        if image.lower() not in own:
            images.append(image)
        own.add(stage.lower())
    return images


def _check_place(name: str, entry: Mapping[str, Any], harness: Mapping[str, str]) -> None:
    """Refuse a service that needs other images, mounts or files than the sandbox has."""
    for key in _OTHER_FILES:
        if entry.get(key):
            raise HarnessError(f"service {name} has {key}, which cannot be followed here")
    for image in _images(name, entry, harness):
        if not _OPEN_IMAGES.fullmatch(image):
            raise HarnessError(f"service {name} needs the image {image}")
    for volume in _listed(entry.get("volumes")):
        source, target = _mount(volume)
        if not _is_there_anyway(source, target):
            what = f"{source} at {target}" if source else target or str(volume)
            raise HarnessError(f"service {name} mounts {what}, which is not there in the sandbox")


def _listed(value: Any) -> list[Any]:
    """The entries of a list, the keys of a mapping, or the only value."""
    return list(value) if isinstance(value, list | dict) else [value] if value else []


def _mount(volume: Any) -> tuple[str, str]:
    """Source and target of a mount, `./src:/src:ro` or a mapping; "" for a missing part."""
    if isinstance(volume, dict):
        return str(volume.get("source") or ""), str(volume.get("target") or "")
    source, colon, rest = str(volume).partition(":")
    return (source, rest.partition(":")[0]) if colon else ("", source)


def _is_there_anyway(source: str, target: str) -> bool:
    """
    Whether the sandbox has the problem's own `source` at `target` without a mount.

    It has the problem's tree at /code, and its `src` at /src too. Nothing else is ever mounted.
    """
    inside = "/" + posixpath.normpath(source)
    place = posixpath.normpath(target)
    if place == "/code" or place.startswith("/code/"):
        return inside == "/" + posixpath.relpath(place, "/code")
    return inside == place and (place == "/src" or place.startswith("/src/"))


def _environment(name: str, entry: Mapping[str, Any], harness: Mapping[str, str]) -> dict[str, str]:
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
