"""Freed memory that the C library keeps for the next training step."""

from __future__ import annotations

import ctypes

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # numbers of glibc's options, <malloc.h>
LARGEST = 2**31 - 1  # bytes: the options are of C's type int


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, if its C library is glibc; return whether it does.

    Otherwise glibc gives every large tensor pages of its own, which the system fills with zeros,
    and returns them when the tensor is freed: each step of a convolutional network anew. Up to two
    gigabytes are kept. The environment's `MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000`,
    which keeps all, is for processes yet to be started.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return all(
        library.mallopt(*option) == 1 for option in ((MMAP_MAX, 0), (TRIM_THRESHOLD, LARGEST))
    )
