"""Sampling by vLLM in this process, on the GPU that also trains (`torch.engine=vllm`).

vLLM sleeps while training has the GPU: its weights and its cache are dropped (under LoRA the base
goes to the host). It wakes for the next generation and takes over the trained weights or the
adapter; no model is loaded from disk again. The order is: wake the weights, load the new ones, wake
the cache, forget cached prefixes. A vLLM built for the CPU does not sleep.

Completions go on while weights change: sleeping ends vLLM's requests, and what was drawn so far is
read again as part of the prompt, so their keys are those of the new weights (our engine keeps those
of the old).

What is drawn is not what our engine draws from the same seed. Not run on a GPU yet: tests hold the
order of calls against a stand-in, and what arrives against vLLM on a CPU where that is installed.
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rlvr import (
    BackendError,
    ConfigError,
    Datum,
    FloatArray,
    GenerateRequest,
    PrerequisiteError,
    Tokenizer,
    pip_install,
)
from rlvr_torch.generation.interface import InferenceEngine, RunningBatch
from rlvr_torch.generation.sequence import RunningSequence
from rlvr_torch.generation.vllm_weights import handover_of, merged
from rlvr_torch.models.hf.net import HFNet
from rlvr_torch.models.interface import Net
from rlvr_torch.runtime.device import vllm_is_for_cpu

VERSIONS = (0, 30), (0, 34)
"""The first vLLM that is taken, and the first that is not: what is called here changes often."""

_AS_MANY_AS_FIT = -1
"""Tokens of a sequence, where vLLM is to find out: those that its cache holds, or the model."""

_IN_PROCESS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine's core in this process, with its weights
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the trainer has threads in this process too
}


class VLLMEngine(InferenceEngine):
    """
    Samples by vLLM; wakes it for each batch, and hands over weights that changed.

    Logprobs are those of the distribution that was drawn from: with top-k or top-p, of the
    truncated one.

    Raises:
        ConfigError: The model is not an `hf:` model, or is stored in 4 bits.
        PrerequisiteError: There is no vLLM, one of another version, or no CUDA and no vLLM for the
            CPU.
    """

    def __init__(
        self,
        net: Net,  # the weights that train; must be an `hf:` model
        tokenizer: Tokenizer,  # its tokenizer
        *,
        model: str,  # directory or hub id vLLM reads the architecture (and the first weights) from
        # Version of the live weights: they are handed over when it has changed.
        read_version: Callable[[], int],
        dtype: torch.dtype = torch.bfloat16,  # what vLLM computes in
        memory: float = 0.5,  # share of the GPU's memory that vLLM may take while it is awake
        rows: int = 256,  # most completions decoded at the same time
        # Of prompt and completion; 0: the model's positions, or as many as that memory holds.
        tokens: int = 0,
    ) -> None:
        if not isinstance(net, HFNet):
            raise ConfigError(
                "torch.engine=vllm was asked for, but the model is not an hf: model\n"
                "  vLLM runs models of Hugging Face's hub; try torch.engine=own"
            )
        if getattr(net.model, "is_quantized", False):
            raise ConfigError(
                "torch.engine=vllm was asked for with torch.quantize: 4-bit weights cannot be "
                "handed over\n  try torch.engine=own, or torch.quantize=none"
            )
        self._vllm = _load_vllm()
        self._net, self.tokenizer = net, tokenizer
        self._read_version = read_version
        self._is_on_cpu = vllm_is_for_cpu()  # there it never sleeps: no memory would come free
        self._handover = handover_of(net)
        # vLLM reads the start weights itself, but the base has no adapter yet.
        self._loaded = 0 if net.adapted is None else -1
        self._is_asleep = False
        self._sent: dict[str, RunningSequence] = {}  # vLLM's requests, by their ids
        self._count = 0  # of requests, for their ids
        for name, value in _IN_PROCESS.items():
            os.environ.setdefault(name, value)
        with socket.create_server(("127.0.0.1", 0)) as free:  # two runs on one machine
            os.environ.setdefault("MASTER_PORT", str(free.getsockname()[1]))
        self._llm = self._build(
            model=model,
            dtype=str(dtype).removeprefix("torch."),
            gpu_memory_utilization=memory,
            max_model_len=min(tokens, net.positions) or _AS_MANY_AS_FIT,
            max_num_seqs=rows,
            enable_sleep_mode=not self._is_on_cpu,
            enable_prefix_caching=True,
            distributed_executor_backend="external_launcher",
            logprobs_mode="processed_logprobs",  # of the distribution that was drawn from
            skip_tokenizer_init=False,
        )
        told = self._llm.llm_engine.model_config.max_model_len
        self.context_length: int = min(told, net.positions)

    def _build(self, **settings: Any) -> Any:
        try:
            return self._vllm.LLM(**settings, **self._handover.settings)
        except (ValueError, AssertionError, RuntimeError) as error:
            about = [line for line in str(error).splitlines() if "lora" in line.lower()]
            if not self._handover.settings or not about:  # a full card, say
                raise
            self._handover = merged(self._net, about[0].strip())
        gc.collect()  # after the error, which held what was built so far
        torch.cuda.empty_cache()
        return self._vllm.LLM(**settings)

    def score(self, data: Sequence[Datum], _version: int) -> list[FloatArray]:
        """
        Logprobs (T,), nats, that vLLM gives to the supervised tokens, at temperature 1.

        One sequence at a time: equal weights then give equal bits. What is running is sent again
        afterwards.
        """
        self.wake()
        self._abort()
        params = self._vllm.SamplingParams(max_tokens=1, prompt_logprobs=0)
        found: list[FloatArray] = []
        for datum in data:
            prompt = self._vllm.TokensPrompt(prompt_token_ids=datum.tokens.tolist())
            (told,) = self._llm.generate(
                [prompt], params, use_tqdm=False, lora_request=self._handover.request
            )
            numbers = np.zeros(len(datum.tokens), np.float32)
            for place in np.flatnonzero(datum.mask):
                numbers[place] = told.prompt_logprobs[place][int(datum.tokens[place])].logprob
            found.append(numbers)
        return found

    def sequence(self, request: GenerateRequest) -> RunningSequence:
        if not len(request.prompt):
            raise BackendError("cannot generate from an empty prompt: it needs at least one token")
        room = min(request.params.max_tokens, self.context_length - len(request.prompt))
        return RunningSequence(request, room, self.tokenizer)

    def start(self) -> VLLMBatch:
        """An empty batch; whatever ran before is forgotten."""
        self._abort()
        return VLLMBatch(self)

    def send(self, sequences: Sequence[RunningSequence]) -> None:
        """
        Have vLLM continue these; their tokens so far become part of the prompt.

        Requests have no seeds of their own, which vLLM would draw one by one: where it is idle,
        the first one's seed is that of all draws.
        """
        if sequences and not self._sent:
            torch.manual_seed(sequences[0].request.seed & (2**63 - 1))
        for sequence in sequences:
            self._count += 1
            drawn = sequence.drawn
            prompt = self._vllm.TokensPrompt(
                prompt_token_ids=[*sequence.request.prompt.tolist(), *drawn]
            )
            name = str(self._count)
            params = self._params(sequence, sequence.room - len(drawn))
            self._llm.llm_engine.add_request(
                name, prompt, params, lora_request=self._handover.request
            )
            self._sent[name] = sequence

    def advance(self, version: int | None) -> list[RunningSequence]:
        """Draw one more token for each sent sequence; gives the sequences that end now."""
        ended: list[RunningSequence] = []
        for output in self._llm.llm_engine.step():
            sequence = self._sent.get(output.request_id)
            if sequence is None:
                continue
            (drawn,) = output.outputs
            for token, logprobs in zip(drawn.token_ids, drawn.logprobs, strict=True):
                if sequence.take(int(token), float(logprobs[token].logprob), version):
                    ended.append(sequence)
                    break
        self.forget(ended)
        return ended

    def forget(self, sequences: Sequence[RunningSequence]) -> None:
        """Draw no further token of these."""
        gone = [name for name, sequence in self._sent.items() if sequence in sequences]
        if gone:
            self._llm.llm_engine.abort_request(gone)
        for name in gone:
            del self._sent[name]

    def is_sent(self, sequence: RunningSequence) -> bool:
        """Whether vLLM has this sequence."""
        return sequence in self._sent.values()

    def _abort(self) -> None:
        self.forget(list(self._sent.values()))

    def sleep(self) -> None:
        """Free the GPU's memory for training, unless vLLM sleeps already; its requests end."""
        if self._is_asleep or self._is_on_cpu:
            return
        self._abort()
        self._llm.sleep(level=(level := self._handover.sleep_level))
        self._is_asleep = True
        if level == 2:
            self._loaded = -1

    def wake(self) -> None:
        """Give vLLM the GPU's memory and the current weights, unless it has both."""
        version = self._read_version()
        if not self._is_asleep and version == self._loaded:
            return
        self._abort()
        if self._is_asleep:
            torch.cuda.empty_cache()  # what training left behind is room that vLLM needs
            self._llm.wake_up(tags=["weights"])
        if version != self._loaded:
            self._give(version)
        if self._is_asleep:
            self._llm.wake_up(tags=["kv_cache"])
            self._is_asleep = False
        self._llm.reset_prefix_cache()  # keys of older weights

    def _give(self, version: int) -> None:
        try:
            self._handover.give(self._llm, version)
        except ConfigError:
            raise
        except ValueError as error:  # vLLM's, about an adapter
            self._handover = merged(self._net, str(error))
            self._handover.give(self._llm, version)
        self._loaded = version

    def _params(self, sequence: RunningSequence, max_tokens: int) -> Any:
        params = sequence.request.params
        return self._vllm.SamplingParams(
            max_tokens=max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k or -1,
            stop_token_ids=sorted(self.tokenizer.ends),
            ignore_eos=True,  # `stop_token_ids` are all there are, as with our engine
            logprobs=0,  # the drawn token's and no other
            detokenize=False,  # stop texts are looked for in `RunningSequence`
            output_kind=self._vllm.sampling_params.RequestOutputKind.DELTA,
        )


