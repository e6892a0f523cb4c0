"""What surrounds every request: security headers, metrics, and the response to unexpected errors."""

from __future__ import annotations

import time

from fastapi.routing import APIRoute
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strandline.server.errors import respond, unexpected
from strandline.server.service import Service

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Headers of every response, unless the route sets them.

A page loads nothing from elsewhere. Scripts and styles come from files below ``/static``; inside a page they
are refused.
"""
HSTS = "max-age=31536000"


class Surround:
    """ASGI middleware around all others."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        service, began, status = self._service, time.perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if service.settings.has_tls:
                    headers.setdefault("Strict-Transport-Security", HSTS)
                if service.is_draining:
                    headers["Connection"] = "close"
            await send(message)

        service.metrics.running.inc()
        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            if status:  # The response has begun, so it can only be cut off.
                raise
            await respond(unexpected(error))(scope, receive, send_with_headers)
        finally:
            service.metrics.running.dec()
            route = scope.get("route")
            name = route.path if isinstance(route, APIRoute) else "other"
            method = (
                scope["method"] if scope["method"] in ("GET", "POST", "PUT", "PATCH", "DELETE") else "other"
            )
            service.metrics.requests.labels(method, name, str(status)).inc()
            service.metrics.seconds.labels(name).observe(time.perf_counter() - began)
