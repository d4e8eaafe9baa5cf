"""Pages of the repository that are not in docs: README, changelog, results.

Links between them are written as on disk, so that they lead somewhere without the site too.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
FOLDERS = ("results",)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def on_config(config: Any) -> Any:
    """Name all pages of a folder where the navigation names the folder."""
    config.nav = [expanded(entry) for entry in config.nav]
    return config


def expanded(entry: Any) -> Any:
    """An entry of the navigation, with the pages of folders."""
    if isinstance(entry, dict):
        return {title: expanded(value) for title, value in entry.items()}
    if isinstance(entry, list):
        return [expanded(value) for value in entry]
    if entry.endswith("/"):
        return [f"{entry}{path.name}" for path in sorted((ROOT / "docs" / entry).glob("*.md"))]
    return entry


def on_files(files: Files, config: Any) -> Files:
    """Add the pages, and all files of the folders, as records are linked to."""
    added = dict(PAGES)
    for folder in FOLDERS:
        paths = (path for path in (ROOT / folder).rglob("*") if path.is_file())
        names = [path.relative_to(ROOT).as_posix() for path in paths]
        added |= {name: name for name in names if "/." not in name}
    for source, target in added.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    target = page.file.src_uri
    source = next((old for old, new in PAGES.items() if new == target), None)
    if source is None:
        source = target if target.startswith(FOLDERS) else f"docs/{target}"

    def linked(match: re.Match[str]) -> str:
        image, text, link = match.groups()
        if link.startswith(("http", "#", "mailto:")):
            return match[0]
        path, hash_, anchor = link.partition("#")
        old = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        new = place(old)
        file = files.get_file_from_path(new)
        if (file is None or file.inclusion.is_excluded()) and (ROOT / old).exists():
            return text  # code, which is not on the site
        new = posixpath.relpath(new, posixpath.dirname(target) or ".")
        return f"{image}[{text}]({new}{hash_}{anchor})"

    parts, blocks = CODE.split(markdown), CODE.findall(markdown)
    changed = [LINK.sub(linked, part) for part in parts]
    return changed[0] + "".join(map("".join, zip(blocks, changed[1:], strict=True)))


def place(path: str) -> str:
    """Where a file of the repository is on the site; of a folder, its first page."""
    if path in PAGES:
        return PAGES[path]
    if (ROOT / path).is_dir():
        path = min(
            (page.relative_to(ROOT).as_posix() for page in (ROOT / path).glob("*.md")), default=path
        )
    return path.removeprefix("docs/")
