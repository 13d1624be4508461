"""The backend `tinker`: trains and samples a LoRA adapter on the Tinker service."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import structlog

from rlvr import (
    Backend,
    BackendError,
    BuildContext,
    CheckpointError,
    Datum,
    FastTokenizer,
    FloatArray,
    Loss,
    TeacherRequest,
    TopK,
    all_of,
    extent,
)
from rlvr_tinker import scoring
from rlvr_tinker.config import TinkerConfig
from rlvr_tinker.open_run import find_model, read_tokenizer
from rlvr_tinker.policy import TinkerPolicy
from rlvr_tinker.service.client import Service
from rlvr_tinker.service.errors import LostError, RefusedError, status_of
from rlvr_tinker.service.model_spec import ModelName
from rlvr_tinker.service.usage import Usage
from rlvr_tinker.training.checkpoint import Stored, saved_model
from rlvr_tinker.training.client import Saved, Trainer
from rlvr_tinker.training.datum import check_sendable, check_temperature, for_logprobs
from rlvr_tinker.training.losses import NotFiniteError, form_of
from rlvr_tinker.training.snapshots import Samplers
from rlvr_tinker.training.step import Updater, logprobs_of

log = structlog.get_logger(__name__)

_DEFAULTS = SimpleNamespace(
    lr=1e-5, warmup=0, decay="constant", grad_clip=1.0, passes=1, minibatches=1
)
"""`train.*` outside a run."""
_SCORES = ("policy", "reference")


class TinkerBackend(Backend):
    """
    The `rlvr.parts.Backend` of a Tinker service, or of any server that speaks its API.

    A step either happens whole or leaves weights and version as they were: where a request is lost
    in the middle of one, the training client is made anew from the last saved state.

    Args:
        config: The `tinker.*` options; None for the defaults.
        context: `model` is `tinker:NAME` or a path of saved weights; `train` and `steps` set the
            optimiser.
        usage: Where its tokens are counted; None: as the policy's, in the run of the context.
    """

    def __init__(
        self, config: TinkerConfig | None, context: BuildContext, *, usage: Usage | None = None
    ) -> None:
        self._config = config or TinkerConfig()
        self._context = context
        self._name = ModelName.parse(saved_model(context.model))
        rates = context.train or _DEFAULTS
        check_temperature(context)
        self._service = Service(self._config)
        self._usage = usage or Usage(run_dir=context.run_dir)
        self._trainer = Trainer(service=self._service, base="", start="", seed=context.seed)
        self._samplers = Samplers(trainer=self._trainer, keep_old=self._config.snapshots)
        self._update = Updater(
            trainer=self._trainer,
            rates=rates,
            updates=context.steps * rates.passes * rates.minibatches,
            usage=self._usage,
        )
        self._tokenizer: FastTokenizer | None = None
        self._positions = 0
        self._in_a_row = 0

    @property
    def version(self) -> int:
        """Optimiser updates that the weights have seen."""
        return self._trainer.version

    async def __aenter__(self) -> TinkerBackend:
        """
        Find the service and its model; in a run, begin to train.

        Raises:
            PrerequisiteError: No key, no service, or one that speaks another protocol.
            UnknownNameError: The service has no such model.
            ConfigError: It refuses the adapter.
        """
        self._service.health.start()
        try:
            await self._open()
        except BaseException:
            await self._close("errored")
            raise
        return self

    async def _open(self) -> None:
        trainer, config, run_dir = self._trainer, self._config, self._context.run_dir
        model = await find_model(self._service, self._name, is_run=run_dir is not None)
        trainer.base = self._usage.model = model.name
        self._usage.begin(self._usage.run_dir)
        if self._name.only_samples:
            self._samplers.only = self._samplers.reference = self._name.path
        else:
            trainer.start = self._name.path
        trainer.metadata = {"program": "rlvr", "run": run_dir.name if run_dir is not None else ""}
        layers = (config.train_mlp, config.train_attn, config.train_unembed)
        about = (model.name, self._name.path, config.rank, self._context.seed, *layers)
        trainer.digest = hashlib.sha256("\x1f".join(map(str, about)).encode()).hexdigest()
        if run_dir is not None:
            await trainer.training()
        self._tokenizer = await read_tokenizer(trainer)
        self._positions = model.context_length
        self._service.is_open = True

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the session."""
        if kind is None:
            await self._close("success")
        else:
            await self._close("errored" if issubclass(kind, Exception) else "interrupted")

    async def _close(self, status: str) -> None:
        try:
            self._usage.write(self._context.run_dir)
            await self._trainer.close(status)
        finally:
            self._service.health.stop()

    async def policy(self) -> TinkerPolicy:
        """A handle of the current weights: saved for sampling once a version."""
        return TinkerPolicy(
            await self._samplers.newest(),
            self._samplers,
            tokenizer=self._known_tokenizer(),
            context_length=self._positions - 1,  # so that what fills it can still be scored
            usage=self._usage,
        )

    async def logprobs(self, data: Sequence[Datum], which: str) -> list[FloatArray]:
        """
        Logprobs (T,) of each datum's supervised tokens; 0 elsewhere.

        Args:
            data: Any mixture of lengths, sampled at temperature 1.
            which: "policy", or "reference": the weights the run started from.

        Raises:
            BackendError: The data cannot be sent, or the service failed.
        """
        if which not in _SCORES:
            raise BackendError(f"backend 'tinker' has no {which!r} logprobs: {', '.join(_SCORES)}")
        self._check(data)
        used = [d for d in data if extent(d)]

        async def ask() -> list[FloatArray]:
            self._usage.spend(scored=sum(map(extent, used)))
            if which == "reference":
                client = await self._samplers.of_reference()
                return await scoring.score(client, used, self._trainer.wait)
            if not used:
                return []
            client = await self._trainer.training()
            request = client.forward(for_logprobs(used), "cross_entropy")
            answer = await self._trainer.wait(request, "logprobs were asked for")
            return logprobs_of(answer, used)

        found = iter(await self._trainer.steadily(ask, "logprobs were being computed"))
        return [next(found) if extent(d) else np.zeros(len(d.tokens), np.float32) for d in data]

    async def likeliest(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        """
        The reference's likeliest tokens at the positions of each question.

        Raises:
            BackendError: The service failed, or does not give them.
        """
        size = self._known_tokenizer().vocab_size

        async def ask() -> list[TopK]:
            client, wait = await self._samplers.of_reference(), self._trainer.wait
            self._usage.spend(scored=sum(len(question.ids) for question in questions))
            return await all_of(scoring.likeliest(client, q, size, wait) for q in questions)

        return await self._trainer.steadily(ask, "likeliest tokens were being asked for")

    async def update(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        """
        One optimiser update; skipped where the loss or its gradient is not finite.

        Returns:
            `loss`, `lr`, the loss's own metrics, `update/skipped`, `grad/norm` where the service
            tells it, and `tinker/...`: what else it told.

        Raises:
            BackendError: The data cannot be sent, the loss asks for more than logprobs, the
                service failed, or too many updates were skipped one after another.
        """
        form = form_of(loss, is_custom=self._config.custom_loss)
        self._check(data, loss.needs.annotations)
        used = [d for d in data if extent(d)]
        if not used:
            raise BackendError(
                f"nothing to learn from: none of {len(data)} data has a token the policy wrote\n"
                "  when prompts are longer than the model's context, completions are empty"
            )
        try:
            metrics = await self._trainer.steadily(
                lambda: self._update(used, loss, form), "an update was being made"
            )
        except NotFiniteError as error:
            most = self._config.max_skipped
            if self._in_a_row >= most:
                raise BackendError(
                    f"{error}\n  found: one too many of such updates (tinker.max_skipped={most})"
                ) from error
            self._in_a_row += 1
            log.warning("update_skipped", in_a_row=self._in_a_row, reason=str(error))
            return {"update/skipped": 1.0}
        self._in_a_row = 0
        self._usage.write(self._context.run_dir)
        return {**metrics, "update/skipped": 0.0}

    async def save(self, directory: Path) -> None:
        """
        Keep weights and optimiser on the service, and write where they are.

        Raises:
            CheckpointError: The file cannot be written.
            BackendError: The service failed.
        """
        saved = await self._trainer.steadily(
            lambda: self._trainer.save(self._config.ttl_s or None, "checkpoint"),
            "a checkpoint was being saved",
        )
        self._usage.spend(states=1)
        Stored(
            path=saved.path,
            version=saved.version,
            digest=self._trainer.digest,
            base=self._trainer.base,
            rank=self._config.rank,
            start=self._trainer.start,
            reference=self._samplers.reference,
        ).write(directory)

    async def load(self, directory: Path) -> None:
        """
        Restore exactly what `save` wrote.

        Raises:
            CheckpointError: The file is missing or damaged, or the service has forgotten the state.
            BackendError: It belongs to another model or adapter.
        """
        stored = Stored.read(directory)
        trainer = self._trainer
        stored.check(base=trainer.base, rank=self._config.rank, start=trainer.start)
        try:
            trainer.client = await trainer.load(stored.path)
        except (RefusedError, LostError) as error:
            if isinstance(error, LostError) and status_of(error) != 404:
                raise
            raise CheckpointError(
                f"{error}\n  the service keeps states for tinker.ttl_s; resume from another one"
            ) from error
        trainer.version = stored.version
        trainer.saved = Saved(path=stored.path, version=stored.version)
        trainer.digest, self._samplers.reference = stored.digest, stored.reference
        self._samplers.forget()

    def _known_tokenizer(self) -> FastTokenizer:
        if self._tokenizer is None:
            raise BackendError("the backend of the Tinker service was not opened: use `async with`")
        return self._tokenizer

    def _check(self, data: Sequence[Datum], needs: frozenset[str] = frozenset()) -> None:
        vocab_size = self._known_tokenizer().vocab_size
        check_sendable(data, vocab_size=vocab_size, positions=self._positions, needs=needs)
