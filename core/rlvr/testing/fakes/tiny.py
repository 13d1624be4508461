"""A backend in memory: the smallest language model that really samples, trains and saves."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from rlvr.errors import BackendError
from rlvr.parts import Backend, Capabilities, Loss, Policy
from rlvr.testing.fakes.tokenizer import CharTokenizer
from rlvr.types import Completion, Datum, FloatArray, GenerateRequest

Logits = NDArray[np.float64]


@frozen(kw_only=True, eq=False)
class TinyHead:
    """The table's output head for a loss over whole distributions: logits are `weights @ state`."""

    weights: Any  # (V, C)
    bias: Any = None
    scale: float = 1.0
    softcap: float = 0.0


class TinyBackend(Backend):
    """
    A table of logits, next token by previous token (V, V), trained by momentum descent.

    NumPy in float64; `update` and `eval_loss` alone import torch, because losses speak it. The
    first token of a sequence follows the end token. Learns a toy task within seconds.

    Args:
        tokenizer: By default the lower-case letters.
        lr: Step size, large because a table is forgiving.
        seed: Of the initial logits (standard deviation 0.1).
    """

    capabilities = Capabilities(eval_loss=True, batch_invariant=True)

    def __init__(
        self, tokenizer: CharTokenizer | None = None, *, lr: float = 5.0, seed: int = 0
    ) -> None:
        self.tokenizer = tokenizer or CharTokenizer("abcdefghijklmnopqrstuvwxyz")
        size = self.tokenizer.vocab_size
        self._lr = lr
        self._logits: Logits = np.random.default_rng(seed).normal(0.0, 0.1, (size, size))
        self._reference = self._logits.copy()
        self._velocity = np.zeros_like(self._logits)
        self._version = 0

    @property
    def table(self) -> Logits:
        """A copy of the logits (V, V): rows are previous tokens."""
        return self._logits.copy()

    def states(self, data: Sequence[Datum]) -> list[NDArray[np.float64]]:
        """The token before each supervised one, one-hot: (n, V) a datum."""
        return [np.eye(len(self._logits))[_previous(d)[d.mask]] for d in data]

    async def policy(self) -> Policy:
        """A snapshot: later steps do not change it."""
        return TinyPolicy(self._logits.copy(), self._version, self.tokenizer)

    async def logprobs(self, data: Sequence[Datum], which: str) -> list[FloatArray]:
        """Logprobs (T,) of each datum's tokens at the temperature it was sampled with."""
        tables = {"policy": self._logits, "reference": self._reference}
        if which not in tables:
            raise BackendError(f"TinyBackend has no model {which!r}: policy or reference")
        return [_chosen(tables[which], d)[0].astype(np.float32) for d in data]

    async def update(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        """One update; metrics are the loss's own, `loss` and `grad/norm`."""
        chosen = [_chosen(self._logits, datum) for datum in data]
        leaves, outputs = self._leaves(data, loss, with_grad=True)
        value, metrics = loss(data, leaves, outputs)
        value.backward()
        gradient = np.zeros_like(self._logits)
        for head in outputs.get("head", ()):
            if head.weights.grad is not None:
                gradient += head.weights.grad.numpy().T
        for datum, leaf, (_, probabilities) in zip(data, leaves, chosen, strict=True):
            if leaf.grad is None:  # a leaf that the loss does without
                continue
            slope = leaf.grad.numpy() / datum.temperature  # (T,)
            jacobian = -slope[:, None] * probabilities  # (T, V)
            jacobian[np.arange(len(slope)), datum.tokens] += slope
            np.add.at(gradient, _previous(datum), jacobian)
        if not np.isfinite(gradient).all():
            raise BackendError("the gradient is not finite; the weights were left as they were")
        self._velocity = 0.5 * self._velocity + gradient
        self._logits = self._logits - self._lr * self._velocity
        self._version += 1
        norm = float(np.linalg.norm(gradient))
        return {**metrics, "loss": float(value.detach()), "grad/norm": norm, "lr": self._lr}

    async def eval_loss(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        """`loss` and the loss's metrics; the table stays as it is."""
        leaves, outputs = self._leaves(data, loss, with_grad=False)
        value, metrics = loss(data, leaves, outputs)
        return {**metrics, "loss": float(value)}

    def _leaves(
        self, data: Sequence[Datum], loss: Loss, *, with_grad: bool
    ) -> tuple[list[Any], dict[str, list[Any]]]:
        """
        Arguments of the loss: logprobs, and the outputs it asks for.

        A table is a model too: its state is the previous token, one-hot (C = V), its head the
        table turned on its side.
        """
        wants = loss.needs.outputs
        if unknown := sorted(wants - {"hidden", "head"}):
            raise BackendError(
                f"TinyBackend gives logprobs, hidden and head; the loss asks for {unknown}"
            )
        torch = importlib.import_module("torch")  # the core declares no need of it
        outputs: dict[str, list[Any]] = {}
        if "hidden" in wants:
            outputs["hidden"] = [
                torch.tensor(s, requires_grad=with_grad) for s in self.states(data)
            ]
        if "head" in wants:
            weights = torch.tensor(self.table.T, requires_grad=with_grad)
            outputs["head"] = [TinyHead(weights=weights)]
        if not loss.needs.logprobs:
            return [torch.zeros(len(d.tokens), dtype=torch.float64) for d in data], outputs
        rows = (_chosen(self._logits, d)[0] for d in data)
        return [torch.tensor(lp, requires_grad=with_grad) for lp in rows], outputs

    async def save(self, directory: Path) -> None:
        """One file, `tiny.npz`, of a few kilobytes."""
        np.savez(
            directory / "tiny.npz",
            logits=self._logits,
            reference=self._reference,
            velocity=self._velocity,
            version=self._version,
        )

    async def load(self, directory: Path) -> None:
        """Restore what `save` wrote, momentum and version included."""
        with (directory / "tiny.npz").open("rb") as file, np.load(file) as saved:
            self._logits, self._reference = saved["logits"], saved["reference"]
            self._velocity, self._version = saved["velocity"], int(saved["version"])


class TinyPolicy(Policy):
    """The sampling handle of `TinyBackend`."""

    def __init__(self, logits: Logits, version: int, tokenizer: CharTokenizer) -> None:
        self._logits = logits
        self.version = version
        self.tokenizer = tokenizer
        self.context_length = 4096
        self.digest = hashlib.sha256(logits.tobytes()).hexdigest()

    async def generate(self, request: GenerateRequest) -> Completion:
        """Drawn with the request's own seed."""
        params, rng = request.params, np.random.default_rng(request.seed)
        if params.is_truncated:
            raise BackendError("TinyBackend samples from the whole distribution only")
        tokens: list[int] = []
        logprobs: list[float] = []
        last = int(request.prompt[-1]) if len(request.prompt) else self.tokenizer.eos_id
        text, is_stopped = "", False
        while len(tokens) < params.max_tokens and not is_stopped:
            row = _log_softmax(self._logits[last] / (params.temperature or 1.0))
            last = int(row.argmax() if params.temperature == 0 else _draw(row, rng))
            tokens.append(last)
            logprobs.append(float(row[last]))
            text = self.tokenizer.decode(tokens)
            is_stopped = last == self.tokenizer.eos_id or any(s in text for s in params.stop)
        for stop in params.stop:
            text = text.split(stop)[0]
        return Completion(
            tokens=tokens, logprobs=logprobs, text=text, finish="stop" if is_stopped else "length"
        )


def _draw(row: NDArray[np.float64], rng: np.random.Generator) -> int:
    return min(int(np.searchsorted(np.exp(row).cumsum(), rng.random())), len(row) - 1)


def _previous(datum: Datum) -> NDArray[np.int64]:
    return np.concatenate([[CharTokenizer.eos_id], datum.tokens[:-1]]).astype(np.int64)


def _log_softmax(logits: Logits) -> Logits:
    shifted = logits - logits.max(-1, keepdims=True)
    result: Logits = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


def _chosen(logits: Logits, datum: Datum) -> tuple[NDArray[np.float64], Logits]:
    """Logprobs (T,) of the datum's tokens, and all probabilities (T, V) at its places."""
    rows = _log_softmax(logits[_previous(datum)] / datum.temperature)
    return rows[np.arange(len(datum.tokens)), datum.tokens], np.exp(rows)
