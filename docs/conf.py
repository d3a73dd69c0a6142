"""Settings of Sphinx. `make docs` builds the site from these pages and the docstrings of public names."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from types import UnionType
from typing import Final

from sphinx.application import Sphinx

DOCS: Final = Path(__file__).resolve().parent
#: Documents outside of this folder, and the pages of the site that include them.
DOCUMENTS: Final = {"benchmarks/RESULTS.md": "results.rst", "CHANGELOG.md": "changelog.rst"}
NOTEBOOKS: Final = DOCS.parent / "examples" / "notebooks"
#: Classes of Python whose methods the reference leaves out.
OF_PYTHON: Final = {"BaseException", "Enum", "Exception", "OSError", "dict", "int", "list", "str", "tuple"}
sys.path.insert(0, str(DOCS.parent / "tools"))

import llms_txt  # noqa: E402 (the path comes first)
from door import public_modules, public_values  # noqa: E402

import penstock  # noqa: E402

project = "Penstock"
author = "the Penstock developers"
version = release = penstock.__version__

# myst-nb renders notebooks with MyST's parser, so it checks their links as well. nbsphinx would need pandoc.
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_site", "jupyter_execute"]
# `make notebook` executes the notebooks. The site shows the results that are stored in them.
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

# Docstrings have names of code in single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
toc_object_entries_show_parents = "hide"
# An attribute `bytes` of a class is not what an annotation `bytes` means.
suppress_warnings = ["ref.python"]

html_theme = "pydata_sphinx_theme"
html_title = f"Penstock {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    # The buttons that open a branch have no name for screen readers.
    "collapse_navigation": True,
}

# For `make docs-links`.
linkcheck_ignore = ["http://127.0.0.1"]


def empty_folder(name: str) -> Path:
    """Return an empty folder for generated pages; deletes the pages of an earlier build."""
    folder = DOCS / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def write_reference() -> None:
    """Write a page for each public module, whose text Sphinx takes from the docstrings.

    A class has its own methods and those of bases that are not public. A public base documents its own.
    """
    folder = empty_folder("reference")
    public = {value.__name__ for value in public_values().values() if isinstance(value, type)}
    bases = ", ".join(sorted(public | OF_PYTHON))
    for module in public_modules():
        name = module.__name__
        page = f"{name}\n{'=' * len(name)}\n\n.. automodule:: {name}\n   :members:\n   :undoc-members:\n"
        page += f"   :inherited-members: {bases}\n"
        # `:members:` has only what a module defines itself, and its imported classes and functions.
        page += "".join(
            f"\n.. autodata:: {name}.{alias}\n"
            for alias in module.__all__
            if isinstance(getattr(module, alias), UnionType)
        )
        (folder / f"{name}.rst").write_text(page)


def copy_notebooks() -> None:
    """Copy the notebooks into this folder, where Sphinx looks for pages."""
    folder = empty_folder("notebooks")
    for notebook in NOTEBOOKS.glob("*.ipynb"):
        text = notebook.read_text(encoding="utf-8")
        (folder / notebook.name).write_text(text.replace("](../../docs/", "](../"), encoding="utf-8")


def lead_to_pages(_: Sphinx, page: str, text: list[str]) -> None:
    """Let links to documents outside of this folder lead to their pages of the site."""
    text[0] = text[0].replace("](../examples/notebooks/", "](/notebooks/")
    for document, name in DOCUMENTS.items():
        text[0] = re.sub(rf"\]\((\.\./)+{re.escape(document)}", f"](/{name}", text[0])


def setup(app: Sphinx) -> None:
    write_reference()
    copy_notebooks()
    app.connect("source-read", lead_to_pages)
    app.connect("build-finished", llms_txt.write)
