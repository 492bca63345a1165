"""Sphinx: the documentation site. `make docs` builds it with warnings as errors and checks what came out."""

import koncord

project = "koncord"
author = "The koncord developers"
release = version = koncord.__version__
copyright = "the koncord developers; Apache-2.0"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_design",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]

# Markdown: headings are link targets, as in the pages on a forge; dollars are no formulas.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# The API, from docstrings of the numpydoc form; tests/test_docstrings.py holds them to it.
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
default_role = "literal"  # docstrings write `name`

html_theme = "pydata_sphinx_theme"
html_title = f"koncord {release}"
html_static_path = ["_static"]
html_css_files = ["koncord.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "koncord"},
    "icon_links": [
        {"name": "Source", "url": "https://github.com/koncord/koncord", "icon": "fa-brands fa-github"},
    ],
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}


def skip_inherited(app, what, name, obj, skip, options):
    """Leave out what classes have from scikit-learn: its own pages explain it."""
    return True if str(getattr(obj, "__module__", "")).startswith("sklearn") else None


def setup(app):
    app.connect("autodoc-skip-member", skip_inherited)
