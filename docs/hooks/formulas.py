"""Formulas as MathML, made when the site is built: browsers draw it without scripts or fonts."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">'
    r"(?P<open>\\\(|\\\[)(?P<text>.*?)(?:\\\)|\\\])</(?P=tag)>",
    re.DOTALL,
)
# The space that TeX has between a function's name and its argument, if that is no bracket.
NAME = re.compile(r"(<m[io]>(?:log|exp)</m[io]>)(?!<mo)")


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Replace what arithmatex has marked."""
    return FORMULA.sub(drawn, content)


def drawn(match: re.Match[str]) -> str:
    """A formula in MathML, in the tag it was marked with."""
    display = "block" if match["open"] == r"\[" else "inline"
    formula = convert(html.unescape(match["text"]).strip(), display=display)
    formula = NAME.sub(r'\1<mspace width="0.17em"/>', formula)
    return f'<{match["tag"]} class="formula">{formula}</{match["tag"]}>'
