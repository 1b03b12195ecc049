"""The certificate of https, taken anew while the service runs."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from tocsin_service.identity import identity

__all__ = ["Certificate", "CertificateError"]

logger = logging.getLogger(__name__)


class CertificateError(ValueError):
    """The certificate can't be used; the message says why."""


class Certificate:
    """A certificate chain and its key, and the context that servers use it by. TLS 1.2 or newer.

    Args:
        cert_file: the certificate, and those between it and a known one (PEM).
        key_file: its private key, without a password (PEM).

    Raises:
        CertificateError: they can't be read, or don't belong together.
    """

    def __init__(self, cert_file: Path, key_file: Path) -> None:
        self._files = cert_file, key_file
        self._seen = self._state()
        self.context = self._load(_new_context())

    def refresh(self) -> None:
        """Takes the files again if they have changed: new connections see them. While they can't be used, nothing
        changes, and the log says why.
        """
        if (seen := self._state()) == self._seen:
            return
        self._seen = seen  # what is wrong with them is said once
        try:
            self._load(_new_context())  # a try, since a half-loaded context would be of no use
            self._load(self.context)
        except CertificateError as error:
            logger.error("the certificate stays as it was: %s", error)  # noqa: TRY400 - the message says it all
        else:
            logger.info("the certificate was read again")

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        certificate, key = self._files
        try:
            context.load_cert_chain(certificate, key, password="")  # without one OpenSSL would ask a terminal
        except OSError as error:  # also those of ssl
            raise CertificateError(f"{certificate} and {key} can't be used: {error.strerror or error}") from None
        return context

    def _state(self) -> list[tuple[int, ...]]:
        return [identity(file) for file in self._files]


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
