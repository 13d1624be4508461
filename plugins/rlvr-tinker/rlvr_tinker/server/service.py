"""What the server does, verb by verb: from checked requests to futures. No HTTP here.

All methods run in the event loop; what touches weights goes to the worker as a job.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
import torch
from attrs import field, frozen
from tinker import types

from rlvr_tinker.server import losses
from rlvr_tinker.server.adam import Adam, check_params
from rlvr_tinker.server.adapters import Factors, Shape
from rlvr_tinker.server.base import Base
from rlvr_tinker.server.checkpoints import About, Checkpoints, check_name, parse
from rlvr_tinker.server.futures import PROTO, Answer, Future, Futures
from rlvr_tinker.server.model import Model
from rlvr_tinker.server.refusal import Refusal
from rlvr_tinker.server.sample_jobs import Asked, read_asked, sample_together
from rlvr_tinker.server.sessions import Session, Sessions, Slot, Trained, fingerprint
from rlvr_tinker.server.wire import PassRequest, write_pass
from rlvr_tinker.server.worker import Job, Worker

log = structlog.get_logger(__name__)


@frozen(kw_only=True)
class Limits:
    """
    How much the server takes on.

    Attributes:
        max_rank: Highest rank of an adapter.
        max_adapters: Models in training at one time.
        max_snapshots: Unnamed sampler weights kept; older ones are forgotten.
        max_samples: Sequences of one sampling request.
        pass_tokens: Tokens of a forward pass.
        decode_rows: Sequences decoded at the same time.
        session_timeout_s: A session ends when nothing was heard of it for so long.
        wait_s: How long a question for a result waits before "not yet".
    """

    max_rank: int = 128
    max_adapters: int = 16
    max_snapshots: int = 64
    max_samples: int = 4096
    pass_tokens: int = 8192
    decode_rows: int = 256
    session_timeout_s: float = 300.0
    wait_s: float = 20.0


@frozen(kw_only=True, eq=False)
class Service:
    """
    The server's state.

    Attributes:
        base: The model.
        checkpoints: Where weights are saved.
        limits: How much it takes on.
    """

    base: Base
    checkpoints: Checkpoints
    limits: Limits = field(factory=Limits)
    futures: Futures = field(factory=Futures)
    worker: Worker = field(factory=Worker)
    sessions: Sessions = field()

    @sessions.default
    def _sessions(self) -> Sessions:
        return Sessions(self.limits.session_timeout_s)

    # --- sessions ---------------------------------------------------------------------------------

    def create_session(self, request: types.CreateSessionRequest) -> Session:
        """A new session."""
        session = self.sessions.open(request.model_dump())
        log.info("session_opened", session=session.id, sdk=request.sdk_version)
        return session

    def end_session(self, session_id: str, why: str) -> None:
        """Its adapters and samplers are freed, and whoever waits for a result is told."""
        self.sessions.end(session_id, why)
        self.futures.drop(session_id)
        log.info("session_ended", session=session_id, why=why)

    async def end_silent_sessions(self) -> None:
        """For ever: end those of clients that went away."""
        while True:
            await asyncio.sleep(min(5.0, self.limits.session_timeout_s / 4))
            for session_id in self.sessions.silent():
                self.end_session(session_id, "nothing was heard of its client")

    # --- models -----------------------------------------------------------------------------------

    def create_model(self, request: types.CreateModelRequest, body: bytes) -> Future:
        """A new adapter."""
        session = self.sessions.get(request.session_id)
        model_id = f"{session.id}:train:{request.model_seq_id}"
        if (again := self._sent_before(f"{model_id}:0", body)) is not None:
            return again
        self._check_base(request.base_model)
        _check_optimizer(request.optimizer_config)
        config = request.lora_config or types.LoraConfig(rank=32)
        if not 1 <= config.rank <= self.limits.max_rank:
            raise Refusal(
                f"rank {config.rank} was asked for; this server takes 1..{self.limits.max_rank} "
                "(--max-rank)"
            )
        shape = Shape(
            rank=config.rank,
            train_mlp=config.train_mlp,
            train_attn=config.train_attn,
            train_unembed=config.train_unembed,
        )
        if not any(map(shape.covers, self.base.net.sites)):
            raise Refusal("train_mlp, train_attn and train_unembed are all false: nothing to train")
        seed = secrets.randbits(31) if config.seed is None else config.seed
        trained = self._admit(session, model_id, request.base_model)

        def work() -> Answer:
            factors = self.base.net.new_factors(shape, seed)
            trained.model = Model(net=self.base.net, shape=shape, seed=seed, factors=factors)
            return Answer.json({"type": "create_model", "model_id": model_id})

        log.info("model_created", model=model_id, rank=config.rank)
        return self._start(f"{model_id}:0", session, body, work)

    def load_weights(self, request: types.LoadWeightsRequest, body: bytes) -> Future:
        """Weights of a checkpoint: as a new model, or put into one."""
        kind = parse(request.path)[1]
        if request.optimizer and kind != "weights":
            raise Refusal(f"{request.path} holds no optimiser: it was saved for sampling only")
        if request.model_id is not None:
            return self._load_into(request, body)
        if request.session_id is None or request.model_seq_id is None:
            raise Refusal("load_weights needs model_id and seq_id, or session_id and model_seq_id")
        session = self.sessions.get(request.session_id)
        model_id = f"{session.id}:train:{request.model_seq_id}"
        if (again := self._sent_before(f"{model_id}:0", body)) is not None:
            return again
        about = self._about(request.path)
        if request.base_model is not None:
            self._check_base(request.base_model)
        if request.optimizer_config is not None:
            _check_optimizer(request.optimizer_config)
        trained = self._admit(session, model_id, request.base_model or about.base_model)

        def work() -> Answer:
            trained.model = self._loaded(request.path, request.optimizer)
            return _loaded_answer(request.path, model_id)

        log.info("model_created", model=model_id, rank=about.rank, path=request.path)
        return self._start(f"{model_id}:0", session, body, work)

    def _load_into(self, request: types.LoadWeightsRequest, body: bytes) -> Future:
        assert request.model_id is not None

        def work(trained: Trained) -> Answer:
            trained.model = self._loaded(request.path, request.optimizer)
            return _loaded_answer(request.path, trained.id)

        return self._in_line(request.model_id, request.seq_id, body, work)

    def get_info(self, model_id: str) -> dict[str, Any]:
        """What a client asks of a model when it has made it."""
        _, trained = self.sessions.of_model(model_id)
        model = _made(trained)
        return {
            "type": "get_info",
            "model_id": model_id,
            "model_data": {
                "arch": type(self.base.net.base).__name__,
                "model_name": trained.base_model,
                "tokenizer_id": self.base.tokenizer_at,
            },
            "is_lora": True,
            "lora_rank": model.shape.rank,
            "model_name": trained.base_model,
        }

    # --- training ---------------------------------------------------------------------------------

    def forward_backward(self, request: PassRequest, body: bytes) -> Future:
        """Logprobs and a loss; gradients add up unless only the forward pass was asked for."""
        base = self.base

        def work(trained: Trained) -> Answer:
            model = _made(trained)
            try:
                loss = losses.choose(request.loss, request.config)
                losses.check_rows(
                    request.rows,
                    request.loss,
                    positions=base.net.positions,
                    vocab_size=base.net.vocab_size,
                )
            except Refusal as error:
                if not request.is_forward_only:
                    model.broken = str(error)
                raise
            logprobs, total = model.run(
                request.rows,
                loss,
                is_forward_only=request.is_forward_only,
                dtype=base.dtype,
                most_tokens=self.limits.pass_tokens,
                is_cancelled=self.worker.is_closing,
            )
            return Answer(body=write_pass(logprobs, {"loss:sum": total}), media=PROTO)

        return self._in_line(request.model_id, request.seq_id, body, work)

    def optim_step(self, request: types.OptimStepRequest, body: bytes) -> Future:
        """An update by the gradients since the last one."""
        params = request.optim_params

        def work(trained: Trained) -> Answer:
            if not isinstance(params, types.AdamParams):
                raise Refusal(f"the optimiser {params.type!r} is not served; Adam is")
            check_params(params)
            return Answer.json({"metrics": _made(trained).step(params)})

        return self._in_line(request.model_id, request.seq_id, body, work)

    # --- saving -----------------------------------------------------------------------------------

    def save_weights(self, request: types.SaveWeightsRequest, body: bytes) -> Future:
        """Adapter and optimiser, to go on from."""
        name = check_name(request.path or f"state-{request.seq_id}")

        def work(trained: Trained) -> Answer:
            path = f"tinker://{trained.id}/weights/{name}"
            adam = _made(trained).adam
            parts = {
                "adapter": _made(trained).weights(),
                "optimizer": {
                    **{f"mean.{n}": t for n, t in adam.means.items()},
                    **{f"square.{n}": t for n, t in adam.squares.items()},
                },
            }
            self._save(path, trained, parts, request, overwrite=request.overwrite)
            return Answer.json({"type": "save_weights", "path": path})

        return self._in_line(request.model_id, request.seq_id, body, work)

    def save_for_sampler(self, request: types.SaveWeightsForSamplerRequest, body: bytes) -> Future:
        """The adapter as it is: under a name, or as a sampler that looks at it."""
        if request.path is not None:
            name = check_name(request.path)

            def work(trained: Trained) -> Answer:
                path = f"tinker://{trained.id}/sampler_weights/{name}"
                parts = {"adapter": _made(trained).weights()}
                self._save(path, trained, parts, request, overwrite=True)
                return Answer.json({"type": "save_weights_for_sampler", "path": path})

            return self._in_line(request.model_id, request.seq_id, body, work)
        if request.sampling_session_seq_id is None:
            raise Refusal("save_weights_for_sampler needs a path or a sampling_session_seq_id")
        session, _ = self.sessions.of_model(request.model_id)
        sampler_id = f"{session.id}:sample:{request.sampling_session_seq_id}"

        def look(trained: Trained) -> Answer:
            factors = _made(trained).snapshot()
            slot = Slot(factors=factors, base_model=trained.base_model)
            if request.kind == "inflight":  # one target, which all such samplers share
                trained.inflight = slot = trained.inflight or slot
                slot.factors, slot.used = factors, time.monotonic()
            session.samplers[sampler_id] = slot
            self._forget_old_snapshots()
            return Answer.json(
                {"type": "save_weights_for_sampler", "sampling_session_id": sampler_id}
            )

        return self._in_line(request.model_id, request.seq_id, body, look)

    def weights_info(self, path: str) -> dict[str, Any]:
        """What a checkpoint is."""
        about = self.checkpoints.about(path)
        return {
            "base_model": about.base_model,
            "is_lora": True,
            "lora_rank": about.rank,
            "train_unembed": about.train_unembed,
            "train_mlp": about.train_mlp,
            "train_attn": about.train_attn,
        }

    # --- sampling ---------------------------------------------------------------------------------

    def create_sampler(self, request: types.CreateSamplingSessionRequest) -> str:
        """A sampler of the base model or of saved weights."""
        session = self.sessions.get(request.session_id)
        sampler_id = f"{session.id}:sample:{request.sampling_session_seq_id}"
        if sampler_id in session.samplers:
            return sampler_id
        if request.model_path is not None:
            about = self._about(request.model_path)
            slot = Slot(factors=None, base_model=about.base_model, path=request.model_path)
        elif request.base_model is not None:
            self._check_base(request.base_model)
            slot = Slot(factors={}, base_model=request.base_model)
        else:
            raise Refusal("a sampler needs a model_path or a base_model")
        session.samplers[sampler_id] = slot
        return sampler_id

    def get_sampler(self, sampler_id: str) -> dict[str, Any]:
        """What a sampler looks at."""
        _, slot = self.sessions.of_sampler(sampler_id)
        return {"sampler_id": sampler_id, "base_model": slot.base_model, "model_path": slot.path}

    def sample(self, request: types.SampleRequest, body: bytes) -> Future:
        """Sequences, and what was asked about the prompt."""
        if request.sampling_session_id is None or request.seq_id is None:
            raise Refusal("asample needs sampling_session_id and seq_id")
        session, slot = self.sessions.of_sampler(request.sampling_session_id)
        request_id = f"{request.sampling_session_id}:{request.seq_id}"
        if (again := self._sent_before(request_id, body)) is not None:
            return again
        future = Future(id=request_id, session=session.id, fingerprint=fingerprint(body))
        future.extra = {
            "sample_sequence_ids": [f"{request_id}:{i}" for i in range(request.num_samples)]
        }
        self.futures.add(future)
        try:
            asked = read_asked(
                request,
                self.base.tokenizer,
                positions=self.base.net.positions,
                vocab_size=self.base.net.vocab_size,
                max_samples=self.limits.max_samples,
            )
        except Refusal as error:
            future.fail(error)
            return future

        def together(all_asked: Sequence[Asked]) -> Sequence[Answer | Exception]:
            return sample_together(
                self.base,
                self._factors(slot),
                all_asked,
                rows=self.limits.decode_rows,
                is_cancelled=self.worker.is_closing,
            )

        self.worker.add(Job(future=future, key=id(slot), together=together, payload=asked))
        return future

    def cancel(self, request_id: str) -> None:
        """A result is not wanted any more."""
        if (future := self.futures.get(request_id)) is not None:
            future.is_cancelled = True
            future.finish(Answer.failure(Refusal("the request was cancelled")))

    # --- shared -----------------------------------------------------------------------------------

    def _sent_before(self, request_id: str, body: bytes) -> Future | None:
        found = self.futures.get(request_id)
        if found is not None and found.fingerprint != fingerprint(body):
            raise Refusal(
                f"the request {request_id} was sent before, with other contents: do two clients "
                "work in one session?"
            )
        return found

    def _start(
        self, request_id: str, session: Session, body: bytes, work: Callable[[], Answer]
    ) -> Future:
        future = Future(id=request_id, session=session.id, fingerprint=fingerprint(body))
        self.futures.add(future)
        self.worker.add(Job(future=future, work=work))
        return future

    def _in_line(
        self,
        model_id: str,
        number: int | None,
        body: bytes,
        work: Callable[[Trained], Answer],
    ) -> Future:
        """Do the work when it is the request's turn."""
        session, trained = self.sessions.of_model(model_id)
        if number is None:
            raise Refusal("the request has no seq_id")
        request_id = f"{model_id}:{number}"
        if trained.line.knows(number, body):
            return self.futures.get(request_id) or Future(id=request_id, session=session.id)
        future = Future(id=request_id, session=session.id, fingerprint=fingerprint(body))
        self.futures.add(future)
        job = Job(future=future, work=lambda: work(trained))
        trained.line.enter(number, body, lambda: self.worker.add(job))
        return future

    def _check_base(self, name: str) -> None:
        if not self.base.answers_to(name):
            raise Refusal(f"no base model {name!r} on this server; there is: {self.base.name}")

    def _admit(self, session: Session, model_id: str, base_model: str) -> Trained:
        held = self.sessions.models()
        if held >= self.limits.max_adapters:
            raise Refusal(
                f"this server holds {held} adapters, the most it may (--max-adapters); end a "
                "session that is not needed"
            )
        trained = Trained(id=model_id, base_model=base_model)
        session.models[model_id] = trained
        return trained

    def _about(self, path: str) -> About:
        about = self.checkpoints.about(path)
        if about.base != self.base.digest:
            raise Refusal(
                f"{path} was saved for the base model {about.base_model!r}; this server has "
                f"{self.base.name!r}, whose weights are others"
            )
        return about

    def _save(
        self,
        path: str,
        trained: Trained,
        parts: Mapping[str, Mapping[str, torch.Tensor]],
        request: types.SaveWeightsRequest | types.SaveWeightsForSamplerRequest,
        *,
        overwrite: bool,
    ) -> None:
        model = _made(trained)
        about = About(
            base=self.base.digest,
            base_model=trained.base_model,
            rank=model.shape.rank,
            train_mlp=model.shape.train_mlp,
            train_attn=model.shape.train_attn,
            train_unembed=model.shape.train_unembed,
            seed=model.seed,
            steps=model.adam.steps,
            lives_s=request.ttl_seconds,
            metadata=request.user_metadata or {},
        )
        self.checkpoints.save(path, about, parts, overwrite=overwrite)
        log.info("weights_saved", path=path, steps=model.adam.steps)

    def _loaded(self, path: str, with_optimizer: bool) -> Model:
        """A model from a checkpoint; in the worker."""
        about = self._about(path)
        shape = Shape(
            rank=about.rank,
            train_mlp=about.train_mlp,
            train_attn=about.train_attn,
            train_unembed=about.train_unembed,
        )
        adam = Adam()
        if with_optimizer:
            device = self.base.net.head.device
            adam.steps = about.steps
            for name, tensor in self.checkpoints.load(path, "optimizer").items():
                kind, _, weight = name.partition(".")
                kept = adam.means if kind == "mean" else adam.squares
                kept[weight] = tensor.to(device)
        factors = self._read_factors(path)
        return Model(net=self.base.net, shape=shape, seed=about.seed, factors=factors, adam=adam)

    def _read_factors(self, path: str) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        device = self.base.net.head.device
        tensors = self.checkpoints.load(path, "adapter")
        return {
            name.removesuffix(".A"): (
                tensor.to(device),
                tensors[f"{name.removesuffix('.A')}.B"].to(device),
            )
            for name, tensor in tensors.items()
            if name.endswith(".A")
        }

    def _factors(self, slot: Slot) -> Factors:
        """What a sampler looks at, read when it is first needed; in the worker."""
        if slot.factors is None:
            if slot.path is None:
                raise Refusal(
                    "these sampler weights are forgotten (--max-snapshots): make a new sampling "
                    "client after each step, or save them under a name"
                )
            self._about(slot.path)
            slot.factors = self._read_factors(slot.path)
        slot.used = time.monotonic()
        self._forget_old_snapshots()
        return slot.factors

    def _forget_old_snapshots(self) -> None:
        """Those that were not needed for longest; one with a path can be read again."""
        held = {id(slot): slot for slot in self.sessions.samplers() if slot.factors}
        oldest = sorted(held.values(), key=lambda slot: slot.used)
        for slot in oldest[: max(0, len(oldest) - self.limits.max_snapshots)]:
            slot.factors = None


def _made(trained: Trained) -> Model:
    if trained.model is None:
        raise Refusal(f"the model {trained.id} could not be made")
    return trained.model


def _check_optimizer(config: Any) -> None:
    if config.type != "adamw":
        raise Refusal(f"the optimiser {config.type!r} is not served; adamw is")


def _loaded_answer(path: str, model_id: str) -> Answer:
    return Answer.json({"type": "load_weights", "path": path, "model_id": model_id})
