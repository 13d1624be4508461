"""Sampling by vLLM in this process, on the GPU that also trains (`torch.engine=vllm`).

vLLM sleeps while training has the GPU: its weights move to the host's memory and its cache is
dropped. It wakes for the next generation, and takes over the trained weights where they changed;
nothing is loaded from disk again. The order is: wake the weights, load the new ones, wake the
cache, forget cached prefixes.

What is drawn is not what our engine draws from the same seed. Not run on a GPU yet: the tests hold
the order of calls against a stand-in.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlvr import (
    BackendError,
    Completion,
    ConfigError,
    Datum,
    FloatArray,
    GenerateRequest,
    PrerequisiteError,
    Tokenizer,
    pip_install,
)
from rlvr_torch.generation.sequence import RunningSequence
from rlvr_torch.models.hf.net import HFNet
from rlvr_torch.models.interface import Net

_IN_PROCESS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine's core in this process, with its weights
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29555",
}


class VLLMEngine:
    """
    The interface of `Engine`, by vLLM.

    Raises:
        ConfigError: The model is not an `hf:` model, or is stored in 4 bits.
        PrerequisiteError: There is no vLLM, or no CUDA.
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
        self._net, self.tokenizer, self.context_length = net, tokenizer, net.positions
        self._read_version = read_version
        # vLLM reads the start weights itself, but the base has no adapter yet.
        self._loaded = 0 if net.adapted is None else -1
        self._is_asleep = False
        for name, value in _IN_PROCESS.items():
            os.environ.setdefault(name, value)
        self._llm = self._vllm.LLM(
            model=model,
            dtype=str(dtype).removeprefix("torch."),
            gpu_memory_utilization=memory,
            max_model_len=net.positions,
            max_num_seqs=rows,
            enable_sleep_mode=True,
            enable_prefix_caching=True,
            distributed_executor_backend="external_launcher",
            logprobs_mode="processed_logprobs",  # of the distribution that was drawn from
            skip_tokenizer_init=False,
        )

    def generate(
        self, requests: Sequence[GenerateRequest], is_cancelled: Callable[[], bool] = lambda: False
    ) -> list[Completion]:
        """
        One completion a request, in order; wakes vLLM, and hands over weights that changed.

        Logprobs are those of the distribution that was drawn from: with top-k or top-p, of the
        truncated one.

        Raises:
            BackendError: `is_cancelled` said so (it is asked before vLLM begins), or a prompt is
                empty.
        """
        sequences = [self.sequence(request) for request in requests]
        if is_cancelled():
            raise BackendError("generation was cancelled")
        self._complete([sequence for sequence in sequences if sequence.has_room])
        return [sequence.completion for sequence in sequences]

    def score(self, data: Sequence[Datum], _version: int) -> list[FloatArray]:
        """
        Logprobs (T,), nats, that vLLM gives to the supervised tokens, at temperature 1.

        One sequence at a time: equal weights then give equal bits.
        """
        self._wake()
        params = self._vllm.SamplingParams(max_tokens=1, prompt_logprobs=0)
        found: list[FloatArray] = []
        for datum in data:
            prompt = self._vllm.TokensPrompt(prompt_token_ids=datum.tokens.tolist())
            (told,) = self._llm.generate([prompt], params, use_tqdm=False)
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
        return VLLMBatch(self._complete)

    def _complete(self, sequences: Sequence[RunningSequence], version: int | None = None) -> None:
        if not sequences:
            return
        self._wake()
        prompt = self._vllm.TokensPrompt
        prompts = [prompt(prompt_token_ids=one.request.prompt.tolist()) for one in sequences]
        params = [self._params(one) for one in sequences]
        found = self._llm.generate(prompts, params, use_tqdm=False)
        for sequence, output in zip(sequences, found, strict=True):
            drawn = output.outputs[0]  # used up to where our rules end the completion
            for token, logprobs in zip(drawn.token_ids, drawn.logprobs, strict=True):
                if sequence.take(int(token), float(logprobs[token].logprob), version):
                    break

    def sleep(self) -> None:
        """Free the GPU's memory for training, unless vLLM sleeps already."""
        if not self._is_asleep:
            self._llm.sleep(level=1)
            self._is_asleep = True

    def _wake(self) -> None:
        version = self._read_version()
        if self._is_asleep:
            torch.cuda.empty_cache()  # what training left behind is room that vLLM needs
            self._llm.wake_up(tags=["weights"])
        if version != self._loaded:
            runner = self._llm.llm_engine.model_executor.driver_worker.model_runner
            runner.model.load_weights(_merged(self._net))
            self._loaded = version
        if self._is_asleep:
            self._llm.wake_up(tags=["kv_cache"])
            self._is_asleep = False
        self._llm.reset_prefix_cache()  # keys of older weights

    def _params(self, sequence: RunningSequence) -> Any:
        params = sequence.request.params
        return self._vllm.SamplingParams(
            max_tokens=sequence.room,
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k or -1,
            seed=sequence.request.seed & (2**63 - 1),
            stop=list(params.stop),
            stop_token_ids=sorted(self.tokenizer.ends),
            ignore_eos=True,  # `stop_token_ids` are all there are, as with our engine
            logprobs=0,  # the drawn token's and no other
        )


class VLLMBatch:
    """
    A running batch (`DecodeBatch`) that is completed in one pass; what joins meanwhile waits.

    `complete(sequences, version)` draws sequences to their ends.
    """

    def __init__(self, complete: Callable[[Sequence[RunningSequence], int | None], None]) -> None:
        self._complete = complete
        self._waiting: list[RunningSequence] = []

    @property
    def is_done(self) -> bool:
        return not self._waiting

    def add(self, sequences: Sequence[RunningSequence]) -> None:
        self._waiting += sequences

    def drop(self, sequence: RunningSequence) -> None:
        if sequence in self._waiting:
            self._waiting.remove(sequence)

    def at_work(self, version: int | None = None) -> AbstractContextManager[None]:
        return nullcontext()

    def step(self, version: int | None = None) -> list[RunningSequence]:
        some, self._waiting = self._waiting, []
        self._complete(some, version)
        return some


def _merged(net: HFNet) -> Iterator[tuple[str, Tensor]]:
    """
    All weights under the names of the model's files, adapters added to copies of their base.

    The net is left as it was, to the bit: adding an adapter and taking it away again would round.
    """
    adapted = {
        f"{name}.base_layer.weight": module
        for name, module in net.model.named_modules()
        if hasattr(module, "get_base_layer") and getattr(module, "lora_A", None)
    }
    for name, value in net.model.named_parameters():
        if ".lora_" in name:
            continue
        weight = value.detach()
        if (module := adapted.get(name)) is not None:
            before = weight.clone()
            module.merge()
            weight = module.get_base_layer().weight.detach().clone()
            module.unmerge()
            value.data.copy_(before)
        yield name.replace(".base_layer.", "."), weight


def _load_vllm() -> Any:
    try:
        vllm = importlib.import_module("vllm")
    except ImportError as error:
        raise PrerequisiteError(
            f"torch.engine=vllm was asked for, but vLLM cannot be imported: {error}\n"
            f"  install it with: {pip_install('vllm')}\n  or sample with torch.engine=own"
        ) from None
    if not torch.cuda.is_available():
        raise PrerequisiteError(
            f"torch.engine=vllm needs a CUDA GPU; torch {torch.__version__} finds none\n"
            "  sample with torch.engine=own"
        )
    return vllm
