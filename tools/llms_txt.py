"""Writes `llms.txt`: the pages of the site with a line about each, for programs that read documentation.

The format is that of https://llmstxt.org. The order is that of the table of contents. The line about a page
comes from the README's table; without one it is the first sentence of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

README = Path(__file__).resolve().parents[1] / "README.md"

_ROW = re.compile(r"^\| \[docs/(\S+)\.md\]\(\S+\) \| (.+) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_SENTENCE_END = re.compile(r"(?<=[.:])\s")


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write the file after a build of HTML."""
    if exception is None and app.builder.format == "html":
        text = "\n".join(lines(app.env, app.config.root_doc, app.config.html_baseurl))
        Path(app.outdir, "llms.txt").write_text(text + "\n", encoding="utf-8")


def lines(environment: BuildEnvironment, root: str, base: str) -> Iterator[str]:
    """The lines of the file: a heading for each section of the site, and a line for each page."""
    known = lines_of_readme()
    yield f"# {_title(environment, root)}"
    yield f"\n> {summary(environment.get_doctree(root))}"
    for section in environment.toctree_includes[root]:
        yield f"\n## {_title(environment, section)}\n"
        for page in _pages_below(environment, section):
            link = f"[{_title(environment, page)}]({base}{page}.html)"
            line = known.get(page) or summary(environment.get_doctree(page))
            yield f"- {link}: {line}" if line else f"- {link}"


def lines_of_readme() -> dict[str, str]:
    """The line about each page in the README's table."""
    rows = _ROW.findall(README.read_text(encoding="utf-8"))
    return {page: _LINK.sub(r"\1", line).replace("`", "") for page, line in rows}


def summary(page: nodes.document) -> str:
    """The first sentence of the first paragraph of a page; empty if there is none."""
    for section in page.findall(nodes.section):
        for child in section.children:
            if isinstance(child, nodes.paragraph):
                return _SENTENCE_END.split(child.astext().replace("\n", " "))[0]
    return ""


def _title(environment: BuildEnvironment, page: str) -> str:
    return environment.titles[page].astext()


def _pages_below(environment: BuildEnvironment, page: str) -> Iterator[str]:
    for below in environment.toctree_includes.get(page, ()):
        yield below
        yield from _pages_below(environment, below)
