"""`rlvr tinker cost`: what a run has cost, by a table of prices that you give."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr import ConfigError, UnknownNameError, counted
from rlvr_tinker.service.usage import LEDGER, Usage, read_ledger

_KINDS = {"prefilled": "prefill", "sampled": "sample", "trained": "train", "scored": "prefill"}
"""What is counted, and the price that it is charged at."""
_UNIT = 1_000_000


@frozen(kw_only=True)
class Line:
    """One line of the bill."""

    what: str
    tokens: int
    price: float
    cost: float


def main(argv: Sequence[str]) -> int:
    """Print tokens and cost of a run."""
    parser = argparse.ArgumentParser(
        prog="rlvr tinker cost",
        description="What a run on the Tinker service has cost: its tokens, times a table of "
        "prices. The table is a JSON file: model to the price of a million tokens of each kind, "
        '{"MODEL": {"prefill": 0.1, "sample": 0.4, "train": 0.9}}; what a service charges for '
        "storage is not counted.",
    )
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("--prices", type=Path, help="the table; without one only tokens are shown")
    parser.add_argument("--json", action="store_true", help="as JSON")
    args = parser.parse_args(argv)
    bills = [
        (part, bill(part, read_prices(args.prices, part.model) if args.prices else {}))
        for part in read_parts(args.run)
    ]
    if args.json:
        print(json.dumps(_as_json(bills, has_prices=bool(args.prices)), indent=2))
        return 0
    for part, lines in bills:
        states = f", {counted(part.states, 'state')} saved" if part.states else ""
        print(f"{part.role} {part.model}{states}")
        for line in lines:
            price = f"  at {line.price:g} a million  {line.cost:10.4f}" if args.prices else ""
            print(f"  {line.what:10} {line.tokens:14,d} tokens{price}")
    if args.prices:
        total = sum(line.cost for _, lines in bills for line in lines)
        print(f"{'total':49} {total:12.4f}")
    return 0


def _as_json(bills: Sequence[tuple[Usage, list[Line]]], *, has_prices: bool) -> dict[str, Any]:
    """The sums over all models, and under `parts` each of them."""
    fields = ("tokens", "cost") if has_prices else ("tokens",)
    parts: list[dict[str, Any]] = [
        {
            "role": part.role,
            "model": part.model,
            **{name: {line.what: getattr(line, name) for line in lines} for name in fields},
        }
        for part, lines in bills
    ]
    record: dict[str, Any] = {"model": bills[0][0].model, "states": bills[0][0].states}
    for name in fields:
        record[name] = {what: sum(part[name][what] for part in parts) for what in _KINDS}
    if has_prices:
        record["total"] = sum(record["cost"].values())
    return {**record, "parts": parts}


def say_used(run: Path) -> None:
    """Print on standard error the tokens of each model of a run; nothing where it has no ledger."""
    parts = _parts(run)
    for part in parts:
        counts = [f"{line.tokens:,d} {line.what}" for line in bill(part, {}) if line.tokens]
        print(f"tokens     {part.role} {part.model}: {', '.join(counts)}", file=sys.stderr)
    if parts:
        print(f"           in money: rlvr tinker cost {run} --prices FILE", file=sys.stderr)


def tokens_of(run: Path) -> dict[str, Any]:
    """The tokens of a run, as `rlvr tinker cost --json` tells them; {} where it has no ledger."""
    bills = [(part, bill(part, {})) for part in _parts(run)]
    return _as_json(bills, has_prices=False) if bills else {}


def bill(usage: Usage, prices: Mapping[str, float]) -> list[Line]:
    """One line for each kind of token; costs are 0 without prices."""
    lines = []
    for what, kind in _KINDS.items():
        tokens, price = usage.counts[what], prices.get(kind, 0.0)
        lines.append(Line(what=what, tokens=tokens, price=price, cost=tokens * price / _UNIT))
    return lines


def read_parts(run: Path) -> list[Usage]:
    """
    The counts of each model of a run, the policy first.

    Raises:
        UnknownNameError: It has none: it did not ask the service for anything.
    """
    if parts := _parts(run):
        return parts
    raise UnknownNameError(
        f"the cost of the run {run} was asked for.",
        f"found: no usable {LEDGER} in it",
        "give the directory of a run with --backend tinker: rlvr runs list",
    )


def _parts(run: Path) -> list[Usage]:
    try:
        return sorted(read_ledger(run), key=lambda part: part.role != "policy")
    except OSError:
        return []


def read_prices(path: Path, model: str) -> dict[str, float]:
    """
    The prices of one model, of a million tokens each.

    Raises:
        ConfigError: The table cannot be read, lacks the model, or a price is no number.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        prices = {kind: float(table[model][kind]) for kind in ("prefill", "sample", "train")}
        if not all(math.isfinite(price) and price >= 0 for price in prices.values()):
            raise ValueError("a price is negative or not finite")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the prices in {path} were asked for.",
            f"found: {type(error).__name__}: {error}",
            f'write: {{"{model}": {{"prefill": 0.1, "sample": 0.4, "train": 0.9}}}}',
        ) from error
    return prices
