"""The dashboard's page and its files. There is no data in them, so nobody is asked for a token."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from tocsin_service.api.errors import ApiError
from tocsin_service.dashboard import SHELL
from tocsin_service.dashboard.files import POLICY, StaticFile, static_files

__all__ = ["router"]

router = APIRouter(include_in_schema=False)  # for browsers, not for programs

LOOKS = ["GET", "HEAD"]
INDEX = "index.html"


@router.api_route("/", methods=LOOKS)
def go_to_shell() -> Response:
    """Whoever enters the bare address means the page."""
    return Response(None, 307, {"location": SHELL})


@router.api_route(f"{SHELL}{{path:path}}", methods=LOOKS)
def show_file(path: str, request: Request) -> Response:
    """The page, or one of the files that it loads."""
    found = static_files().get(path or INDEX)
    if found is None:
        raise ApiError(404, "there is nothing at this path", "unknown")
    headers = {
        "etag": found.tag,
        "cache-control": "no-cache",  # the browser keeps it, and asks whether it is still the same
        "vary": "accept-encoding",
        "content-security-policy": POLICY,
    }
    if found.tag in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    return _whole(found, headers, packs="gzip" in request.headers.get("accept-encoding", ""))


def _whole(found: StaticFile, headers: dict[str, str], *, packs: bool) -> Response:
    if packs and found.packed is not None:
        return Response(found.packed, 200, {**headers, "content-encoding": "gzip"}, found.media_type)
    return Response(found.data, 200, headers, found.media_type)
