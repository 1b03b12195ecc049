"""The checksum of TensorBoard's event files: CRC-32C (Castagnoli), masked as the TFRecord format wants it."""

from __future__ import annotations

__all__ = ["masked_crc32c"]

_POLYNOMIAL = 0x82F63B78


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(map(_entry, range(256)))


def masked_crc32c(data: bytes) -> int:
    """The masked checksum: rotated, and a constant added, so that one over data that holds others stays strong."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF
