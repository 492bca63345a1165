"""Every docstring of the package can be read by numpydoc, and those of the public names document every parameter."""

import importlib
import inspect
import pkgutil
import re
import warnings

import pytest
from numpydoc.docscrape import ClassDoc, FunctionDoc
from numpydoc.validate import validate

import koncord

PUBLIC = [name for name in koncord.__all__ if callable(getattr(koncord, name))]
# Parameters: all documented, none unknown, each with a type and a sentence, well-formed; a summary that is one.
WANTED = {"GL08", "PR01", "PR02", "PR03", "PR04", "PR07", "PR10", "SS01", "SS02"}
# A type is a few words; a sentence in its place is what no tool can render.
TYPE = re.compile(r"^(\{.*\}|[\w.\-, ]+?( of shape \(.*\)| \(.*\))?)(, default .+|, optional)?$")


def modules():
    yield koncord
    for found in pkgutil.walk_packages(koncord.__path__, "koncord."):
        yield importlib.import_module(found.name)


def documented():
    """Every class and function that the package defines, by its full name."""
    for module in modules():
        for name, thing in vars(module).items():
            if (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__module__ == module.__name__:
                yield f"{module.__name__}.{name}", thing


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_documents_all_that_it_takes(name):
    wrong = [found for found in validate(f"koncord.{name}")["errors"] if found[0] in WANTED]
    if inspect.isclass(getattr(koncord, name)) and hasattr(getattr(koncord, name), "__dataclass_fields__"):
        wrong = [found for found in wrong if found[0] != "PR01"]  # its fields are documented where they are declared
    assert not wrong


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isclass(getattr(koncord, name))])
def test_every_public_method_says_what_it_does(name):
    owner = getattr(koncord, name)
    bare = [method for method, thing in vars(owner).items() if inspect.isfunction(thing) and method[0] != "_"]
    assert not [method for method in bare if not inspect.getdoc(getattr(owner, method))]


def test_numpydoc_reads_every_docstring_of_the_package():
    wrong = []
    everything = list(documented())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, thing in everything:
            doc = ClassDoc(thing) if inspect.isclass(thing) else FunctionDoc(thing)
            for section in ("Parameters", "Attributes", "Other Parameters"):
                wrong += [
                    f"{name}: {entry.name} : {entry.type}"
                    for entry in doc[section]
                    if (not entry.name.isidentifier() and not re.fullmatch(r"\*{0,2}\w+(, \*{0,2}\w+)*", entry.name))
                    or (entry.type and not TYPE.match(entry.type))
                    or (entry.type and len(entry.type.split()) > 12)
                ]
    assert not wrong
