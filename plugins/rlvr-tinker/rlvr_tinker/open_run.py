"""Find the model of a run on the service, the length of its context and its tokenizer."""

from __future__ import annotations

import asyncio

from attrs import evolve

from rlvr import (
    ConfigError,
    FastTokenizer,
    RlvrError,
    load_tokenizer,
    unreadable_tokenizer,
    wrapped_tokenizer,
)
from rlvr_tinker.service.client import Service
from rlvr_tinker.service.errors import RefusedError
from rlvr_tinker.service.model_spec import ModelName, Served, choose
from rlvr_tinker.training.client import Trainer


async def find_model(service: Service, name: ModelName, *, is_run: bool) -> Served:
    """
    The base model that a model spec means, with the length of its context.

    Raises:
        PrerequisiteError: No key, no service, or one that speaks another protocol.
        UnknownNameError: The service has no such model.
        ConfigError: It cannot be trained, or nobody knows how long its context is.
    """
    served = await service.models()
    base = await _base_of(service, name.path) if name.path else name.base
    model = choose(ModelName(base=base), served)
    if length := service.config.context_length:
        model = evolve(model, context_length=length)
    if model.context_length < 2:
        raise ConfigError(
            f"model {model.name} was asked for.",
            "found: the service does not say how long its context is",
            "say it: tinker.context_length=32768",
        )
    if is_run and (name.only_samples or not model.is_trainable):
        raise ConfigError(
            f"model {name.path or model.name} was to be trained.",
            "found: the service only samples from it",
            "choose another one: rlvr tinker models; or a path with /weights/ in it",
        )
    return model


async def _base_of(service: Service, path: str) -> str:
    """The base model of saved weights."""
    try:
        found = await service.asked(
            lambda client: client.get_weights_info_by_tinker_path(path),
            f"the saved weights {path} were asked for",
        )
    except RefusedError as error:
        raise ConfigError(str(error)) from error
    return str(found.base_model)


async def read_tokenizer(trainer: Trainer) -> FastTokenizer:
    """
    The model's tokenizer: `tinker.tokenizer`, or what the service names.

    Raises:
        PrerequisiteError: It is not here and cannot be fetched.
    """
    name, given, template = trainer.base, trainer.config.tokenizer, trainer.config.template
    if given:
        return await asyncio.to_thread(load_tokenizer, given, name, "tinker", template)
    if trainer.client is not None:
        client = trainer.client
    elif "/" in name:  # of the hub: the name alone says which tokenizer
        client = await trainer.sampling()
    else:  # a training client knows it; the smallest one is enough
        client = await trainer.smallest()

    def read() -> FastTokenizer | RlvrError:
        try:
            return wrapped_tokenizer(client.get_tokenizer(), name, "tinker", template)
        except RlvrError as error:
            return error
        except Exception as error:  # the hub, a file, or the library: they may raise anything
            return unreadable_tokenizer(name, "tinker", error)

    doing, limit_s = f"the tokenizer of {name} was asked for", trainer.config.timeout_s
    found = await trainer.service.blocking(read, doing, limit_s)
    if isinstance(found, RlvrError):
        raise found
    return found
