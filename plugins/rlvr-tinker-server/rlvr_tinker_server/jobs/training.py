"""Passes and updates of a model in training."""

from __future__ import annotations

from tinker import types

from rlvr_tinker_server.nets import losses
from rlvr_tinker_server.nets.adam import check_params
from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.state.futures import PROTO, Answer, Future
from rlvr_tinker_server.state.service import Service
from rlvr_tinker_server.state.sessions import Trained
from rlvr_tinker_server.wire import PassRequest, write_pass


def forward_backward(service: Service, request: PassRequest, body: bytes) -> Future:
    """
    Logprobs and a loss; gradients add up unless only the forward pass was asked for.

    Raises:
        Refusal: There is no such model, or the number is another request's. What is wrong with the
            data is told when it is their turn.
    """
    base = service.base

    def work(trained: Trained) -> Answer:
        model = trained.made
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
            most_tokens=service.limits.pass_tokens,
            is_cancelled=service.worker.is_closing,
        )
        return Answer(body=write_pass(logprobs, {"loss:sum": total}), media=PROTO)

    return service.in_line(request.model_id, request.seq_id, body, work)


def optim_step(service: Service, request: types.OptimStepRequest, body: bytes) -> Future:
    """An update by the gradients since the last one. `Refusal`: as `forward_backward`."""
    params = request.optim_params

    def work(trained: Trained) -> Answer:
        if not isinstance(params, types.AdamParams):
            raise Refusal(f"the optimiser {params.type!r} is not served; Adam is")
        check_params(params)
        return Answer.json({"metrics": trained.made.step(params)})

    return service.in_line(request.model_id, request.seq_id, body, work)
