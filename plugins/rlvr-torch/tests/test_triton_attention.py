"""Triton's kernels of a decoding pass give what torch's operators give; in its interpreter."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlvr_process import run_rlvr

from rlvr import GenerateRequest, SamplingParams
from rlvr_torch.generation.captured.attention import Past, TableAttention, power
from rlvr_torch.generation.captured.engine import CapturedEngine
from rlvr_torch.generation.engine import Engine
from rlvr_torch.hardware import primitives
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.models.interface import Heads

from .conftest import NoEnd

CPU = torch.device("cpu")


KERNELS = "rlvr_torch.generation.captured.triton_attention"


@pytest.fixture(scope="module")
def kernels():
    """The module of kernels with a Triton of its own, which interprets them."""
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")  # is read while Triton is imported
        before = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_triton(name)}
        module = importlib.import_module(KERNELS)
        from triton.runtime import interpreter

        plain = interpreter.InterpreterBuilder.create_dot

        def create_dot(self, a, b, *rest):
            """Its own multiplies the bits of bfloat16 as whole numbers."""
            return plain(self, _widened(interpreter, a), _widened(interpreter, b), *rest)

        patch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)
        yield module
        for name in [name for name in sys.modules if _is_triton(name)]:
            del sys.modules[name]
        sys.modules.update(before)


def _is_triton(name):
    """Not its compiled part, which is loaded once a process."""
    is_compiled = name.startswith("triton._C")
    return name == KERNELS or (name.partition(".")[0] == "triton" and not is_compiled)


def _widened(interpreter, handle):
    import triton.language as tl

    if handle.dtype.scalar != tl.bfloat16:
        return handle
    numbers = (handle.data.astype(np.uint32) << 16).view(np.float32)
    return interpreter.TensorHandle(numbers, tl.float32)


@st.composite
def pasts(draw):
    """Rows of a few prompts, some of them free; all kinds of heads and of numbers."""
    keys = draw(st.sampled_from([1, 2, 3]))
    width = draw(st.sampled_from([4, 16, 24, 64]))
    heads = Heads(
        queries=keys * draw(st.sampled_from([1, 2, 3, 8])),
        keys=keys,
        width=width,
        scale=draw(st.sampled_from([width**-0.5, 0.7])),
        window=draw(st.sampled_from([None, None, 1, 5, 40])),
        softcap=draw(st.sampled_from([0.0, 0.0, 1.5, 30.0])),
    )
    lengths = draw(st.lists(st.integers(1, 32), min_size=1, max_size=3))
    rows = draw(st.sampled_from([1, 2, 3, 5, 18] if keys == 1 else [1, 2, 4]))
    places = st.one_of(st.none(), *[st.integers(0, len(lengths) - 1)] * 4)
    owner = draw(st.lists(places, min_size=rows, max_size=rows))
    ages = draw(st.lists(st.integers(0, 39), min_size=rows, max_size=rows))
    random = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    dtype = draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))

    def some(*shape):
        return torch.randn(*shape, generator=random).to(dtype)

    prompts, span, size = power(len(lengths)), 32, draw(st.sampled_from([16, 64]))
    parts = -(-40 // size)
    pages = torch.randperm(rows * parts + 2, generator=random)[: rows * parts].view(rows, parts)
    mine = [0 if place is None else lengths[place] for place in owner]
    past = Past(
        rows=rows,
        span=span,
        width=parts * size,
        pages=pages.int(),
        lengths=torch.tensor(mine)[:, None],
        ages=torch.tensor(ages)[:, None],
        prompt_keys=[some(prompts, keys, width, span)],
        prompt_values=[some(prompts, keys, span, width)],
        keys=[some(rows * parts + 2, keys, size, width)],
        values=[some(rows * parts + 2, keys, size, width)],
    )
    sinks = torch.randn(heads.queries, generator=random) if draw(st.booleans()) else None
    return heads, owner, past, some(rows, heads.queries, 1, width), sinks


def mixed(attention, owner, past, q, sinks):
    """What it gives, of the rows that are not free."""
    attention.seat(owner, past.rows)
    attention.open(past)
    living = [row for row, place in enumerate(owner) if place is not None]
    return attention.attend(0, q, sinks)[living].float()


@given(case=pasts(), part=st.sampled_from([16, 32, 256]))
@settings(max_examples=6, deadline=None)
def test_kernels_give_what_operators_give(kernels, case, part):
    """Grouped heads, windows, soft caps, sinks, shared prompts, free rows, parts of any number."""
    heads, owner, past, q, sinks = case
    wanted = mixed(TableAttention([heads], CPU), owner, past, q, sinks)
    attention = kernels.TritonAttention([heads], CPU)
    attention._part = part
    tolerance = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 4e-2}[q.dtype]
    torch.testing.assert_close(
        mixed(attention, owner, past, q, sinks), wanted, rtol=tolerance, atol=tolerance
    )


def test_what_lies_behind_the_keys_is_not_read(kernels):
    """Slots that nobody wrote may hold anything, also what is not a number."""
    heads = Heads(queries=4, keys=2, width=8, scale=1.0)
    past = Past(
        rows=2,
        span=32,
        width=32,
        pages=torch.tensor([[1], [0]], dtype=torch.int32),
        lengths=torch.tensor([[5], [0]]),
        ages=torch.tensor([[3], [0]]),
        prompt_keys=[torch.randn(1, 2, 8, 32)],
        prompt_values=[torch.randn(1, 2, 32, 8)],
        keys=[torch.randn(2, 2, 32, 8)],
        values=[torch.randn(2, 2, 32, 8)],
    )
    q, owner = torch.randn(2, 4, 1, 8), [0, 0]
    attention = kernels.TritonAttention([heads], CPU)
    wanted = mixed(attention, owner, past, q, None)
    past.prompt_keys[0][..., 5:] = past.prompt_values[0][:, :, 5:] = float("nan")
    past.keys[0][1, :, 4:] = past.values[0][1, :, 4:] = float("nan")
    past.keys[0][0, :, 1:] = past.values[0][0, :, 1:] = float("nan")
    assert torch.equal(mixed(attention, owner, past, q, None), wanted)


def test_a_prompt_is_read_once_for_its_rows(kernels):
    """A group of 16 is one item; other groups and free rows are others, whatever their order."""
    attention = kernels.TritonAttention([Heads(queries=4, keys=4, width=8, scale=1.0)], CPU)
    owner = [1, None, *[0] * 16, 1, 0]
    assert attention.seat(owner, 32) == 2
    items = [
        (place, [row for row in rows if row >= 0])
        for place, rows in zip(
            attention._item_places.tolist(), attention._item_rows.tolist(), strict=True
        )
        if max(rows) >= 0
    ]
    assert items == [(1, [0, 18]), (0, [1, *range(2, 17)]), (0, [17, 19])]


COMPILE = """
import sys
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from rlvr_torch.generation.captured import triton_attention as kernels
from rlvr_torch.generation.captured.pages import PAGE
from rlvr_torch.models.interface import Heads

