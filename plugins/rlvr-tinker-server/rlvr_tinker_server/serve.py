"""From the command's options to a running server."""

from __future__ import annotations

import argparse
import shlex
import socket
import sys

import uvicorn

from rlvr import ConfigError, hush
from rlvr_tinker_server.api.app import make_app
from rlvr_tinker_server.limits import Limits
from rlvr_tinker_server.nets.base import Base, open_base
from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.state.checkpoints import Checkpoints, locked
from rlvr_tinker_server.state.service import Service


def serve(args: argparse.Namespace, key: str | None, listening: socket.socket) -> None:
    """
    Serve until a signal ends it.

    Raises:
        ConfigError: Another server works with the folder of `--state`, or the model spec is none.
        BackendError: The model cannot be loaded.
        KeyboardInterrupt: Ctrl-C.
    """
    try:
        with locked(args.state):
            _serve(args, key, listening)
    except (Refusal, OSError) as error:
        found = f": {error}" if isinstance(error, Refusal) else f" cannot be used: {error}"
        raise ConfigError(f"--state {args.state}{found}") from error


def _serve(args: argparse.Namespace, key: str | None, listening: socket.socket) -> None:
    base = open_base(
        args.model,
        exports=args.state,
        name=args.name,
        device=args.device,
        dtype=args.dtype,
        threads=args.threads,
    )
    named = {name: value for name, value in vars(args).items() if name in Limits.__annotations__}
    limits = Limits(**named, is_alone=args.alone)
    service = Service(base=base, checkpoints=Checkpoints(args.state), limits=limits)
    host, port = listening.getsockname()[:2]
    is_open = host in ("0.0.0.0", "::")  # asked for with --host
    hosts = ["*"] if is_open else [host, f"[{host}]", "localhost", args.host]
    app = make_app(service, key=key, hosts=hosts)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=2,
            timeout_keep_alive=75,
            lifespan="on",
        )
    )
    _say(base, f"http://{f'[{host}]' if ':' in host else host}:{port}", key, args)
    hush()  # loading was work; serving is waiting
    server.run(sockets=[listening])


def _say(base: Base, url: str, key: str | None, args: argparse.Namespace) -> None:
    """How to reach it, on standard output; one line, and what to copy into a shell."""
    device = base.net.head.device.type
    print(f"serving {base.name} ({base.net.positions} positions, {device}) at {url}")
    shown = "tml-local" if key is None else f'"$(cat {shlex.quote(str(args.key_file))})"'
    print(f"  export TINKER_BASE_URL={url} TINKER_API_KEY={shown} TINKER_TELEMETRY=0")
    print(f"  tokenizer: {base.tokenizer_at}")
    sys.stdout.flush()
