"""The dashboard's page and its files. There is no data in them, so nobody is asked for a token."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from tocsin_service.api.errors import ApiError
from tocsin_service.dashboard import SHELL
from tocsin_service.dashboard.files import POLICY, static_files

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
    packs = found.packed is not None and _takes_gzip(request.headers.get("accept-encoding", ""))
    sent = found.packed if packs and found.packed is not None else found.plain
    headers = {
        "etag": sent.tag,
        "cache-control": "no-cache",  # the browser keeps it, and asks whether it is still the same
        "vary": "accept-encoding",
        "content-security-policy": POLICY,
    }
    if _knows(request.headers.get("if-none-match", ""), sent.tag):
        return Response(None, 304, headers)
    if packs:
        headers["content-encoding"] = "gzip"
    return Response(sent.data, 200, headers, found.media_type)


def _takes_gzip(accepted: str) -> bool:
    """Whether the header Accept-Encoding allows gzip; one that gives it the weight 0 forbids it."""
    for part in accepted.lower().split(","):
        name, _, weight = part.replace(" ", "").partition(";q=")
        if name == "gzip":
            return weight.strip("0.") != "" or not weight
    return False


def _knows(header: str, tag: str) -> bool:
    """Whether the header If-None-Match names the tag; by the weak comparison, as it says."""
    return header.strip() == "*" or tag in (one.strip().removeprefix("W/") for one in header.split(","))
