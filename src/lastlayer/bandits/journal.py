"""An append-only file of tensors, of which a crash leaves every whole record."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from .._disk import to_disk

HEADER = struct.Struct("<QI")  # length and checksum of the record that follows


class Journal:
    """Records in the order in which they were appended; each has reached the disk.

    A record that a crash cut short was never acknowledged: reading ends before it, and the next
    record takes its place.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: dict[str, Tensor]) -> None:
        """Append a record and wait until it has reached the disk."""
        from safetensors.torch import save

        payload = save(record)
        is_new = not self.path.exists()
        with self.path.open("ab") as file:
            file.write(HEADER.pack(len(payload), zlib.crc32(payload)) + payload)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            to_disk(self.path.parent)

    def read(self) -> list[dict[str, Tensor]]:
        """All whole records; what a crash left of another is removed."""
        from safetensors.torch import load

        if not self.path.exists():
            return []
        data = self.path.read_bytes()
        payloads = list(_payloads(data))
        whole = sum(HEADER.size + len(payload) for payload in payloads)
        if whole < len(data):
            with self.path.open("r+b") as file:
                file.truncate(whole)
                os.fsync(file.fileno())
        return [load(payload) for payload in payloads]

    def clear(self) -> None:
        """Remove all records."""
        self.path.unlink(missing_ok=True)


def _payloads(data: bytes) -> Iterator[bytes]:
    start = 0
    while start + HEADER.size <= len(data):
        length, checksum = HEADER.unpack_from(data, start)
        start += HEADER.size
        payload = data[start : start + length]
        if len(payload) < length or zlib.crc32(payload) != checksum:
            return
        yield payload
        start += length
