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

from rlvr import ConfigError, UnknownNameError
from rlvr_tinker.service.usage import FILE, Usage, read_ledger

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
    parts = read_parts(args.run)
    bills = [
        (part, bill(part, read_prices(args.prices, part.model) if args.prices else {}))
        for part in parts
    ]
    if args.json:
        print(json.dumps(_as_json(bills, has_prices=bool(args.prices)), indent=2))
        return 0
    for part, lines in bills:
        states = f", {part.states} states saved" if part.states else ""
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
    first = bills[0][0]
    record: dict[str, Any] = {"model": first.model, "states": first.states}
    record["tokens"] = {
        what: sum(line.tokens for _, lines in bills for line in lines if line.what == what)
        for what in _KINDS
    }
    record["parts"] = [
        {
            "role": part.role,
            "model": part.model,
            "tokens": {line.what: line.tokens for line in lines},
            **({"cost": {line.what: line.cost for line in lines}} if has_prices else {}),
        }
        for part, lines in bills
    ]
    if has_prices:
        costs = {
            what: sum(line.cost for _, lines in bills for line in lines if line.what == what)
            for what in _KINDS
        }
        record |= {"cost": costs, "total": sum(costs.values())}
    return record


def say_used(run: Path) -> None:
    """Print on standard error the tokens of each model of a run; nothing where it has no ledger."""
    try:
        parts = sorted(read_ledger(run), key=lambda part: part.role != "policy")
    except OSError:
        return
    for part in parts:
        counts = [f"{line.tokens:,d} {line.what}" for line in bill(part, {}) if line.tokens]
        print(f"tokens     {part.role} {part.model}: {', '.join(counts)}", file=sys.stderr)
    if parts:
        print(f"           in money: rlvr tinker cost {run} --prices FILE", file=sys.stderr)


def tokens_of(run: Path) -> dict[str, Any]:
    """The tokens of a run, as `rlvr tinker cost --json` tells them; {} where it has no ledger."""
    try:
        has_ledger = bool(read_ledger(run))
    except OSError:
        return {}
    if not has_ledger:
        return {}
    return _as_json([(part, bill(part, {})) for part in read_parts(run)], has_prices=False)


def bill(usage: Usage, prices: Mapping[str, float]) -> list[Line]:
    """One line for each kind of token; costs are 0 without prices."""
    lines = []
    for what, kind in _KINDS.items():
        tokens, price = int(getattr(usage, what)), prices.get(kind, 0.0)
        lines.append(Line(what=what, tokens=tokens, price=price, cost=tokens * price / _UNIT))
    return lines


def read_parts(run: Path) -> list[Usage]:
    """
    The counts of each model of a run, the policy first.

    Raises:
        UnknownNameError: It has none: it did not ask the service for anything.
    """
    try:
        found = read_ledger(run)
    except OSError as error:
        raise UnknownNameError(
            f"the cost of the run {run} was asked for.", f"found: {error}"
        ) from error
    found.sort(key=lambda part: part.role != "policy")
    return found or [read_usage(run)]


def read_usage(run: Path) -> Usage:
    """
    The counts of a run that keeps no ledger.

    Raises:
        UnknownNameError: It has none: it did not train on the service.
    """
    try:
        record = json.loads((run / FILE).read_text(encoding="utf-8"))
        usage = Usage(model=str(record["model"]))
        usage.restore(record)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnknownNameError(
            f"the cost of the run {run} was asked for.",
            f"found: no usable {FILE} in it ({error})",
            "give the directory of a run with --backend tinker: rlvr runs list",
        ) from error
    return usage


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
