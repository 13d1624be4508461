"""Options of the backend `torch`: `torch.KEY=VALUE`."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import and_, ge, gt, le, lt

from rlvr import option


@frozen(kw_only=True)
class TorchConfig:
    """Options of the local backend."""

    device: str = option(
        "auto",
        "Device; auto: cuda, else mps, else cpu",
        choices=("auto", "cpu", "cuda", "mps"),
    )
    dtype: str = option(
        "auto",
        "Type of matrix products; weights, optimiser and logprobs stay float32. auto: bfloat16 on "
        "an NVIDIA card that has it, else float32",
        choices=("auto", "float32", "bfloat16"),
    )
    weight_copies: bool = option(
        True,
        "With bfloat16 products: keep bfloat16 copies of the layers' weights, made once an update; "
        "false: cast them at each use",
    )
    tf32: bool = option(True, "On an NVIDIA card products in float32 may round inputs to TF32")
    attention: str = option(
        "auto",
        "auto: the device's kernels; plain: products and masks, which copy shared prompts",
        choices=("auto", "plain"),
    )
    graphs: bool = option(True, "On an NVIDIA card decode by CUDA graphs that are captured once")
    threads: int = option(
        0,
        "CPU threads; 0: one a core (at most OMP_NUM_THREADS), and one for decoding with up to "
        "1 million weights",
        validator=[ge(0), le(4096)],
    )
    microbatch_tokens: int = option(
        8192, "Tokens a forward pass holds (accumulation)", unit="tokens", validator=ge(1)
    )
    weight_decay: float = option(0.0, "AdamW weight decay", validator=ge(0))
    logprob_chunk: int = option(
        1024, "Tokens whose logits exist at one time in training", unit="tokens", validator=ge(1)
    )
    decode_rows: int = option(256, "Completions sampled at the same time", validator=ge(1))
    max_skipped: int = option(
        3,
        "Updates in a row that may be skipped because they are not finite; one more ends the run",
        unit="updates",
        validator=ge(0),
    )
    router_coef: float = option(
        0.0,
        "Weight of the load-balancing loss of a mixture's router (TRL: router_aux_loss_coef)",
        validator=ge(0),
    )
    beta1: float = option(0.9, "AdamW decay of the mean", validator=and_(ge(0), lt(1)))
    beta2: float = option(0.95, "AdamW decay of the variance", validator=and_(ge(0), lt(1)))
    critic_lr: float = option(
        0.0, "Learning rate of a value head; 0: ten times train.lr", validator=ge(0)
    )
    engine: str = option(
        "own",
        "Sampling engine: ours, or vLLM in this process (its build for a GPU, or for the CPU)",
        choices=("own", "vllm"),
    )
    vllm_memory: float = option(
        0.5, "Share of the GPU that vLLM may take", validator=and_(gt(0), le(1))
    )
    vllm_tokens: int = option(
        0,
        "Tokens of prompt and completion that vLLM takes; 0: the model's positions, or as many as "
        "its share of the memory holds",
        unit="tokens",
        validator=ge(0),
    )
    slice_tokens: int = option(
        32,
        "Tokens a row draws before training, logprobs or new weights have their turn",
        unit="tokens",
        validator=ge(1),
    )
    reference: str = option(
        "auto",
        "Reference model: a frozen copy, or the same weights without the adapter",
        choices=("auto", "copy", "adapter-off"),
    )
    template: tuple[str, ...] = option(
        (), "Variables of the model's chat template, NAME=VALUE with commas: enable_thinking=false"
    )
    lora_rank: int = option(0, "Rank of LoRA adapters; 0: train all weights", validator=ge(0))
    lora_alpha: float = option(0.0, "LoRA scale; 0: twice the rank", validator=ge(0))
    lora_targets: str = option(
        "all-linear", "Modules that get an adapter, by the end of their names, with commas"
    )
    vision: str = option(
        "frozen",
        "Vision encoder and projector of a vision-language model: frozen, or trained too (full "
        "training)",
        choices=("frozen", "trained"),
    )
    dora: bool = option(False, "Weight-decomposed LoRA (arXiv:2402.09353)")
    adapter: str = option("", "Directory of a saved adapter that training continues from")
    quantize: str = option(
        "none", "Store frozen weights in 4 bits (GPU, with LoRA)", choices=("none", "4bit")
    )
    optimizer: str = option(
        "adamw",
        "AdamW fused, as a loop over weights, with moments of 8 bits (bitsandbytes), or on the CPU",
        choices=("adamw", "adamw-unfused", "adamw-8bit", "adamw-offload"),
    )
    checkpointing: str = option(
        "auto",
        "Activation checkpointing: layers keep their input and compute the rest again; auto: if a "
        "GPU's memory is too small otherwise",
        choices=("auto", "none", "layers"),
    )
    compile: str = option(
        "auto",
        "torch.compile of layers, output head and loss in training, once for all lengths; auto: on "
        "an NVIDIA card",
        choices=("auto", "on", "off"),
    )
