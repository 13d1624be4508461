"""The backend `torch`: trains and samples one model on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch

from rlvr import Backend, BackendError, BuildContext, Capabilities, Datum, FloatArray, Loss
from rlvr_torch.config import TorchConfig
from rlvr_torch.generation.cpu.weights import is_batch_invariant
from rlvr_torch.generation.inbox import Inbox
from rlvr_torch.hardware.engines import make_engine
from rlvr_torch.hardware.primitives import Hardware, hardware_of
from rlvr_torch.memory_table import say_plan
from rlvr_torch.models.hf.load import import_compiler
from rlvr_torch.models.interface import Net
from rlvr_torch.models.save import save_net
from rlvr_torch.models.source import ModelSource
from rlvr_torch.models.weight_storage import WeightStorage
from rlvr_torch.policy import LiveTorchPolicy, TorchPolicy
from rlvr_torch.runtime.batch_threads import BatchThreads, decode_cores, suited_budget
from rlvr_torch.runtime.device import allow_tf32, choose_device, own_modes, settled
from rlvr_torch.runtime.executor import Executor
from rlvr_torch.runtime.weights_digest import Versions
from rlvr_torch.training.accumulate import Learner, accumulate, eval_loss, explain_gradient
from rlvr_torch.training.activation_checkpointing import checkpoint_where_meant
from rlvr_torch.training.checkpoint import TrainingState, read_state, read_weights, write_state
from rlvr_torch.training.logprobs import sequence_logprobs, sequence_values
from rlvr_torch.training.loss_inputs import outputs_of
from rlvr_torch.training.microbatches import MicroBatchBudget, check_data
from rlvr_torch.training.optimizer import OptimSettings, Updater
from rlvr_torch.training.reference import Reference, is_adapter_off, on_device
from rlvr_torch.training.router_loss import RouterLoss
from rlvr_torch.training.skip_bad_updates import NotFiniteError, Skips
from rlvr_torch.training.softmax import Compiler

_SCORES = ("policy", "reference", "value")


class TorchBackend(Backend):
    """
    The `rlvr.parts.Backend` of this machine.

    All work runs in one thread, in the order it was asked for. A step either happens whole or
    leaves weights, optimiser and version as they were.

    Args:
        config: The `torch.*` options; None for the defaults.
        context: `model` is a spec of `ModelSource`; `train` and `steps` set the optimiser.
        hardware: The primitives it computes with; None: those of the device.

    Attributes:
        net: The model; a value head, where a loss asked for one, is no part of it.
    """

    @own_modes()
    def __init__(
        self,
        config: TorchConfig | None,
        context: BuildContext,
        hardware: Hardware | None = None,
    ) -> None:
        config = config or TorchConfig()
        self.device = choose_device(config.device)
        hardware = (hardware or hardware_of(self.device)).chosen_by(config)
        self._config = config = settled(config, self.device)
        allow_tf32(self.device, config.tf32)
        self.dtype: torch.dtype = getattr(torch, config.dtype)
        say_plan(context, config, self.device)
        self._source = ModelSource.parse(context.model, context.seed, config)
        self.tokenizer = self._source.tokenizer()
        self.net = self._read_net()
        self._image_processor = getattr(self.net, "image_processor", None)
        count = sum(value.numel() for value in self.model.parameters())
        self._threads = BatchThreads.suited(self.device, count, config.threads)
        tokens = suited_budget(self.device, count, config.microbatch_tokens)
        self._budget = MicroBatchBudget(tokens, self._threads, context.model)
        self._product = hardware.head_product(self.dtype)
        store = hardware.weight_storage if config.weight_copies else WeightStorage
        self._storage = store(self.net, self.dtype)
        self._attention = hardware.packed_attention(self.dtype)
        self._compiler: Compiler | None = None
        if config.compile == "on" or (config.compile == "auto" and hardware.is_compiled):
            import_compiler(", or torch.compile=off")
            from rlvr_torch.training.compiled import compile_training

            compiled = compile_training(self.net, self._attention, self._threads.size)
            self._attention, self._compiler = compiled
        checkpoint_where_meant(config, self.net, tokens, self.dtype)
        cores = decode_cores(count, config.threads)
        self._engine = make_engine(
            config,
            hardware,
            self.net,
            self.tokenizer,
            where=self._source.hf.where if self._source.hf else "",
            dtype=self.dtype,
            cores=cores,
            read_version=lambda: self.version,
        )
        is_rounded = hardware.has_tf32 and config.tf32
        is_exact = config.dtype == "float32" and config.engine == "own" and not is_rounded
        self.capabilities = Capabilities(
            eval_loss=True,
            partial_rollouts=True,
            logprob_tolerance=0.01 if is_exact else 1.0,
            batch_invariant=is_exact and is_batch_invariant(self.net, cores),
        )
        self._worker = Executor()
        self._inbox = Inbox(self._engine, self._worker, lambda: self.version, config.slice_tokens)
        settings = OptimSettings.of(context.train, config.weight_decay)
        updates = context.steps * settings.passes * settings.minibatches
        self._updater = Updater(self.net, config, settings, updates, hardware.optimizer)
        self._skips = Skips(config.max_skipped)
        self._versions = Versions(self.net)
        has_start_adapter = bool((hf := self._source.hf) and hf.config.adapter)
        self._reference = Reference(
            net=self.net,
            is_adapter_off=is_adapter_off(self.net, config.reference, has_start_adapter),
            start_digest=self._versions.start_digest,
            read=self._read_net,
            source=self._source,
            dtype=self.dtype,
        )

    @property
    def version(self) -> int:
        """Optimiser updates that the weights have seen."""
        return self._versions.number

    @property
    def model(self) -> torch.nn.Module:
        """Holds the net's weights."""
        return self.net.module

    def _read_net(self) -> Net:
        """The start weights, on the device."""
        # Adapters follow to the device here, where their layers are.
        return on_device(self._source.net(self.tokenizer.vocab_size, self.device), self.device)

    async def __aenter__(self) -> TorchBackend:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._inbox.close()
        self._worker.close()
        self._threads.close()

    async def policy(self) -> TorchPolicy:
        """A handle of the current weights; it refuses to sample once they have changed."""

        def work(_: Callable[[], bool]) -> TorchPolicy:
            return TorchPolicy(
                self.version,
                self._versions.digest(),
                self._inbox,
                self._worker,
                lambda: self.version,
                lambda directory: save_net(self.net, self.tokenizer, directory),
                self._image_processor,
            )

        return await self._worker.run(work)

    async def live_policy(self) -> LiveTorchPolicy:
        """
        A handle that draws each token with the newest weights.

        From now on each step ends with the digest of its weights, so that reading it never meets
        an update that is under way.
        """

        def work(_: Callable[[], bool]) -> LiveTorchPolicy:
            self._versions.go_live()
            return LiveTorchPolicy(
                self._inbox, lambda: self.version, self._versions.digest, self._image_processor
            )

        return await self._worker.run(work)

    async def logprobs(self, data: Sequence[Datum], which: str) -> list[FloatArray]:
        """
        Numbers (T,) of each datum's supervised tokens; 0 elsewhere.

        Args:
            data: Any mixture of lengths.
            which: "policy": logprobs at the datum's temperature; "reference": those by the weights
                the run started from; "value": the critic's estimates before each token.

        Raises:
            BackendError: The data cannot be used, or the start weights are not what they were.
        """
        if which not in _SCORES:
            raise BackendError(f"backend 'torch' has no {which!r} logprobs: {', '.join(_SCORES)}")
        chunk, how = self._config.logprob_chunk, (self.dtype, self._attention)

        def work(is_cancelled: Callable[[], bool]) -> list[FloatArray]:
            self._prepare(data)
            pieces = self._budget.pieces(is_cancelled)
            if which == "value":
                critic = self._updater.have_critic()
                return pieces.numbers(data, lambda d: sequence_values(self.net, critic, d, *how))
            used = self._reference.opened() if which == "reference" else nullcontext(self.net)
            with used as net:
                head = self._product, self._compiler
                return pieces.numbers(data, lambda d: sequence_logprobs(net, d, chunk, *how, *head))

        return await self._worker.run(work)

    def _prepare(self, data: Sequence[Datum], needs: frozenset[str] = frozenset()) -> None:
        """Check data before they are used; where vLLM samples, it gives the GPU's memory back."""
        check_data(data, self.net.vocab_size, self.net.positions, needs)
        self._engine.sleep()

    async def update(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        """
        One optimiser update; skipped where the loss or its gradient is not finite.

        Returns:
            `loss`, `grad/norm` (of the model, before clipping), `lr`, the loss's own metrics,
            `update/skipped` (0) and, with a critic, `grad/critic_norm`. Of an update that was
            skipped only `update/skipped` (1): weights, optimiser and version are as before.

        Raises:
            BackendError: The data cannot be used, the loss asks for an output that is not known,
                or too many updates were skipped one after another (the problems are named).
                Nothing has changed then.
        """
        return await self._worker.run(
            lambda is_cancelled: self._skips.guard(lambda: self._step(data, loss, is_cancelled))
        )

    def _step(
        self, data: Sequence[Datum], loss: Loss, is_cancelled: Callable[[], bool]
    ) -> dict[str, float]:
        learner = self._learner(data, loss)
        try:
            metrics = accumulate(data, loss, learner, self._budget.pieces(is_cancelled))
            norms = self._updater.clip(learner.critic)
            if not all(np.isfinite(norm) for norm in norms.values()):
                raise NotFiniteError(
                    f"the gradient is not finite (norm {max(norms.values())}): "
                    f"{explain_gradient(data, loss, learner)}; the weights are as before"
                )
            rate = self._updater.set_rates(self.version)
            if is_cancelled():
                raise BackendError("the step was cancelled; the weights are as before")
            self._updater.apply()
            self._storage.refresh()
            self._versions.become(self.version + 1)
        finally:
            self._updater.forget_gradients()
        return {**metrics, **norms, "lr": rate}

    def _learner(self, data: Sequence[Datum], loss: Loss) -> Learner:
        self._prepare(data, loss.needs.annotations)
        return Learner(
            net=self.net,
            critic=self._updater.have_critic() if "value" in outputs_of(loss) else None,
            dtype=self.dtype,
            chunk=self._config.logprob_chunk,
            attention=self._attention,
            router=RouterLoss.of(self.net, data, self._config.router_coef),
            product=self._product,
            compiler=self._compiler,
            storage=self._storage,
        )

    async def eval_loss(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        """
        `loss` and the loss's own metrics on the data; nothing is learnt from them.

        Raises:
            BackendError: The data cannot be used, the loss asks for an output that is not known,
                or it is not finite (the problems are named).
        """

        def work(is_cancelled: Callable[[], bool]) -> dict[str, float]:
            return eval_loss(
                data, loss, self._learner(data, loss), self._budget.pieces(is_cancelled)
            )

        return await self._worker.run(work)

    async def save(self, directory: Path) -> None:
        """
        Write weights, tokenizer, optimiser and schedule; the directory is also a model, or adapter.

        Raises:
            CheckpointError: A file cannot be written.
        """

        def work(_: Callable[[], bool]) -> None:
            optimizer, critic = self._updater.state()
            state = TrainingState(
                version=self.version,
                start_digest=self._versions.start_digest,
                optimizer=optimizer,
                critic=critic,
            )
            write_state(directory, self.net, self.tokenizer, state)

        await self._worker.run(work)

    async def load(self, directory: Path) -> None:
        """
        Restore exactly what `save` wrote.

        Raises:
            CheckpointError: A file cannot be read, or belongs to another model.
            BackendError: The run started from other weights than this backend did.
        """

        def work(_: Callable[[], bool]) -> None:
            state = read_state(directory)
            if state.start_digest != self._versions.start_digest:
                raise BackendError(
                    f"{directory} was trained from other start weights than this run's model\n"
                    f"  give the model the run started with (found now: {self._source})"
                )
            read_weights(directory, self.net)
            self._storage.refresh()
            self._updater.restore(state.optimizer, state.critic)
            self._versions.become(state.version, is_restored=True)

        await self._worker.run(work)
