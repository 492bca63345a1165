"""The templates of the pages, filled: the one place that knows Jinja2.

Whatever a template writes is escaped, unless it was marked as markup, and made fit to be shown. A name that a template
asks for and nobody gave is an error, not an empty place.
"""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from koncord._text import showable
from koncord.report.cells import is_short


def rendered(template: str, **context: Any) -> str:
    """The text of a template of this package with these names in it."""
    return template_environment().get_template(f"{template}.html.jinja").render(**context)


@cache
def template_environment() -> Environment:
    made = Environment(
        loader=PackageLoader("koncord.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.tests["short"] = is_short
    return made


def shown_value(value: object) -> object:
    """Text that others wrote, fit to be shown; markup as it is."""
    return value if hasattr(value, "__html__") else showable(str(value))
