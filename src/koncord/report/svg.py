"""Elements of a drawing. Content and attributes are escaped unless they are markup themselves."""

from markupsafe import Markup, escape

from koncord._text import showable


def shown_value(value: object) -> object:
    """Text that others wrote, fit to be shown; markup as it is."""
    return value if hasattr(value, "__html__") else showable(str(value))


def tag(name: str, *content: object, **attributes: object) -> Markup:
    """An element; ``class_`` and the like lose their underscore, others turn it into a hyphen.

    >>> tag("text", "a < b", tag("title", "<script>"), class_="n", data_site='a"b')
    Markup('<text class="n" data-site="a&#34;b">a &lt; b<title>&lt;script&gt;</title></text>')
    """
    named = {key.rstrip("_").replace("_", "-"): escape(shown_value(at)) for key, at in attributes.items()}
    given = "".join(f' {key}="{at}"' for key, at in named.items())
    inside = "".join(escape(shown_value(part)) for part in content)
    return Markup(f"<{name}{given}>{inside}</{name}>")
