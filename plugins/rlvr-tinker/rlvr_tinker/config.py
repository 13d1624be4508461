"""Options of the backend `tinker`: `tinker.KEY=VALUE`."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import and_, ge, gt, in_, lt, or_

from rlvr import option


@frozen(kw_only=True)
class TinkerConfig:
    """Service, adapter, and limits of waiting."""

    base_url: str = option("", "URL of the service; empty: TINKER_BASE_URL, else Tinker itself")
    rank: int = option(32, "Rank of the LoRA adapter", validator=ge(1))
    train_mlp: bool = option(True, "Adapt the MLP layers")
    train_attn: bool = option(True, "Adapt the attention layers")
    train_unembed: bool = option(True, "Adapt the unembedding")
    beta1: float = option(0.9, "AdamW decay of the mean", validator=and_(ge(0), lt(1)))
    beta2: float = option(0.95, "AdamW decay of the variance", validator=and_(ge(0), lt(1)))
    eps: float = option(1e-8, "AdamW term in the denominator", validator=gt(0))
    weight_decay: float = option(0.0, "AdamW weight decay", validator=ge(0))
    timeout_s: float = option(
        1800.0, "Time in which the service must finish a request", unit="s", validator=gt(0)
    )
    connect_s: float = option(
        60.0, "Time in which the service must answer at all", unit="s", validator=gt(0)
    )
    retries: int = option(
        2, "Times a failed step is repeated from the last saved state", validator=ge(0)
    )
    save_every: int = option(
        1,
        "Updates between states kept on the service to recover from; 0: only checkpoints",
        unit="updates",
        validator=ge(0),
    )
    recovery_ttl_s: int = option(
        86400, "Time after which the service forgets such a state", unit="s", validator=ge(3600)
    )
    ttl_s: int = option(
        0,
        "The service forgets checkpoints after this, an hour at least; 0: never",
        unit="s",
        validator=or_(in_((0,)), ge(3600)),
    )
    max_skipped: int = option(
        3,
        "Updates in a row that may be skipped because they are not finite; one more ends the run",
        unit="updates",
        validator=ge(0),
    )
    custom_loss: bool = option(False, "Compute every loss here, also those the service knows")
    snapshots: bool = option(
        True, "Sampling clients keep their weights when training goes on; false: refuse old ones"
    )
    tokenizer: str = option("", "Folder or hub name of the tokenizer; empty: what the service says")
    template: tuple[str, ...] = option(
        (), "Variables of the model's chat template, NAME=VALUE with commas: enable_thinking=false"
    )
    context_length: int = option(
        0, "Tokens of context; 0: what the service says", unit="tokens", validator=ge(0)
    )
