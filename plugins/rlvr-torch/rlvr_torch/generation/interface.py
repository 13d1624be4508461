"""The interface of an inference engine: our engine and vLLM derive from these two classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from rlvr import BackendError, Completion, Datum, FloatArray, GenerateRequest, Tokenizer
from rlvr_torch.generation.sequence import RunningSequence


class RunningBatch(ABC):
    """Sequences that are decoded together; they join and leave between two tokens."""

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether no sequence is left."""

    @abstractmethod
    def add(self, sequences: Sequence[RunningSequence]) -> None:
        """Queue sequences, each with room for at least one token."""

    @abstractmethod
    def drop(self, sequence: RunningSequence) -> None:
        """Forget a sequence that nobody waits for any more."""

    @abstractmethod
    def at_work(self, version: int | None = None) -> AbstractContextManager[None]:
        """Call `step` inside; the weights, which have this version, must not change there."""

    @abstractmethod
    def step(self, version: int | None = None) -> list[RunningSequence]:
        """
        Draw one token in each row, with weights of this version; gives the sequences that end now.

        Raises:
            BackendError: Logits are not finite.
        """

    def settle(self) -> list[RunningSequence]:
        """
        Read what is drawn already, inside `at_work`, after the last step before other work.

        Gives the sequences that ended there; those that `step` gave are not among them.

        Raises:
            BackendError: Logits are not finite.
        """
        return []


class InferenceEngine(ABC):
    """
    Samples from weights that are trained.

    Attributes:
        tokenizer: The model's.
        context_length: Tokens of prompt and completion together.
    """

    tokenizer: Tokenizer
    context_length: int

    @abstractmethod
    def sequence(self, request: GenerateRequest) -> RunningSequence:
        """A completion without tokens; `BackendError` where the request cannot be met."""

    @abstractmethod
    def start(self) -> RunningBatch:
        """An empty batch, to which sequences are added at any time."""

    @abstractmethod
    def score(self, data: Sequence[Datum], version: int) -> list[FloatArray]:
        """Logprobs (T,), nats, of the supervised tokens, by the weights that decoding uses."""

    @abstractmethod
    def sleep(self) -> None:
        """Give memory back that training needs."""

    def generate(
        self, requests: Sequence[GenerateRequest], is_cancelled: Callable[[], bool] = lambda: False
    ) -> list[Completion]:
        """
        One completion a request, in order.

        A completion ends with a stop token or a stop text ("stop"), or after `max_tokens`, or
        where the model has no more positions ("length"; a prompt that fills all positions gets an
        empty completion).

        Raises:
            BackendError: A request cannot be met; logits are not finite; or `is_cancelled` said
                so, which is asked before each token.
        """
        sequences = [self.sequence(request) for request in requests]
        batch = self.start()
        batch.add([sequence for sequence in sequences if sequence.has_room])
        with batch.at_work():
            while not batch.is_done:
                if is_cancelled():
                    for sequence in sequences:
                        batch.drop(sequence)
                    raise BackendError("generation was cancelled")
                batch.step()
        return [sequence.completion for sequence in sequences]
