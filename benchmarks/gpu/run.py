"""
The figures of docs/gpu.md: training, decoding, a GRPO step, switches, memory beside the plan.

    python benchmarks/gpu/run.py                        # all of them, on the GPU
    python benchmarks/gpu/run.py --only training        # or decoding, step, switches
    python benchmarks/gpu/run.py --device cpu --tiny    # the same program, small, on a CPU

Models are public configurations with random weights: nothing is downloaded. Each row is a line of
the table in docs/gpu.md. MFU is of the matrix product's peak that was measured on the same card
before. A figure above the card's data sheet (165 TFLOP/s for a 4090) ends the run with exit code 1.
vLLM and TRL are measured where they are installed, each in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen

sys.path.insert(0, str(Path(__file__).parent))

from figures import Device, NotBelievableError, Work, decode_limit, training_flops
from work import Ours, Timed, timed, transformers_decode, write_model

from rlvr import PrerequisiteError
from rlvr_rtx4090.card import Card
from rlvr_rtx4090.measure import bandwidth, matmul_peak
from rlvr_torch.memory_plan import GIB, MemoryPlan, Settings, fit
from rlvr_torch.memory_table import MODELS
from rlvr_torch.models.shape import Shape
from rlvr_torch.runtime.device import memory_of

HERE = Path(__file__).parent
PARTS = ("training", "decoding", "step", "switches")
SWITCHES: Mapping[str, Mapping[str, Any]] = {
    "bf16": {"dtype": "float32"},
    "weight copies": {"weight_copies": False},
    "TF32": {"tf32": False},
    "flash attention": {"attention": "plain"},
    "torch.compile": {"compile": "off"},
    "gradient checkpointing": {"checkpointing": "layers"},
    "fused AdamW": {"optimizer": "adamw-unfused"},
    "8-bit AdamW": {"optimizer": "adamw-8bit"},
    "CPU offload": {"optimizer": "adamw-offload"},
    "CUDA graphs": {"graphs": False},
    "batched generation": {"decode_rows": 1},
}
"""The optimisations of RookWorld's list: the `torch.*` value that turns each to its other side."""


@frozen(kw_only=True)
class Bench:
    """What all measurements share."""

    device: torch.device
    found: Device
    memory: int
    folder: Path
    repeats: int
    models: tuple[tuple[Shape, int], ...]  # with the rank of adapters; 0: full training
    work: Work

    def plan(self, shape: Shape, rank: int) -> MemoryPlan:
        """The plan whose options are measured."""
        settings = Settings(
            lora_rank=rank,
            prompt=self.work.prompt,
            completion=self.work.completion,
            group=self.work.group,
        )
        return fit(shape, settings, self.memory, fixed=frozenset({"lora_rank"}))

    def ours(self, shape: Shape, rank: int, **changes: Any) -> Ours:
        """The backend with the plan's options, some of them changed."""
        options = self.plan(shape, rank).options() | changes
        spec = write_model(shape, self.folder, self.device)
        return Ours(spec, options, self.work, self.device)


def training(bench: Bench) -> Iterator[tuple[str, str]]:
    """Tokens/s, TFLOP/s, MFU and memory of an update."""
    for shape, rank in bench.models:
        name = f"training, {shape.name} {'LoRA' if rank else 'full'}"
        yield name, _tried(partial(_train, bench, shape, rank))


def _train(bench: Bench, shape: Shape, rank: int) -> str:
    ours = bench.ours(shape, rank)
    found = timed(ours.update, bench.repeats)
    ours.close()
    return _training_figure(bench, shape, rank, found)


def _training_figure(bench: Bench, shape: Shape, rank: int, found: Timed) -> str:
    work, plan = bench.work, bench.plan(shape, rank)
    flops = training_flops(shape, work, is_full=not rank) / found.seconds / 1e12
    tflops = bench.found.believable(flops)
    planned = plan.peak - max(0, sum(plan.sampling.values()) - sum(plan.training.values()))
    peak = f"{found.peak / GIB:.2f}" if found.peak else "not measured on a CPU"
    return (
        f"{work.tokens / found.seconds:.0f} tokens/s; {tflops:.3g} TFLOP/s; "
        f"MFU {tflops / bench.found.peak:.0%}; peak {peak} of {planned / GIB:.2f} GiB planned"
    )


