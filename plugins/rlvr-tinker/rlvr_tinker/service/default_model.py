"""The model that is meant where nobody names one: the only one of the server that is set."""

from __future__ import annotations

import os

import httpx

from rlvr_tinker.service.errors import KEY, URL
from rlvr_tinker.service.model_spec import SCHEME

_PATIENCE_S = 3.0


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
        )
        served = answer.raise_for_status().json()["supported_models"]
        names = [str(model["model_name"]) for model in served]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError):
        return ""  # opening the backend says what is wrong
    return f"{SCHEME}:{names[0]}" if len(names) == 1 and names[0] else ""
