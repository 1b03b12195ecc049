"""Exits with 0 if the process of this container answers, with 1 and a reason if not: for HEALTHCHECK, without curl.

Reads the settings as the process did (environment and TOCSIN_CONFIG), so it finds another port and TLS by itself.
"""

# ruff: noqa: INP001 - a script, and no part of a package

from __future__ import annotations

import ssl
import sys
import urllib.error
import urllib.request

from tocsin_service.settings import Settings, SettingsError, load

SECONDS = 4.0  # less than HEALTHCHECK's own limit, so that the reason is seen
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not listened on


def address(settings: Settings) -> str:
    host = EVERY_ADDRESS.get(settings.host, settings.host)
    scheme = "http" if settings.tls_cert_file is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}/healthz"


def main() -> int:
    # The certificate is for the name that clients use, and nothing secret is sent.
    unchecked = ssl._create_unverified_context()  # noqa: S323, SLF001 - the short way that urllib's documentation names
    try:
        with urllib.request.urlopen(address(load()), timeout=SECONDS, context=unchecked):  # noqa: S310 - made above
            return 0
    except (OSError, SettingsError, urllib.error.URLError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - `docker inspect` shows it
        return 1


if __name__ == "__main__":
    sys.exit(main())