def decoding(bench: Bench) -> Iterator[tuple[str, str]]:
    """Tokens/s beside the limit of the memory, transformers and vLLM on the same work."""
    for shape, rank in bench.models[:2]:
        yield from _decode(bench, shape, rank)


def _decode(bench: Bench, shape: Shape, rank: int) -> Iterator[tuple[str, str]]:
    work, is_gpu = bench.work, bench.device.type == "cuda"
    limit = decode_limit(shape, work, bench.found.bandwidth, 2 if is_gpu else 4)
    own = 0.0

    def mine() -> str:
        nonlocal own
        ours = bench.ours(shape, rank, dtype="bfloat16" if is_gpu else "float32")
        drawn = ours.decode()
        own = drawn / timed(ours.decode, bench.repeats).seconds
        ours.close()
        return f"{own:.0f} tokens/s; {own / limit:.0%} of the memory's limit"

    def theirs() -> str:
        draw = transformers_decode(write_model(shape, bench.folder, bench.device), work)
        rate = draw() / timed(draw, bench.repeats).seconds
        return f"{rate:.0f} tokens/s; ours {own / rate:.2f} times as fast"

    def vllm() -> str:
        place = write_model(shape, bench.folder, bench.device).partition(":")[2]
        sizes = map(str, (work.groups, work.group, work.prompt, work.completion))
        rate = float(_last_line([sys.executable, str(HERE / "vllm_decode.py"), place, *sizes]))
        return f"{rate:.0f} tokens/s; ours {own / rate:.2f} times as fast"

    name = f"decoding, {shape.name}, {work.groups * work.group} rows"
    yield name, _tried(mine)
    yield f"{name}: transformers", _tried(theirs)
    yield f"{name}: vLLM", _tried(vllm, needs="vllm")


def step(bench: Bench) -> Iterator[tuple[str, str]]:
    """A whole GRPO step, and TRL's beside it."""
    shape, rank = bench.models[0]

    def mine() -> str:
        ours = bench.ours(shape, rank)
        seconds = timed(ours.step, bench.repeats).seconds
        ours.close()
        return f"{seconds:.2f} s; {bench.work.drawn / seconds:.0f} drawn tokens/s"

    def trl(*more: str) -> Callable[[], str]:
        def measure() -> str:
            command = [sys.executable, str(HERE.parent / "bench_step.py"), "--json", *more]
            command += ["--config", "124m" if shape.width == 768 else "small"]
            command += ["--device", bench.device.type, "--rounds", str(bench.repeats)]
            if bench.device.type == "cuda":
                command += ["--dtype", "bfloat16"]
            result = json.loads(_last_line(command))
            return f"{result['trl_wall_s']:.2f} s; ours {result['wall_ratio']:.2f} times as fast"

        return measure

    yield f"GRPO step, {shape.name}", _tried(mine)
    yield f"GRPO step, {shape.name}: TRL", _tried(trl(), needs="trl")
    yield f"GRPO step, {shape.name}: TRL with vLLM", _tried(trl("--trl-vllm"), needs="trl vllm")


def switches(bench: Bench) -> Iterator[tuple[str, str]]:
    """Each optimisation turned to its other side, and all that are on turned off together."""
    shape, rank = bench.models[0]
    base = {"update": 0.0, "decode": 0.0}

    def measure(changes: Mapping[str, Any], part: str) -> Callable[[], str]:
        def work() -> str:
            ours = bench.ours(shape, rank, **changes)
            count = bench.work.tokens
            if part == "decode":
                count = ours.decode()
            found = timed(getattr(ours, part), bench.repeats)
            ours.close()
            rate = count / found.seconds
            if not changes:
                base[part] = rate
                return f"{rate:.0f} tokens/s"
            memory = f"; peak {found.peak / GIB:.2f} GiB" if found.peak else ""
            return f"{rate:.0f} tokens/s, {rate / base[part]:.2f} of all on{memory}"

        return work

    yield "switches, all on: update", _tried(measure({}, "update"))
    yield "switches, all on: decoding", _tried(measure({}, "decode"))
    for name, changes in SWITCHES.items():
        part = "decode" if name in ("CUDA graphs", "batched generation") else "update"
        values = ", ".join(f"torch.{key}={value}".lower() for key, value in changes.items())
        yield f"switch {name}: {values}", _tried(measure(changes, part))
    off = {k: v for name in ("bf16", "TF32", "flash attention", "torch.compile")
           for k, v in SWITCHES[name].items()}  # fmt: skip
    yield "switches, float32 eager: update", _tried(measure(off, "update"))


