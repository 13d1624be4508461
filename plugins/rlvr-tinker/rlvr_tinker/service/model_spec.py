"""Parse a model spec of the service, and find its model."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from functools import lru_cache

import httpx
from attrs import frozen

from rlvr import ConfigError, UnknownNameError
from rlvr_tinker.service.errors import KEY, URL

SCHEME = "tinker"
_PATIENCE_S = 3.0

certificates = lru_cache(maxsize=1)(httpx.create_ssl_context)
"""Read once: that takes longer than a local request."""


@frozen(kw_only=True)
class ModelName:
    """
    What `tinker:NAME` or `tinker://RUN/KIND/NAME` says.

    Attributes:
        base: Name of a base model; "": the only one that the service has.
        path: Saved weights to start from, as the service names them; "": the base model.
    """

    base: str = ""
    path: str = ""

    @classmethod
    def parse(cls, spec: str) -> ModelName:
        """
        Read a model spec.

        Raises:
            ConfigError: It is not one of this backend's.
        """
        scheme, colon, rest = spec.partition(":")
        if not colon or scheme != SCHEME:
            raise ConfigError(
                f"model '{spec}' was asked for.",
                "found: it names no model of a Tinker service",
                "name one: tinker:NAME, or saved weights: tinker://RUN/weights/NAME",
            )
        if not rest.startswith("//"):
            return cls(base=rest)
        kind = rest.removeprefix("//").split("/")
        if len(kind) < 3 or kind[-2] not in ("weights", "sampler_weights"):
            raise ConfigError(
                f"saved weights '{spec}' were asked for.",
                "found: no path of the form tinker://RUN/weights/NAME",
                "copy the path that the service printed when it saved them",
            )
        return cls(path=spec)

    @property
    def only_samples(self) -> bool:
        """True for weights that were saved for sampling."""
        return "/sampler_weights/" in self.path


@frozen(kw_only=True)
class Served:
    """A model that the service has; `context_length` 0 where it does not say."""

    name: str
    context_length: int = 0
    is_trainable: bool = True


def choose(name: ModelName, served: Sequence[Served]) -> Served:
    """
    The base model that is meant.

    Raises:
        UnknownNameError: The service has no such model (the nearest ones are named), or several
            and none was named.
    """
    names = [model.name for model in served]
    if not name.base:
        if len(served) == 1:
            return served[0]
        raise UnknownNameError(
            "no model of the Tinker service was named.",
            f"it has: {_listed(names)}",
            "name one: --model tinker:NAME",
        )
    for model in served:
        if model.name == name.base:
            return model
    lower = {other.lower(): other for other in names}
    near = [lower[n] for n in difflib.get_close_matches(name.base.lower(), lower, n=3, cutoff=0.4)]
    raise UnknownNameError(
        f"the Tinker service has no model '{name.base}'.",
        f"did you mean: {', '.join(near)}" if near else f"it has: {_listed(names)}",
        "see all with: rlvr tinker models",
    )


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - 12} more" if len(names) > 12 else ""
    return (", ".join(names[:12]) or "none") + more


def only_model() -> str:
    """
    The model spec of the one model at `TINKER_BASE_URL`; "" where that cannot be told.

    Looked for before anything is opened, because a run's options may depend on the model: a
    server's `cvdp-starter` gets those that suit the starter. Nothing is asked of Tinker itself,
    which has many models.
    """
    url, key = os.environ.get(URL, "").rstrip("/"), os.environ.get(KEY, "")
    if not (url and key):
        return ""
    try:
        answer = httpx.get(
            f"{url}/api/v1/get_server_capabilities",
            headers={"X-API-Key": key},
            timeout=_PATIENCE_S,
            verify=certificates(),
        )
        served = answer.raise_for_status().json()["supported_models"]
        names = [str(model["model_name"]) for model in served]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError):
        return ""  # opening the backend reports what is wrong
    return f"{SCHEME}:{names[0]}" if len(names) == 1 and names[0] else ""
