"""`rlvr tinker-server --model SPEC`: serve the Tinker API until Ctrl-C."""

from __future__ import annotations

import argparse
import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path

from rlvr import ConfigError, ExitCode, PrerequisiteError, pip_install, weights_of

_EXAMPLES = """examples:
  rlvr tinker-server --model hf:Qwen/Qwen3-0.6B
  rlvr tinker-server --model starter --plugin cvdp --port 0
  rlvr tinker-server --model hf:DIR --host 0.0.0.0 --key-file key.txt
"""


def main(argv: Sequence[str]) -> int:
    """
    Load the model, print how to reach it, serve.

    Raises:
        ConfigError: The address is taken or not safe, or a value is out of range.
        PluginError: The plugin has no starter model.
        PrerequisiteError: What it serves with is not installed.
    """
    args = _parser().parse_args(list(argv))
    _check(args)
    if args.model == "starter":
        args.model, args.name = _starter(args.plugin), args.name or f"{args.plugin}-starter"
    elif (weights := weights_of(args.model)) != args.model:
        args.model, args.name = weights, args.name or Path(args.model).name
    key = _read_key(args.key_file)
    with _listening(args.host, args.port) as listening:
        try:
            import starlette  # noqa: F401  # only to say what is missing
            import uvicorn

            from rlvr_tinker_server.serve import serve
        except ImportError as error:
            raise PrerequisiteError(
                "rlvr tinker-server was asked for.",
                f"{error}",
                f"try: {pip_install('rlvr-tinker-server')}",
            ) from error
        assert uvicorn
        serve(args, key, listening)
    return ExitCode.DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rlvr tinker-server",
        description="The Tinker API on this machine: LoRA training and sampling of one model for "
        "the tinker SDK, its cookbook and rlvr run --backend tinker.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", required=True, metavar="SPEC",
        help="hf:PATH_OR_ID, gpt2:PATH, gpt2:new?..., a run, or starter with --plugin")  # fmt: skip
    add("--plugin", default="", metavar="NAME", help="whose starter model --model starter means")
    add("--name", default="", help="what clients call it (default: the id or the folder's name)")
    add("--host", default="127.0.0.1", help="address; others than loopback need --key-file")
    add("--port", type=int, default=8765, help="0: any free one (default 8765)")
    add("--key-file", type=Path, metavar="FILE", help="file with the API key to let in (tml-...)")
    add("--state", type=Path, default=Path("runs/tinker-server"), metavar="DIR",
        help="where checkpoints are kept (default runs/tinker-server)")  # fmt: skip
    add("--device", default="auto", choices=("auto", "cpu", "cuda", "mps"))
    add("--dtype", default="float32", choices=("float32", "bfloat16"),
        help="of the frozen base (hf: only); adapters and logprobs stay float32")  # fmt: skip
    add("--threads", type=int, default=0, help="CPU threads; 0: one a core")
    add("--max-rank", type=int, default=128, help="highest LoRA rank (default 128)")
    add("--max-adapters", type=int, default=16, help="models in training at a time (default 16)")
    add("--max-snapshots", type=int, default=64, help="unnamed sampler weights kept (default 64)")
    add("--pass-tokens", type=int, default=8192, help="tokens of a forward pass (default 8192)")
    add("--decode-rows", type=int, default=256, help="sequences decoded together (default 256)")
    add("--alone", action="store_true", help="decode each request by itself: slow, the same bits")
    add("--session-timeout-s", type=float, default=300.0, metavar="S",
        help="a client that is silent so long loses its session (default 300)")  # fmt: skip
    return parser


def _starter(plugin: str) -> str:
    if not plugin:
        raise ConfigError(
            "--model starter was asked for\n  found: no --plugin; starter models belong to one\n"
            "  try: --plugin cvdp"
        )
    from rlvr import starter_model

    return starter_model(plugin)


def _check(args: argparse.Namespace) -> None:
    counts = ("max_rank", "max_adapters", "max_snapshots", "pass_tokens", "decode_rows")
    for name, least in {"port": 0, "threads": 0, **dict.fromkeys(counts, 1)}.items():
        if getattr(args, name) < least:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{option} {getattr(args, name)}: must be {least} or more")
    if args.port > 65535:
        raise ConfigError(f"--port {args.port}: must be 65535 or less")
    if not args.session_timeout_s > 0:
        raise ConfigError(f"--session-timeout-s {args.session_timeout_s}: must be above 0")
    if args.key_file is None and not is_loopback(args.host):
        raise ConfigError(
            f"--host {args.host} was asked for.",
            "found: no --key-file; anyone who reaches this address could train and read models",
            "try: --key-file FILE with a key of your own (tml-...), and a firewall: the "
            "connection is not encrypted",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_key(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        key = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--key-file {path} cannot be read: {error}") from error
    if not key.startswith("tml-") or len(key) < 20 or not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"--key-file {path} was given.",
            "found: no key in it: the SDK asks for tml-..., and it should be hard to guess",
            "try: python -c \"import secrets; print('tml-' + secrets.token_hex(16))\" > FILE",
        )
    return key


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(
            f"--host {host} --port {port} was asked for.",
            f"found: {error.strerror or error}",
            "try: another --port, or --port 0 for any free one",
        ) from error
