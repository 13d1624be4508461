"""The HTTP side: who is let in, and what a refusal looks like on the wire."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from rlvr_tinker_server.api.call import Call, check_key, read_body
from rlvr_tinker_server.api.handlers import ROUTES, Handler, answer, healthz, refused
from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.state.service import Service

log = structlog.get_logger(__name__)


def make_app(service: Service, *, key: str | None, hosts: list[str]) -> Starlette:
    """
    The ASGI application.

    Args:
        service: What answers.
        key: The only API key that is let in; None: any (on loopback).
        hosts: Names that the `Host` header may have.
    """

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(service.worker.run()),
            asyncio.create_task(service.end_silent_sessions()),
            asyncio.create_task(service.fail_gaps()),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            service.worker.close()

    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=hosts)]
    routes = [
        Route(f"/api/v1/{path}", _endpoint(service, handler, key), methods=[method])
        for method, path, handler in ROUTES
    ]
    return Starlette(routes=routes, lifespan=life, middleware=middleware)


def _endpoint(
    service: Service, handler: Handler, key: str | None
) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        try:
            if handler is not healthz:
                check_key(request, key)
            call = Call(
                body=await read_body(request),
                path=dict(request.path_params),
                query=dict(request.query_params),
            )
            return await answer(handler, service, call)
        except Refusal as refusal:
            return refused(str(refusal), refusal.status)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # the server's border: one bad request is not the end of it
            log.exception("request_crashed", path=request.url.path)
            name = type(error).__name__
            return refused(f"the server failed ({name})", 500)

    return serve
