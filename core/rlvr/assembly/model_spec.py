"""Find the backend of a model spec, and check that it can do what the command needs."""

from __future__ import annotations

from rlvr.assembly.configured import STARTER
from rlvr.errors import ConfigError
from rlvr.log import get
from rlvr.plugins.host import PluginHost
from rlvr.plugins.known import MODELS
from rlvr.plugins.resolve import load_object
from rlvr.specs import BackendSpec, SamplerSpec, TaskSpec

log = get(__name__)


def backend_for_model(model: str, host: PluginHost) -> str | None:
    """
    The only installed backend that takes the model's scheme (`server` of `server:URL#NAME`).

    If none does, the backend of this project that would, so that an error names it as missing.
    None if the spec has no scheme, or if no backend or several take it: `run.backend` decides.
    """
    scheme, colon, _rest = model.partition(":")
    if not colon:
        return None
    takers = [spec.name for spec in host.backends() if scheme in spec.models]
    if not takers:
        return MODELS.get(scheme)
    return takers[0] if len(takers) == 1 else None


def default_model(backend: str, host: PluginHost) -> str:
    """Default model of an installed backend, such as a server's only one; "": the starter."""
    for spec in host.backends():
        if backend in (spec.name, spec.full_name):
            found = ""
            try:
                if spec.find_model is not None:
                    found = str(load_object(spec.find_model, spec.provider)())
            except Exception as error:  # the plugin border; opening the backend says what is wrong
                log.debug("model_not_found", backend=spec.name, reason=repr(error))
            return found or spec.default_model
    return ""


def is_starter(model: str, task: TaskSpec, backend: BackendSpec | None) -> bool:
    """Whether it is the task's starter: its own, or what a server has as `PLUGIN-starter`."""
    if backend is None or backend.find_model is None:
        return model == STARTER
    served = model.partition(":")[2]
    return served in (f"{task.provider}-{STARTER}", f"{task.name}-{STARTER}")


def check_fit(backend: BackendSpec, sampler: SamplerSpec | None, *, trains: bool) -> None:
    """
    Reject a command that the backend cannot serve, before anything is built.

    Raises:
        ConfigError: Training with a backend that only samples, or one whose policy another
            sampler must ask.
    """
    if trains and not backend.trains:
        raise ConfigError(
            f"a model was to be trained with backend {backend.name}.",
            f"found: it only samples ({backend.summary}); it gives no gradients",
            "train with another --model and --backend; measure this one with: rlvr eval",
        )
    if backend.sampler and sampler is not None and sampler.name != backend.sampler:
        raise ConfigError(
            f"sampler {sampler.name} was asked for.",
            f"found: backend {backend.name} goes with sampler {backend.sampler} only",
            "leave --sampler out",
        )