class VLLMBatch(RunningBatch):
    """A running batch of vLLM's."""

    def __init__(self, engine: VLLMEngine) -> None:
        self._engine = engine
        self._running: list[RunningSequence] = []

    @property
    def is_done(self) -> bool:
        return not self._running

    def add(self, sequences: Sequence[RunningSequence]) -> None:
        self._running += sequences

    def drop(self, sequence: RunningSequence) -> None:
        self._running = [one for one in self._running if one is not sequence]
        self._engine.forget([sequence])

    @contextmanager
    def at_work(self, version: int | None = None) -> Iterator[None]:
        """Call `step` inside: vLLM is awake and has the current weights."""
        self._engine.wake()
        yield

    def step(self, version: int | None = None) -> list[RunningSequence]:
        self._engine.wake()
        self._engine.send([one for one in self._running if not self._engine.is_sent(one)])
        ended = self._engine.advance(version)
        self._running = [one for one in self._running if one not in ended]
        return ended


def _load_vllm() -> Any:
    low, high = (".".join(map(str, version)) for version in VERSIONS)
    wanted = f"vllm>={low},<{high}"
    try:
        vllm = importlib.import_module("vllm")
    except ImportError as error:
        raise PrerequisiteError(
            f"torch.engine=vllm was asked for, but vLLM cannot be imported: {error}\n"
            f"  install it with: {pip_install(wanted)}\n  or sample with torch.engine=own"
        ) from None
    found = str(getattr(vllm, "__version__", ""))
    numbers = tuple(map(int, re.findall(r"\d+", found)[:2]))
    if not VERSIONS[0] <= numbers < VERSIONS[1]:
        raise PrerequisiteError(
            f"torch.engine=vllm needs vLLM {low} up to, not including, {high}.",
            f"found: vLLM {found or 'of an unknown version'}",
            f"install it with: {pip_install(wanted)}; or sample with torch.engine=own",
        )
    if not (torch.cuda.is_available() or vllm_is_for_cpu()):
        raise PrerequisiteError(
            f"torch.engine=vllm needs a CUDA GPU; torch {torch.__version__} finds none\n"
            "  sample with torch.engine=own"
        )
    return vllm
