"""`llms.txt` says what a page is about: in the words of the README, else in its own first sentence."""

from __future__ import annotations

from docutils import nodes
from docutils.core import publish_doctree
from llms_txt import lines_of_readme, summary


def page(text: str) -> nodes.document:
    """A page as Sphinx reads it: its title is the heading of a section."""
    return publish_doctree(text, settings_overrides={"doctitle_xform": False})


def test_the_line_about_a_page_is_that_of_the_readme() -> None:
    assert lines_of_readme()["kafka"] == "topics in and out, exactly once"


def test_names_and_links_in_a_line_of_the_readme_become_text() -> None:
    assert not set("[]`") & set("".join(lines_of_readme().values()))


def test_another_page_is_summed_up_by_its_first_sentence() -> None:
    assert (
        summary(page("Title\n=====\n\nOne fact,\nin two lines. Another fact.\n")) == "One fact, in two lines."
    )


def test_a_page_of_links_has_no_sentence() -> None:
    assert summary(page("Title\n=====\n\n- a\n- b\n")) == ""