def _tried(measure: Callable[[], str], needs: str = "") -> str:
    """The figure; or why there is none: a library is missing, or the memory is too small."""
    if missing := [name for name in needs.split() if importlib.util.find_spec(name) is None]:
        return f"not measured: {' and '.join(missing)} not installed"
    try:
        return measure()
    except (torch.OutOfMemoryError, subprocess.CalledProcessError, PrerequisiteError) as error:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        reason = "; ".join(line.strip() for line in str(error).splitlines()[:2])
        return f"not measured: {type(error).__name__}: {reason[:160]}"


def _last_line(command: list[str]) -> str:
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return found.splitlines()[-1]


def device_of(device: torch.device, is_tiny: bool) -> Device:
    """The device with its measured peaks."""
    card = Card.find() if device.type == "cuda" else None
    dtype = torch.bfloat16 if card else torch.float32
    sizes, least_s = ((512,), 0.02) if is_tiny else ((4096, 8192), 0.3)
    return Device(
        name=card.name if card else platform.processor() or platform.machine(),
        peak=matmul_peak(device, dtype, sizes, least_s),
        bandwidth=bandwidth(device, 16 if is_tiny else 1024, least_s),
        sheet=card.limits if card else None,
    )


def bench_of(args: argparse.Namespace, folder: Path) -> Bench:
    """What is measured: real models and lengths, or tiny ones."""
    device = torch.device(args.device)
    models = ((MODELS[0], 0), (MODELS[1], 0), (MODELS[3], 16), (MODELS[4], 16))
    work = Work(groups=8, group=8, prompt=512, completion=256)
    if args.tiny:
        work = Work(groups=2, group=2, prompt=12, completion=8)
        models = tuple((_tiny(shape), min(rank, 4)) for shape, rank in (models[0], models[2]))
    return Bench(
        device=device,
        found=device_of(device, args.tiny),
        memory=memory_of(device),
        folder=folder,
        repeats=1 if args.tiny else args.repeats,
        models=models,
        work=work,
    )


def _tiny(shape: Shape) -> Shape:
    heads = {"heads": 4, "key_heads": 4 if not shape.is_gated else 2, "head_width": 16}
    name = f"tiny {shape.name}"
    return evolve(shape, name=name, layers=2, width=64, inner=256, vocabulary=300, **heads)


def versions() -> str:
    """Of what the figures depend on."""
    names = ("torch", "transformers", "peft", "bitsandbytes", "vllm", "trl")
    found = []
    for name in names:
        if importlib.util.find_spec(name) is not None:
            found.append(f"{name} {importlib.metadata.version(name)}")
    if torch.version.cuda:
        found.append(f"CUDA {torch.version.cuda}")
    return ", ".join(found)


def main() -> int:
    """Print the table; 1 where a figure is not believable."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models and lengths")
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="keep the written models there")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("there is no GPU here; try: --device cpu --tiny", file=sys.stderr)
        return 4
    rows: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as made:
        bench = bench_of(args, args.folder or Path(made))
        found = bench.found
        sheet = f"; data sheet: {found.sheet[0]:g} and {found.sheet[1]:g}" if found.sheet else ""
        rows["device"] = f"{found.name}, {bench.memory / GIB:.1f} GiB; {versions()}"
        rows["matrix product, memory"] = (
            f"{found.peak:.3g} TFLOP/s, {found.bandwidth:.0f} GB/s{sheet}"
        )
        if not args.json:
            print("\n".join(f"| {name} | {figure} |" for name, figure in rows.items()))
        try:
            found.check()
            for part in args.only or PARTS:
                for name, figure in globals()[part](bench):
                    rows[name] = figure
                    if not args.json:
                        print(f"| {name} | {figure} |", flush=True)
        except NotBelievableError as error:
            print(f"refused: {error}", file=sys.stderr)
            return 1
    if args.json:
        print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
