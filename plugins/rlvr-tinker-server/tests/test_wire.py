"""The wire against the SDK's own converters, and against bytes that mean nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinker import types
from tinker.proto import tinker_public_pb2 as pb
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.proto.response_conv import (
    deserialize_forward_backward_output,
    deserialize_sample_response,
)

from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.wire import (
    Drawn,
    Scores,
    TopK,
    read_pass,
    write_pass,
    write_samples,
    write_sparse,
)


def request(*data, loss="ppo", config=None):
    """The bytes that the SDK sends."""
    asked = types.ForwardBackwardRequest(
        forward_backward_input=types.ForwardBackwardInput(
            data=list(data), loss_fn=loss, loss_fn_config=config
        ),
        model_id="m",
        seq_id=7,
    )
    return forward_backward_request_to_proto(asked).SerializeToString()


def test_a_pass_is_read_as_the_sdk_writes_it():
    """Tokens, tensors, loss and settings arrive, those of text as text."""
    datum = types.Datum(
        model_input=types.ModelInput(
            chunks=[types.EncodedTextChunk(tokens=[5, 6]), types.EncodedTextChunk(tokens=[7])]
        ),
        loss_fn_inputs={"target_tokens": [6, 7, 8], "advantages": [0.0, 1.5, -2.0]},
    )

    found = read_pass(request(datum, config={"clip_low_threshold": 0.5, "how": "so"}))

    assert (found.model_id, found.seq_id, found.loss) == ("m", 7, "ppo")
    assert found.config == {"clip_low_threshold": 0.5, "how": "so"}
    assert not found.is_forward_only
    (row,) = found.rows
    assert row.tokens.tolist() == [5, 6, 7]
    assert row.inputs["target_tokens"].tolist() == [6, 7, 8]
    assert row.inputs["advantages"].tolist() == [0.0, 1.5, -2.0]


def test_sparse_tables_are_spread_out():
    """What the SDK makes sparse to save bytes is the same table here."""
    torch = pytest.importorskip("torch")
    table = torch.zeros(4, 9, dtype=torch.int64)
    table[1, 2], table[3, 8] = 5, 6
    datum = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2, 3, 4]),
        loss_fn_inputs={"target_tokens": table, "weights": table.float()},
    )
    assert datum.loss_fn_inputs["target_tokens"].sparse_crow_indices is not None

    (row,) = read_pass(request(datum, loss="cross_entropy")).rows

    assert np.array_equal(row.inputs["target_tokens"], table.numpy())
    assert np.array_equal(row.inputs["weights"], table.float().numpy())


def test_a_pass_is_answered_as_the_sdk_reads_it():
    """Logprobs of each datum in order, also where some are tables, and metrics."""
    logprobs = [np.array([-1.0, -2.5]), np.array([[-1.0, -2.0], [-3.0, -4.0]]), np.array([-7.0])]

    found = deserialize_forward_backward_output(write_pass(logprobs, {"loss:sum": 3.25}))

    assert found.metrics == {"loss:sum": 3.25}
    for one, wanted in zip(found.loss_fn_outputs, logprobs, strict=True):
        assert one["logprobs"].to_numpy().tolist() == wanted.tolist()


def test_samples_are_answered_as_the_sdk_reads_them():
    """Sequences, prompt logprobs with None where there are none, tables, sparse targets."""
    top = TopK(
        tokens=np.array([[0, 0], [4, 2]]), logprobs=np.array([[np.nan, np.nan], [-0.5, -1.5]])
    )
    drawn = [
        Drawn(tokens=np.array([3, 4]), logprobs=np.array([-1.0, -2.0]), has_stopped=True, top=top),
        Drawn(tokens=np.array([5]), logprobs=np.array([-0.25]), has_stopped=False),
    ]
    crow, columns = np.array([0, 0, 2]), np.array([1, 3])
    scores = Scores(
        prompt=np.array([np.nan, -0.5, -3.0]),
        top=top,
        targets=write_sparse(np.array([-1.0, -4.0]), crow, columns, (2, 5)),
        alternatives=(np.array([[1], [2]]), np.array([[-0.5], [-0.75]])),
    )

    found = deserialize_sample_response(write_samples(drawn, scores))

    assert [s.tokens for s in found.sequences] == [[3, 4], [5]]
    assert [s.logprobs for s in found.sequences] == [[-1.0, -2.0], [-0.25]]
    assert [s.stop_reason for s in found.sequences] == ["stop", "length"]
    assert found.sequences[0].topk_logprobs == [None, [(4, -0.5), (2, -1.5)]]
    assert found.prompt_logprobs == [None, -0.5, -3.0]
    assert found.topk_prompt_logprobs == [None, [(4, -0.5), (2, -1.5)]]
    assert found.target_prompt_logprobs.sparse_crow_indices == [0, 0, 2]
    assert found.target_prompt_logprobs.to_numpy()[1].tolist() == [0, -1.0, 0, -4.0, 0]
    assert found.prompt_alt_tokens.tokens.to_numpy().tolist() == [[1], [2]]


def refused(body):
    """Why a body is not read; None where it is."""
    try:
        read_pass(body)
    except Refusal as refusal:
        return refusal
    return None


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_bytes_that_mean_nothing_are_refused(body):
    """Whatever arrives is read or refused; nothing else happens."""
    refusal = refused(body)
    assert refusal is None or refusal.status == 400


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_tensors_that_contradict_themselves_are_refused(data):
    """Types, shapes and sparse indices of a well-formed message may lie about each other."""
    numbers = st.lists(st.integers(-3, 9), max_size=6)
    message = pb.ForwardBackwardRequest(model_id="m", loss_fn="ppo")
    tensor = message.data.add().loss_fn_inputs["weights"]
    tensor.dtype = data.draw(st.integers(0, 4))
    tensor.shape.extend(data.draw(st.lists(st.integers(-2, 1 << 40), max_size=3)))
    if data.draw(st.booleans()):
        for name in ("values", "crow_indices", "col_indices"):
            setattr(tensor.sparse_csr, name, np.array(data.draw(numbers), np.int64).tobytes())
    else:
        tensor.dense = data.draw(st.binary(max_size=20))
    refusal = refused(message.SerializeToString())
    if refusal is not None:
        assert "weights" in str(refusal)
        return
    (row,) = read_pass(message.SerializeToString()).rows
    found = row.inputs["weights"]
    assert list(found.shape) == (list(tensor.shape) or [len(tensor.dense) // found.itemsize])


@pytest.mark.parametrize("kind", ["image", "dmel", None])
def test_only_text_is_read(kind):
    """Pictures and sounds are refused by name."""
    message = pb.ForwardBackwardRequest(model_id="m", loss_fn="ppo")
    chunk = message.data.add().model_input.add()
    if kind is not None:
        getattr(chunk, kind).SetInParent()
    with pytest.raises(Refusal, match=f"datum 0 holds {kind or 'an empty chunk'}"):
        read_pass(message.SerializeToString())
