"""The reference: a page for each public module, with all its public names, from their docstrings.

A name that `lastlayer` itself has is called by it: `lastlayer.Regression`, on the page of heads.
Modules are read, not imported, so that the site needs none of their libraries.
"""

import ast
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import lastlayer

FOLDER = "reference"
PACKAGE = Path(__file__).parents[2] / "src" / "lastlayer"
HOME = {name: module.partition(".")[0] for name, module in lastlayer._MODULE_OF.items()}


def modules() -> dict[str, ast.Module]:
    """Public modules with public names, by their short names."""
    found = {}
    for path in sorted([*PACKAGE.glob("[!_]*.py"), *PACKAGE.glob("[!_]*/__init__.py")]):
        name = path.parent.name if path.stem == "__init__" else path.stem
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if public(name, tree):
            found[name] = tree
    return found


def public(module: str, tree: ast.Module) -> list[str]:
    """Dotted public names of a module, each where a user finds it first."""
    direct = sorted(name for name, home in HOME.items() if home == module)
    listed = [
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.literal_eval(node.value)
        if name not in direct
    ]
    return [*(f"lastlayer.{name}" for name in direct), *(f"lastlayer.{module}.{n}" for n in listed)]


def on_config(config: Any) -> Any:
    """List the pages in the navigation."""
    pages = [f"{FOLDER}/index.md", *(f"{FOLDER}/{module}.md" for module in modules())]
    for entry in config.nav:
        if "Reference" in entry:
            entry["Reference"] = pages
    return config


def on_files(files: Files, config: Any) -> Files:
    """Write the pages."""
    rows = []
    for module, tree in modules().items():
        summary = (ast.get_docstring(tree) or "").partition("\n")[0]
        names = public(module, tree)
        blocks = "\n\n".join(f"::: {name}" for name in names)
        page = f"# lastlayer.{module}\n\n{summary}\n\n{blocks}\n"
        files.append(File.generated(config, f"{FOLDER}/{module}.md", content=page))
        links = ", ".join(f"[`{name.rpartition('.')[2]}`][{name}]" for name in names)
        rows.append(f"| [{module}]({module}.md) | {summary}<br>{links} |")
    table = "\n".join(["| module | names |", "|---|---|", *rows])
    text = "# Reference\n\nAfter this page you know where every public name is.\n\n" + table + "\n"
    files.append(File.generated(config, f"{FOLDER}/index.md", content=text))
    return files
