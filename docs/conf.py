"""Settings of Sphinx. `make docs` builds the site from these pages and the docstrings of public names."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from sphinx.application import Sphinx

DOCS: Final = Path(__file__).resolve().parent
#: Documents outside of this folder, and the pages of the site that include them.
DOCUMENTS: Final = {"benchmarks/RESULTS.md": "results.rst", "CHANGELOG.md": "changelog.rst"}
sys.path.insert(0, str(DOCS.parent / "tools"))

from door import public_modules  # noqa: E402 (the path comes first)

import penstock  # noqa: E402

project = "Penstock"
author = "the Penstock developers"
version = release = penstock.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_site"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

# Docstrings have names of code in single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
# An attribute `bytes` of a class is not what an annotation `bytes` means.
suppress_warnings = ["ref.python"]

html_theme = "pydata_sphinx_theme"
html_title = f"Penstock {release}"
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False}


def write_reference() -> None:
    """Write a page for each public module, whose text Sphinx takes from the docstrings."""
    folder = DOCS / "reference"
    folder.mkdir(exist_ok=True)
    names = []
    for module in public_modules():
        name = module.__name__
        names.append(name)
        (folder / f"{name}.rst").write_text(
            f"{name}\n{'=' * len(name)}\n\n.. automodule:: {name}\n   :members:\n   :undoc-members:\n"
        )
    pages = "\n".join(f"   {name}" for name in names)
    (folder / "index.rst").write_text(
        f"Reference\n=========\n\nAll public names, by module.\n\n.. toctree::\n   :maxdepth: 1\n\n{pages}\n"
    )


def lead_to_pages(_: Sphinx, page: str, text: list[str]) -> None:
    """Let links to documents outside of this folder lead to their pages of the site."""
    for document, name in DOCUMENTS.items():
        text[0] = re.sub(rf"\]\((\.\./)+{re.escape(document)}", f"](/{name}", text[0])


def setup(app: Sphinx) -> None:
    write_reference()
    app.connect("source-read", lead_to_pages)
