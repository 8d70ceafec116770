"""Settings of Sphinx for the site that `make docs` builds."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from api_pages import is_public
from zeus import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Zeus"
version = release = __version__
root_doc = "docs/index"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 6  # named as on GitHub, so that links between files work in both places
highlight_language = "text"

# Docstrings put names in single backticks: they become links where the name is documented.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]
python_display_short_literal_types = True

html_theme = "furo"
html_title = f"Zeus {release}"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2464c9", "color-brand-content": "#2464c9"},
    "dark_css_variables": {"color-brand-primary": "#7ab0ff", "color-brand-content": "#7ab0ff"},
}
html_static_path = ["static"]
html_css_files = ["site.css"]


def only_public_bases(
    app: Sphinx, name: str, documented: object, options: object, bases: list[Any]
) -> None:
    """Leave out the bases of a class that users cannot name."""
    bases[:] = [base for base in bases if not isinstance(base, type) or is_public(base)]


def without_repetition(
    app: Sphinx, kind: str, name: str, documented: object, options: object, lines: list[str]
) -> None:
    """Leave out what a dataclass without a docstring generates: its signature, once more."""
    if inspect.isclass(documented) and lines and lines[0].startswith(f"{documented.__name__}("):
        lines.clear()


def setup(app: Sphinx) -> None:
    """Register what changes the output of autodoc."""
    app.connect("autodoc-process-bases", only_public_bases)
    app.connect("autodoc-process-docstring", without_repetition)
