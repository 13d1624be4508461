"""The wire of SDK 0.38: protobuf messages to our records, and back.

The generated messages come with the SDK. Tokens travel as int32 bytes, tensors as float32 or int64
bytes; nothing that arrives is trusted.

Shapes: N tokens of a datum, K targets at each of them, T sampled tokens, S prompt tokens.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from tinker.proto import tinker_public_pb2 as pb

from rlvr_tinker_server.refusal import Refusal

Array = np.ndarray

_MOST_NUMBERS = 1 << 28  # in one tensor that is spread out from a sparse one
_TYPES = {pb.DTYPE_FLOAT32: np.float32, pb.DTYPE_INT64: np.int64}
_NO_LOGPROB = -99999.0  # what the SDK takes for an empty place of a top-k table


@frozen(kw_only=True, eq=False)
class Row:
    """One datum: what the model reads (N,), and the tensors of its loss by name."""

    tokens: Array
    inputs: Mapping[str, Array]


@frozen(kw_only=True, eq=False)
class PassRequest:
    """A `forward` or `forward_backward` as it came."""

    model_id: str
    seq_id: int
    rows: Sequence[Row]
    loss: str
    config: Mapping[str, float | str]
    is_forward_only: bool


@frozen(kw_only=True, eq=False)
class TopK:
    """The k likeliest tokens at each of n places."""

    tokens: Array  # (n, k) ids
    logprobs: Array  # (n, k) nats


@frozen(kw_only=True, eq=False)
class Drawn:
    """One sampled sequence."""

    tokens: Array  # (T,)
    logprobs: Array  # (T,) nats
    has_stopped: bool  # False: it has reached its length
    top: TopK | None = None


@frozen(kw_only=True, eq=False)
class Scores:
    """What a prompt of S tokens was asked about; None where it was not."""

    prompt: Array | None = None  # (S,), NaN where nothing was computed
    top: TopK | None = None  # S places
    targets: pb.Tensor | None = None  # in the request's own layout
    alternatives: tuple[Array, Array] | None = None  # tokens and logprobs (S - 1, k)


def read_pass(body: bytes) -> PassRequest:
    """
    Read a `ForwardBackwardRequest`.

    Raises:
        Refusal: It is no such message, or what it holds is no text or of impossible lengths.
    """
    message = _parsed(body)
    if message is None:
        raise Refusal(
            "the body is no ForwardBackwardRequest (protobuf); this server speaks the wire of "
            "tinker 0.38"
        )
    config: dict[str, float | str] = dict(message.loss_fn_config)
    for name, value in message.loss_fn_config_v2.items():
        config[name] = value.text if value.WhichOneof("value") == "text" else value.number
    return PassRequest(
        model_id=message.model_id,
        seq_id=message.seq_id,
        rows=[_read_row(datum, f"datum {i}") for i, datum in enumerate(message.data)],
        loss=message.loss_fn,
        config=config,
        is_forward_only=message.forward_only,
    )


def numbers_of_pass(body: bytes) -> tuple[str, int, bool] | None:
    """Model, number in line, and whether it is forward only; None where the body cannot be read."""
    message = _parsed(body)
    return message and (message.model_id, message.seq_id, message.forward_only)


def _parsed(body: bytes) -> pb.ForwardBackwardRequest | None:
    message = pb.ForwardBackwardRequest()
    try:
        message.ParseFromString(body)
    except DecodeError:
        return None
    return message


def _read_row(datum: pb.Datum, name: str) -> Row:
    chunks = []
    for chunk in datum.model_input:
        kind = chunk.WhichOneof("chunk")
        if kind != "encoded_text":
            raise Refusal(f"{name} holds {kind or 'an empty chunk'}: this server reads text only")
        chunks.append(_numbers(chunk.encoded_text.tokens, np.int32, f"{name}: tokens"))
    tokens = np.concatenate([np.zeros(0, np.int32), *chunks]).astype(np.int64)
    tensors = datum.loss_fn_inputs.items()
    return Row(tokens=tokens, inputs={k: read_tensor(t, f"{name}: {k}") for k, t in tensors})


def read_tensor(tensor: pb.Tensor, name: str) -> Array:
    """
    The numbers of a tensor, in its shape; a sparse one is spread out with 0 between.

    Raises:
        Refusal: Its type is unknown, or bytes, shape and indices contradict each other.
    """
    dtype = _TYPES.get(tensor.dtype)
    if dtype is None:
        raise Refusal(f"{name} has the unknown type {tensor.dtype}: float32 and int64 are known")
    shape = list(tensor.shape)
    if tensor.WhichOneof("encoding") == "sparse_csr":
        sparse = tensor.sparse_csr
        return spread(
            _numbers(sparse.values, dtype, name),
            _numbers(sparse.crow_indices, np.int64, name),
            _numbers(sparse.col_indices, np.int64, name),
            shape,
            0,
            name,
        )
    values = _numbers(tensor.dense, dtype, name)
    shape = shape or [len(values)]
    if min(shape) < 0 or math.prod(shape) != len(values):
        raise Refusal(f"{name} has {len(values)} numbers, its shape {shape} asks for others")
    return values.reshape(shape)


def spread(
    values: Array, rows: Array, columns: Array, shape: Sequence[int], fill: int, name: str
) -> Array:
    """A dense matrix from compressed sparse rows; `Refusal` where indices and shape contradict."""
    is_sound = (
        len(shape) == 2
        and min(shape) >= 0
        and math.prod(shape) <= _MOST_NUMBERS
        and len(rows) == shape[0] + 1
        and len(columns) == len(values)
        and rows[0] == 0
        and rows[-1] == len(values)
        and bool((np.diff(rows) >= 0).all())
        and (not len(columns) or (columns.min() >= 0 and columns.max() < shape[1]))
    )
    if not is_sound:
        raise Refusal(f"{name}: its sparse rows contradict its shape {list(shape)}")
    dense = np.full(tuple(shape), fill, values.dtype)
    dense[np.repeat(np.arange(shape[0]), np.diff(rows)), columns] = values
    return dense


def _numbers(raw: bytes, dtype: Any, name: str) -> Array:
    if len(raw) % np.dtype(dtype).itemsize:
        raise Refusal(f"{name}: {len(raw)} bytes are no whole number of {np.dtype(dtype).name}")
    return np.frombuffer(raw, dtype)


def write_pass(logprobs: Sequence[Array], metrics: Mapping[str, float]) -> bytes:
    """Logprobs of each datum, (N,) or (N, K), and metrics, as a `ForwardBackwardOutput`."""
    message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    # Data of one trailing shape go into one record, in order.
    for trailing, group in itertools.groupby(logprobs, key=lambda one: one.shape[1:]):
        arrays = [np.ascontiguousarray(one, np.float32) for one in group]
        record = message.loss_fn_outputs.add(num_datums=len(arrays))
        field = record.fields["logprobs"]
        field.dtype = pb.DTYPE_FLOAT32
        field.trailing_shape.extend(trailing)
        field.data = b"".join(one.tobytes() for one in arrays)
        field.offsets = np.cumsum([0, *(one.nbytes for one in arrays)]).astype(np.int64).tobytes()
    message.metrics.update(metrics)
    return message.SerializeToString()


def write_samples(sequences: Sequence[Drawn], scores: Scores) -> bytes:
    """Sampled sequences and what was asked about the prompt, as a `SampleResponse`."""
    message = pb.SampleResponse()
    for one in sequences:
        sequence = message.sequences.add(
            stop_reason=pb.STOP_REASON_STOP if one.has_stopped else pb.STOP_REASON_LENGTH,
            tokens=one.tokens.astype(np.int32).tobytes(),
            logprobs=one.logprobs.astype(np.float32).tobytes(),
        )
        if one.top is not None:
            sequence.topk_sampled_logprobs.CopyFrom(_table(one.top))
    if scores.prompt is not None:
        message.prompt_logprobs = scores.prompt.astype(np.float32).tobytes()
    if scores.top is not None:
        message.topk_prompt_logprobs.CopyFrom(_table(scores.top))
    if scores.targets is not None:
        message.target_prompt_logprobs.CopyFrom(scores.targets)
    if scores.alternatives is not None:
        tokens, logprobs = scores.alternatives
        message.prompt_alt_tokens.tokens.CopyFrom(write_tensor(tokens, np.int64))
        message.prompt_alt_tokens.logprobs.CopyFrom(write_tensor(logprobs, np.float32))
    return message.SerializeToString()


def _table(top: TopK) -> pb.TopkLogprobs:
    """Places where nothing was computed hold NaN here, and id 0 with a sentinel on the wire."""
    is_empty = np.isnan(top.logprobs)
    return pb.TopkLogprobs(
        token_ids=np.where(is_empty, 0, top.tokens).astype(np.int32).tobytes(),
        logprobs=np.where(is_empty, _NO_LOGPROB, top.logprobs).astype(np.float32).tobytes(),
        length=top.tokens.shape[0],
        k=top.tokens.shape[1],
    )


def write_tensor(values: Array, dtype: Any) -> pb.Tensor:
    """A dense tensor."""
    kind = pb.DTYPE_INT64 if np.dtype(dtype) == np.int64 else pb.DTYPE_FLOAT32
    return pb.Tensor(
        dense=np.ascontiguousarray(values, dtype).tobytes(), dtype=kind, shape=list(values.shape)
    )


def write_sparse(values: Array, rows: Array, columns: Array, shape: Sequence[int]) -> pb.Tensor:
    """A float32 matrix in compressed sparse rows."""
    return pb.Tensor(
        sparse_csr=pb.SparseCsr(
            values=values.astype(np.float32).tobytes(),
            crow_indices=rows.astype(np.int64).tobytes(),
            col_indices=columns.astype(np.int64).tobytes(),
        ),
        dtype=pb.DTYPE_FLOAT32,
        shape=list(shape),
    )
