"""`rlvr tinker models`: what the service offers."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence

from attrs import asdict

from rlvr_tinker.config import TinkerConfig
from rlvr_tinker.service.client import Service


def main(argv: Sequence[str]) -> int:
    """List the service's models, one a line."""
    parser = argparse.ArgumentParser(
        prog="rlvr tinker models",
        description="List the models that the Tinker service offers to your key.",
    )
    parser.add_argument(
        "--url", default="", help="the service; default: TINKER_BASE_URL, or Tinker"
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    args = parser.parse_args(argv)
    found = asyncio.run(Service(TinkerConfig(base_url=args.url)).watched_models())
    if args.json:
        print(json.dumps([asdict(model) for model in found], indent=2))
        return 0
    width = max((len(model.name) for model in found), default=4)
    print(f"{'MODEL':{width}}  CONTEXT  TRAINABLE")
    for model in found:
        context = str(model.context_length or "?")
        print(f"{model.name:{width}}  {context:>7}  {'yes' if model.is_trainable else 'no'}")
    return 0
