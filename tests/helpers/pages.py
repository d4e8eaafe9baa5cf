"""Reading an HTML page: tables, scores and text."""

import html
import re
from html.parser import HTMLParser
from pathlib import Path

from lastlayer.report import write_report


def written(model, frame, target, folder, **options) -> str:
    path = Path(folder) / "report.html"
    write_report(model, frame, target, path, **options)
    return path.read_text(encoding="utf-8")


class PageParser(HTMLParser):
    """The texts of all tables, by the label of what holds them, and ids, links and tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.attributes: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.label = ""
        self.feed(page)
        for table in self.tables.values():
            table[:] = [[" ".join(cell.split()) for cell in row] for row in table]

    def handle_starttag(self, tag, attrs):
        found = {name: value or "" for name, value in attrs}
        self.attributes.append((tag, found))
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)
        if found.get("role") == "region":
            self.label = found["aria-label"]
            self.tables[self.label] = []
        if tag == "tr":
            self.tables[self.label].append([])
        if tag in ("td", "th"):
            self.tables[self.label][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.attributes.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.tables[self.label][-1][-1] += data


def cards(page: str) -> dict[str, str]:
    found = re.findall(r'<dt>(.*?)</dt>\s*<dd class="value">(.*?)(?:<span|</dd>)', page, re.DOTALL)
    return {html.unescape(name).replace("\xa0", " "): value.strip() for name, value in found}


def value(text: str) -> float:
    """A number that the page shows."""
    text = re.split(r"[%(]", text)[0]
    return float(re.sub(r"[\s\u202f\xa0]", "", text).replace("−", "-"))


def text_of(page: str) -> str:
    """What is read, without what is styled or drawn."""
    page = re.sub(r"<(style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]*>", " ", page))
    return re.sub(r"\s+([.,;:)])", r"\1", " ".join(text.split()))


def undated(page: str) -> str:
    return re.sub(r"<time.*?</time>", "", page)
