"""Saved weights on disk: `tinker://RUN/weights/NAME` (with optimiser) and `.../sampler_weights/`.

A checkpoint is a folder that appears at once: it is written beside its place and renamed. What it
holds is named by its sha256, so a damaged file is found when it is read. Numbers come back bit for
bit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import field, frozen
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from rlvr_tinker_server.refusal import Refusal

KINDS = ("weights", "sampler_weights")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=+-]{0,127}")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_-]{0,127}")
_ABOUT = "about.json"
_LONGEST_S = 10**9  # some 30 years


@frozen(kw_only=True)
class About:
    """What is known of a checkpoint without reading its tensors."""

    base: str  # digest of the base model's weights
    base_model: str  # the base model's name, as the client called it
    rank: int  # of the adapter; `train_*` say what it adapts
    train_mlp: bool
    train_attn: bool
    train_unembed: bool
    seed: int  # what its first factors were drawn with
    steps: int  # updates it has seen
    lives_s: float | None = None  # seconds from its creation after which it is removed; None: never
    created: float = 0.0  # seconds since 1970
    metadata: Mapping[str, str] = field(factory=dict)  # the client's own
    files: Mapping[str, str] = field(factory=dict)  # sha256 by file name
    size: int = 0  # bytes of the files


class Checkpoints:
    """All checkpoints under one folder, which is made where it is missing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        # What a server that was killed while it wrote has left.
        for old in root.glob("*/*/.old-*"):
            place = old.with_name(old.name.removeprefix(".old-"))
            if place.exists():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.rename(place)
        for new in root.glob("*/*/.new-*"):
            shutil.rmtree(new, ignore_errors=True)

    def save(
        self,
        path: str,
        about: About,
        parts: Mapping[str, Mapping[str, Tensor]],
        *,
        overwrite: bool = False,
    ) -> About:
        """
        Write a checkpoint: groups of tensors by file name.

        Raises:
            Refusal: The path is not valid, is taken already, or cannot be written.
        """
        directory = self._directory(path)
        if directory.exists() and not overwrite and not self._is_expired(directory):
            raise Refusal(f"{path} exists already; save under another name, or with overwrite=True")
        new = directory.parent / f".new-{secrets.token_hex(4)}"
        old = directory.with_name(f".old-{directory.name}")
        try:
            new.mkdir(parents=True)
            files, size = {}, 0
            for name, tensors in parts.items():
                content = save({n: t.detach().cpu().contiguous() for n, t in tensors.items()})
                _write(new / f"{name}.safetensors", content)
                files[f"{name}.safetensors"] = hashlib.sha256(content).hexdigest()
                size += len(content)
            about = attrs.evolve(about, created=time.time(), files=files, size=size)
            _write(new / _ABOUT, json.dumps(attrs.asdict(about), indent=1).encode())
            if directory.exists():
                directory.rename(old)
            new.rename(directory)
            shutil.rmtree(old, ignore_errors=True)
        except OSError as error:
            shutil.rmtree(new, ignore_errors=True)
            if old.exists() and not directory.exists():
                old.rename(directory)
            raise Refusal(f"{path} cannot be written: {error.strerror or error}") from error
        return about

    def about(self, path: str) -> About:
        """What a checkpoint is; `Refusal` where there is none at the path, or it cannot be read."""
        directory = self._directory(path)
        if not directory.is_dir() or self._is_expired(directory):
            raise Refusal(f"no checkpoint {path} on this server", 404)
        return self._read(directory, path)

    def load(self, path: str, part: str) -> dict[str, Tensor]:
        """Tensors of a checkpoint, on the CPU; `Refusal` where there is none, or it is damaged."""
        name = f"{part}.safetensors"
        wanted = self.about(path).files.get(name)
        if wanted is None:
            raise Refusal(f"{path} holds no {part}: it was saved for sampling only")
        try:
            content = (self._directory(path) / name).read_bytes()
            if hashlib.sha256(content).hexdigest() != wanted:
                raise Refusal(f"{path} is damaged: {name} is not the file that was saved")
            tensors: dict[str, Tensor] = load(content)
        except (OSError, SafetensorError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise Refusal(f"{path}: {name} cannot be read ({reason})") from error
        return tensors

    def expire(self, path: str, after_s: float | None) -> None:
        """Remove a checkpoint after so many seconds from now; None: never."""
        directory, about = self._directory(path), self.about(path)
        lives_s = None if after_s is None else time.time() + after_s - about.created
        content = json.dumps(attrs.asdict(attrs.evolve(about, lives_s=lives_s)), indent=1)
        new = directory / f".{_ABOUT}"
        _write(new, content.encode())
        new.replace(directory / _ABOUT)

    def delete(self, path: str) -> None:
        self.about(path)
        shutil.rmtree(self._directory(path))

    def listed(self, run: str | None = None) -> list[tuple[str, About]]:
        """
        Paths of all readable checkpoints, of one run or of all, with what they are.

        Oldest first.
        """
        if run is not None and not _RUN.fullmatch(run):
            return []
        found = []
        for directory in self.root.glob(f"{_folder(run) if run else '*'}/*/*"):
            kind, name = directory.parent.name, directory.name
            if kind not in KINDS or name.startswith(".") or self._is_expired(directory):
                continue
            path = f"tinker://{directory.parent.parent.name.replace('~', ':')}/{kind}/{name}"
            with contextlib.suppress(Refusal):
                found.append((path, self._read(directory, path)))
        return sorted(found, key=lambda one: one[1].created)

    def _directory(self, path: str) -> Path:
        run, kind, name = parse(path)
        return self.root / _folder(run) / kind / name

    def _read(self, directory: Path, path: str) -> About:
        try:
            found: dict[str, Any] = json.loads((directory / _ABOUT).read_text("utf-8"))
            return About(**found)
        except (OSError, ValueError, TypeError) as error:
            raise Refusal(f"{path} is damaged: {_ABOUT} cannot be read ({error})") from error

    def _is_expired(self, directory: Path) -> bool:
        """Whether its time is over; it is then removed."""
        try:
            about = self._read(directory, "")
            if about.lives_s is None or time.time() < about.created + about.lives_s:
                return False
        except (Refusal, TypeError):  # damaged: reading it says so
            return False
        shutil.rmtree(directory, ignore_errors=True)
        return True


def parse(path: str) -> tuple[str, str, str]:
    """Run, kind and name of a `tinker://` path; `Refusal` where it is none."""
    scheme, _, rest = path.partition("://")
    parts = rest.split("/")
    if scheme != "tinker" or len(parts) != 3 or parts[1] not in KINDS:
        raise Refusal(f"{path!r} is no path of a checkpoint (tinker://RUN/weights/NAME)")
    if not _RUN.fullmatch(parts[0]):
        raise Refusal(f"{path!r} names no run of this server", 404)
    return parts[0], parts[1], check_name(parts[2])


def check_ttl(seconds: Any) -> int | None:
    """How long a checkpoint is to live; `Refusal` where that is no time."""
    if seconds is None:
        return None
    is_number = isinstance(seconds, int) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds <= _LONGEST_S:
        raise Refusal(f"ttl_seconds={seconds!r}: a whole number from 1 to {_LONGEST_S}, or null")
    return int(seconds)


def check_name(name: str) -> str:
    """The name; `Refusal` where no checkpoint may be called so."""
    if not _NAME.fullmatch(name):
        raise Refusal(
            f"a checkpoint cannot be called {name!r}: letters, digits and _ . = + - only, 128 at "
            "most, the first a letter or digit"
        )
    return name


def _folder(run: str) -> str:
    return run.replace(":", "~")  # which no file system forbids


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """The folder is this process's alone; `Refusal` where another server works with it."""
    import fcntl

    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Refusal(f"{root} is used by another server") from None
        yield
