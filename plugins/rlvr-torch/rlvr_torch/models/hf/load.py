"""Models of transformers: from a directory, or from the hub by their id.

Nothing is guessed: weights that a file lacks are an error here, where transformers would start them
at random, and only safetensors are read.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from rlvr import BackendError, ImageProcessor, PrerequisiteError, end_ids, listed, pip_install
from rlvr_torch.models.hf.net import HFNet
from rlvr_torch.models.hf.supported import build_net, is_seeing, refuse_unsupported

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError, ImportError)


def require(library: str, asked: str, extra: str = "hf") -> Any:
    """A library that an extra installs, for what was `asked`; else `PrerequisiteError`."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise PrerequisiteError(
            f"{asked}\n  found: {library} cannot be imported ({error})\n"
            f"  try: {pip_install(f'rlvr-torch[{extra}]')}"
        ) from error


def import_transformers() -> Any:
    """The library; `PrerequisiteError` where it is not installed."""
    return require("transformers", "a model hf:... was asked for")


def import_compiler(instead: str = "") -> None:
    """
    Import what `torch.compile` needs, which takes longer than torch, and makes a folder.

    The models of transformers and PyTorch's checkpointing import it, too. `instead`: what else may
    be tried where that fails.

    Raises:
        PrerequisiteError: The folder for compiled code cannot be made.
    """
    try:
        importlib.import_module("torch._dynamo")
    except OSError as error:
        if error.filename is None:  # of a library that cannot be loaded
            raise
        raise PrerequisiteError(
            "the compiler of PyTorch (torch.compile) needs a folder that can be written.",
            f"found: {error.filename}: {error.strerror}",
            f"try: TORCHINDUCTOR_CACHE_DIR=/a/writable/folder{instead}",
        ) from error


def load_net(
    where: str,
    *,
    dtype: torch.dtype = torch.float32,
    bits: int = 0,
    device: torch.device | None = None,
) -> HFNet:
    """
    A model as a `Net`, checked (`build_net`) where it will compute.

    Arguments and errors are those of `read_model`; `device`: where its weights go, but for 4 bits.
    """
    model = read_model(where, dtype=dtype, bits=bits)
    if device is not None and not bits:
        model.to(device)
    image_processor = (
        ImageProcessor(lambda: load_processor(where), where) if is_seeing(model.config) else None
    )
    return build_net(model, where, image_processor)


def read_model(where: str, *, dtype: torch.dtype = torch.float32, bits: int = 0) -> Any:
    """
    A language or vision-language model of transformers, on the CPU (with `bits` on the GPU).

    Args:
        where: A directory, or an id of the hub.
        dtype: What weights are stored in.
        bits: 4: frozen weights in 4 bits (NF4 of arXiv:2305.14314); 0: as they are.

    Raises:
        PrerequisiteError: transformers is not installed; or, for 4 bits, bitsandbytes or a GPU;
            or the folder for compiled code cannot be made.
        BackendError: There is no such model, a file is missing or damaged, tensors are missing or
            of the wrong shape, an adapter lies beside the model, or the architecture is not
            supported.
    """
    transformers = import_transformers()
    config = load_config(where)
    refuse_unsupported(config, where)
    extra: dict[str, Any] = {}
    if bits == 4:
        extra = _four_bits(transformers, dtype)
    elif getattr(config, "quantization_config", None):  # gpt-oss as published
        extra = {"quantization_config": transformers.Mxfp4Config(dequantize=True)}
    if is_seeing(config):
        kind = transformers.AutoModelForImageTextToText
    else:
        kind, extra["attn_implementation"] = transformers.AutoModelForCausalLM, "eager"
    import_compiler()
    try:
        with quietly():
            model, info = kind.from_pretrained(
                where,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are in `info`, by name, and refused below
                **extra,
            )
    except _UNREADABLE as error:
        raise _explain(where, "weights (model.safetensors)", error) from error
    if getattr(model, "_hf_peft_config_loaded", False):  # transformers froze all but the adapter
        raise BackendError(
            f"the model {where} was asked for\n"
            "  found: a whole model and an adapter in one folder (config.json and "
            "adapter_config.json)\n"
            "  move adapter_config.json and adapter_model.safetensors into a folder of their own, "
            "and add torch.adapter=FOLDER to train them further"
        )
    if info["mismatched_keys"]:
        name, found, wanted = min(info["mismatched_keys"])
        raise BackendError(
            f"{where}: tensor {name!r} has shape {tuple(found)}, "
            f"expected {tuple(wanted)} from config.json"
        )
    if info["missing_keys"]:
        names = sorted(info["missing_keys"])
        raise BackendError(
            f"{where}: tensor {names[0]!r} is missing ({len(names)} in all): these weights are "
            f"not those of {type(model).__name__}"
        )
    return model


