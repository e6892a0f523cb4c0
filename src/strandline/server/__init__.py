"""``strandline serve``: the HTTP API, the web console, and the maintenance of a warehouse.

``create_app`` returns an ASGI application; ``run`` serves it until SIGTERM. One process opens its database
once; several processes may serve the same warehouse.

**Who may do what.** Every route but ``/healthz``, ``/readyz`` and the login page depends on
``auth.current_principal``, which returns the ``Principal`` of a token or of a session cookie, or raises
UNAUTHENTICATED. ``principal.require("operate")`` checks the role, ``principal.require_paths`` the paths.

**How a page gets data.** Through the Python API, as the routes do:

    @router.get("/collections/{name}", response_class=HTMLResponse, include_in_schema=False)
    async def show(request: Request, name: str, who: CurrentPrincipal) -> Any:
        backups = await call(request, who, "Collection.backups", collection=name)
        return templates.TemplateResponse(request, "collection.html", {"backups": backups})

``verbs.call`` runs a method of the Python API by its name (``api.verbs.VERBS``). It checks the role and the
paths of the client, writes changes to the audit log, and runs the method in a thread. So a page cannot show
or change more than the API. A method that starts an operation returns its ``OperationInfo`` at once.

**Forms.** A form has a hidden field ``csrf_token`` with ``sessions.csrf_token(principal.cookie)``;
``current_principal`` refuses a form without it. ``sessions.read_form`` returns the fields. The login page
calls ``sessions.create_session`` and ``sessions.set_cookie``, and ``auth.note_failed_login`` for a wrong
token.

**Pages and scripts.** The Content-Security-Policy of ``middleware.HEADERS`` allows scripts, styles and
pictures from the service's own files only, none inside a page. Live progress comes from
``GET /v1/operations/{id}/events`` and ``GET /v1/operations/events`` (server-sent events).

**Errors.** ``StrandlineError`` becomes JSON with code, message, hint and status (``errors.respond``).
"""

from __future__ import annotations

from strandline.errors import Unavailable

try:
    import fastapi as _fastapi  # noqa: F401
    import jinja2 as _jinja2  # noqa: F401
    import uvicorn as _uvicorn  # noqa: F401
except ImportError as missing:
    raise Unavailable(
        f"the package {missing.name} is not installed", "Install it: pip install 'strandline[server]'."
    ) from None

from strandline.server.app import create_app
from strandline.server.run import run
from strandline.server.settings import ServerSettings

__all__ = ["ServerSettings", "create_app", "run"]
