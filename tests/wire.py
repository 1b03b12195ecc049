"""What the stand-in servers of the tests share."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler


def whole_body(request: BaseHTTPRequestHandler) -> bytes:
    """The body of a request; ``ConnectionError`` if its sender died over it, as a real server sees it."""
    length = int(request.headers.get("Content-Length", 0))
    body = request.rfile.read(length)
    if len(body) < length:
        raise ConnectionResetError("half a request")
    return body