def load_config(where: str) -> Any:
    """
    A model's configuration.

    Raises as `load_tokenizer`, also where transformers does not know it.
    """
    transformers = import_transformers()
    directory = Path(where).expanduser()
    if directory.is_dir() and not (directory / "config.json").is_file():
        raise BackendError(
            f"no model in {where}: config.json is missing\n"
            "  a model's directory holds config.json, model.safetensors and a tokenizer"
        )
    return _read(transformers.AutoConfig, where, "config.json")


def _read(kind: Any, where: str, what: str) -> Any:
    try:
        with quietly():
            return kind.from_pretrained(where, trust_remote_code=False)
    except (*_UNREADABLE, AttributeError) as error:
        raise _explain(where, what, error) from error


def load_tokenizer(where: str) -> Any:
    """
    A model's tokenizer, as transformers has it.

    Raises:
        PrerequisiteError: transformers is not installed.
        BackendError: There is none, or it cannot be read.
    """
    transformers = import_transformers()
    directory = Path(where).expanduser()
    if directory.is_dir() and not any((directory / name).is_file() for name in _TOKENIZER_FILES):
        raise BackendError(
            f"no tokenizer in {where}: tokenizer.json is missing\n"
            "  copy tokenizer.json and tokenizer_config.json from the model it was made of"
        )
    if not directory.is_dir():
        load_config(where)  # says at once what a tokenizer's many files would say one by one
    found = _read(transformers.AutoTokenizer, where, "tokenizer")
    if not found.chat_template:  # a vision-language model may have it with its processor
        with contextlib.suppress(BackendError):
            if is_seeing(load_config(where)):
                found.chat_template = load_processor(where).chat_template
    return found


def load_processor(where: str) -> Any:
    """
    A vision-language model's processor.

    `BackendError`: none for pictures, or it cannot be read.
    """
    kind = import_transformers().AutoProcessor
    found = _read(kind, where, "processor, which makes pixels of pictures,")
    if getattr(found, "image_processor", None) is None or not hasattr(found, "tokenizer"):
        raise BackendError(
            f"{where}: pictures were to be shown to this model, which has no processor for them\n"
            "  copy processor_config.json (or preprocessor_config.json) from the model it was "
            "made of"
        )
    return found


def eos_ids(where: str) -> list[int]:
    """The tokens that end a text by the model's own settings (several in Llama 3)."""
    found = end_ids(where)
    with contextlib.suppress(BackendError):
        found += listed(load_config(where).get_text_config().eos_token_id)
    return found


def _four_bits(transformers: Any, dtype: torch.dtype) -> dict[str, Any]:
    if not torch.cuda.is_available():
        raise PrerequisiteError(
            "torch.quantize=4bit was asked for\n"
            f"  found: torch {torch.__version__} without a CUDA device\n"
            "  try: torch.quantize=none, or a machine with an NVIDIA GPU"
        )
    require("bitsandbytes", "torch.quantize=4bit was asked for", "4bit")  # transformers uses it
    settings = transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    return {"quantization_config": settings, "device_map": {"": torch.cuda.current_device()}}


def _explain(where: str, what: str, error: Exception) -> BackendError:
    """The reason in one sentence: transformers' own messages are long and guess."""
    reason = str(error).strip().split("\n")[0] or type(error).__name__
    if Path(where).expanduser().is_dir():
        return BackendError(
            f"{where}: its {what} cannot be read\n  found: {type(error).__name__}: {reason}"
        )
    if isinstance(error, OSError):
        return BackendError(
            f"the model {where} cannot be had from the hub (its {what})\n"
            f"  found: {reason}\n"
            "  try: an existing folder, the right spelling of OWNER/NAME, a network, "
            "HF_TOKEN for a gated model; or on a machine with one: "
            f"hf download {where}"
        )
    return BackendError(f"the model {where}: its {what} cannot be used\n  found: {reason}")


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Switch off transformers' progress bars and reports: what matters is raised."""
    from transformers.utils import logging

    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub = getLogger("huggingface_hub")
    hub_level = hub.level
    hub.setLevel(ERROR)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        hub.setLevel(hub_level)
        logging.set_verbosity(level)
        if has_bars:
            logging.enable_progress_bar()
