"""The encoding of a text file."""

from __future__ import annotations

import codecs
from typing import Any

UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how it begins
WINDOWS = "cp1252"  # what spreadsheets write in Western Europe and America unless told otherwise
CHUNK = 1 << 24  # bytes


def detect(stream: Any) -> str | None:
    """The encoding of a stream of bytes; None if it is not text.

    UTF-16 by its first bytes, UTF-8 if all bytes are, else Windows-1252, or Latin-1 where bytes
    mean nothing in it.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    utf8, encoding, chunk = True, WINDOWS, stream.read(CHUNK)
    if chunk.startswith(UTF_16):
        return "utf-16"
    while chunk:
        if b"\0" in chunk:
            return None
        if utf8:
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError:
                utf8 = False
        if not utf8 and encoding == WINDOWS:
            try:
                chunk.decode(WINDOWS)
            except UnicodeDecodeError:
                encoding = "latin-1"
        chunk = stream.read(CHUNK)
    return "utf-8" if utf8 else encoding