# of float32 the widest: no other takes as much shared memory
KINDS = [(128, "bf16", 2), (512, "bf16", 2), (512, "fp32", 4)]
for width, name, size in KINDS:
    heads = Heads(queries=16, keys=4, width=width, scale=0.1, window=64, softcap=30.0)
    rows = kernels.TritonAttention([heads], torch.device("cpu"))._rows
    shape = kernels.shape_of(heads, size, PAGE)
    stages = shape.pop("num_stages")
    given = {**shape, "B": rows, "M": 4 * rows, "HAS_SINKS": True, "PART": 256, "PAGE": PAGE}
    whole = {"item_places": "*i32", "item_rows": "*i32", "lengths": "*i64", "ages": "*i64"}
    whole |= dict.fromkeys(("tops", "totals", "mixes", "sinks"), "*fp32") | {"scale": "fp32"}
    whole["pages"] = "*i32"
    whole |= dict.fromkeys(("q", "keys", "values", "out"), f"*{name}")
    for kernel in (kernels._over_prompts, kernels._over_own, kernels._together):
        names = kernel.arg_names
        constants = {(names.index(n),): value for n, value in given.items() if n in names}
        types = {n: "constexpr" if n in given else whole.get(n, "i32") for n in names}
        source = ASTSource(fn=kernel, signature=types, constexprs=constants)
        done = triton.compile(
            source, target=GPUTarget("cuda", 89, 32), options={"num_stages": stages}
        )
        assert done.metadata.shared <= 99 * 1024, (name, kernel, done.metadata.shared)
        print(name, len(done.asm["ptx"]) > 0)
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_kernels_compile_for_ada(tmp_path):
    """For compute capability 8.9, without a card: types are right, shared memory is enough."""
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    program = tmp_path / "compile.py"
    program.write_text(COMPILE)
    done = run_rlvr(env=environment, program=program, cwd=tmp_path)
    assert done.stdout.split() == ["bf16", "True"] * 6 + ["fp32", "True"] * 3, done.stderr


