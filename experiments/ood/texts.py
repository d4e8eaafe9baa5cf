"""Texts that are no film reviews: paragraphs about Python, and reviews in disorder."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pydoc_data.topics import topics  # type: ignore[import-not-found, unused-ignore]

MIN_WORDS = 40


def paragraphs() -> list[str]:
    """Paragraphs of the reference of the Python language, which Python brings along."""
    found = [text for topic in topics.values() for text in re.split(r"\n\s*\n", topic)]
    words = [text.split() for text in found]
    return list(dict.fromkeys(" ".join(row) for row in words if len(row) >= MIN_WORDS))


def shuffled(texts: Sequence[str], seed: int) -> list[str]:
    """The texts with their words in random order."""
    generator = random.Random(seed)
    found = []
    for text in texts:
        words = text.split()
        generator.shuffle(words)
        found.append(" ".join(words))
    return found
