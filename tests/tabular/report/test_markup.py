"""Pages are safe, self-contained, well-formed and accessible."""

import html
import re

import numpy as np
import pytest

from tests.helpers.frames import EVIL, QUOTED, flowers
from tests.helpers.pages import PageParser, text_of, written


def test_names_are_text_and_never_markup(regression_page, classification_page):
    for page in (regression_page, classification_page):
        assert "<script" not in page.lower()
        assert html.escape(EVIL) in page
        assert EVIL in text_of(page)
    assert "a &amp; &#34;b&#34; $x$" in regression_page
    assert QUOTED in text_of(regression_page)
    figure = re.findall(r"<svg[^>]*by town.*?</svg>", regression_page, re.DOTALL)[0]
    assert "&lt;script&gt;" in figure


@pytest.mark.usefixtures("undrawn")
def test_a_title_is_text(binary, tmp_path):
    page = written(binary, flowers(30, 1, 2), "kind", tmp_path, title=f'{EVIL}" onload="x')
    assert "<script" not in page
    assert f"<h1>{html.escape(EVIL)}&#34; onload=&#34;x</h1>" in page


def test_a_page_needs_nothing_else(regression_page, classification_page):
    for page in (regression_page, classification_page):
        for outside in ("http", "src=", "<link", "@import", "url(", "<script", "xlink", "<image"):
            assert outside not in page.replace(html.escape(EVIL), ""), outside


@pytest.mark.parametrize(
    "page", ["regression_page", "classification_page", "wide_page", "crowded_page"]
)
def test_pages_are_well_formed_and_accessible(page, request):
    found = PageParser(request.getfixturevalue(page))
    assert found.unbalanced == []
    assert found.open == []
    attributes = found.attributes
    ids = [tag["id"] for _, tag in attributes if "id" in tag]
    assert len(ids) == len(set(ids))
    links = [tag["href"] for _, tag in attributes if "href" in tag]
    assert links
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert {tag["aria-labelledby"] for _, tag in attributes if "aria-labelledby" in tag} <= set(ids)
    assert all(tag.get("scope") for name, tag in attributes if name == "th")
    for name, tag in attributes:
        if name == "svg":
            assert tag.get("aria-hidden") or (tag["role"] == "img" and tag["aria-label"])
    headings = [int(name[1]) for name, _ in attributes if re.fullmatch("h[1-6]", name)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert max(np.diff(headings)) <= 1


def test_figures_have_no_colours_but_those_of_the_page(regression_page, classification_page):
    for page in (regression_page, classification_page):
        figures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
        variables = set(re.findall(r"var\(--(\w+)\)", "".join(figures)))
        for figure in figures:
            assert not re.search(r"#[0-9a-f]{3,6}\b(?!\")", re.sub(r'href="[^"]*"', "", figure))
        light, dark = page.split("prefers-color-scheme: dark")[:2]
        for name in variables:
            assert f"--{name}:" in light.split("</style>")[0]
            assert f"--{name}:" in dark.split("</style>")[0]