@pytest.mark.one_of(2, "gpt_oss")
@pytest.mark.parametrize("family", ["gpt_oss", "gemma2"])
def test_an_engine_with_the_kernels_draws_the_same(kernels, make_hf, family):
    """Two groups whose rows end one after the other."""
    net = load_net(str(make_hf(family)))
    requests = [
        GenerateRequest(
            prompt=np.arange(1, 9 + 4 * (i % 2)), params=SamplingParams(max_tokens=1 + i), seed=i
        )
        for i in range(3)
    ]
    engine = CapturedEngine(net, NoEnd(), attention=kernels.TritonAttention)
    wanted = Engine(net, NoEnd()).generate(requests)
    for found, other in zip(engine.generate(requests), wanted, strict=True):
        assert found.tokens.tolist() == other.tokens.tolist()
        np.testing.assert_allclose(found.logprobs, other.logprobs, atol=2e-5)


@pytest.mark.parametrize(("device", "is_there"), [("cuda", False), ("cpu", True)])
def test_without_triton_operators_serve(monkeypatch, device, is_there):
    """A card without Triton, and any other device."""
    monkeypatch.setattr(primitives, "find_spec", lambda name: object() if is_there else None)
    chosen = primitives.CUDA.engine.keywords["attention"]
    heads = [Heads(queries=2, keys=2, width=8, scale=1.0)]
    monkeypatch.setattr(primitives, "TableAttention", lambda heads, device: (heads, device))
    assert chosen(heads, torch.device(device)) == (heads, torch.device(device))


def test_a_card_with_triton_takes_the_kernels(kernels, monkeypatch):
    """The record of a card names them."""
    made = []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(kernels, "build", lambda: None)
    monkeypatch.setattr(kernels, "TritonAttention", lambda *given: made.append(given))
    primitives.CUDA.engine.keywords["attention"]([], torch.device("cuda"))
    assert made == [([], torch.device("cuda"))]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(("card", "width"), [((7, 5), 64), ((8, 9), 520)])
def test_what_the_kernels_do_not_hold_takes_operators(card, width, monkeypatch):
    """A card that Triton does not support (in float32 the backend runs there); very wide heads."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: card)
    monkeypatch.setattr(primitives, "TableAttention", lambda heads, device: "operators")
    heads = [Heads(queries=2, keys=2, width=width, scale=1.0)]
    attention = primitives.CUDA.engine.keywords["attention"]
    assert attention(heads, torch.device("cuda")) == "operators"


def test_without_a_compiler_operators_serve(kernels, monkeypatch):
    """Triton builds what it calls a card with by a C compiler; a machine may have none."""

    def failing():
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    monkeypatch.setattr(kernels, "build", failing)
    monkeypatch.setattr(primitives, "TableAttention", lambda heads, device: "operators")
    with pytest.warns(RuntimeWarning, match="without Triton's kernels: Failed to find C"):
        chosen = primitives.CUDA.engine.keywords["attention"]([], torch.device("cuda"))
    assert chosen == "operators"
