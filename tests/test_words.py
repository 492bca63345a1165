"""One spelling and one vocabulary: what a reader meets in source, pages and help."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Words that cost a second reading, and the one to use.
AVOIDED = {
    "told": "reported, sent or stated",
    "believed": "kept or supported",
    "whoever": "anyone who, or the person by name",
}
BRITISH = re.compile(
    r"(?<![A-Za-z])(?:un|re)?(?:behaviour|colour|neighbour|favour|labelled(?!by)|labelling|centred|centring|centre(?![a-z])|modelled|"
    r"cancelled|towards|learnt|licence|programme(?![a-z])|grey(?![a-z])|"
    r"(?:standard|normal|serial|initial|optim|general|regular|random|organ|recogn|summar|visual|minim|maxim|"
    r"factor|vector|parametr|character)is(?:e|es|ed|ing|ation)(?![a-z]))",
    re.IGNORECASE,
)
# Names that are files or that other programs gave, and the title of a paper.
KEPT = re.compile(r"Towards federated clustering|aria.labelledby|londonaicentre")
SOURCE = [path for end in ("py", "jinja") for path in sorted((ROOT / "src").rglob(f"*.{end}"))]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.name != "reproduction.md"),
]


def lines_with(pattern, paths):
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(KEPT.sub("", line))
    ]


@pytest.mark.parametrize("word", AVOIDED)
def test_words_that_need_a_second_reading_are_not_used(word):
    found = lines_with(re.compile(rf"\b{word}\b", re.IGNORECASE), [*SOURCE, *PAGES])
    assert not found, f"{AVOIDED[word]}, not {word!r}:\n" + "\n".join(found)


def test_the_spelling_is_american():
    found = lines_with(BRITISH, [*SOURCE, *PAGES])
    assert not found, "\n".join(found)


@pytest.mark.parametrize("line", ["a colour", "is_standardised", "neighbouring rows", "not labelled", "unrecognised"])
def test_the_check_of_spelling_finds_british_words(line):
    assert BRITISH.search(line)


@pytest.mark.parametrize("line", ["aria-labelledby", "a center", "optimistic"])
def test_the_check_of_spelling_leaves_other_words_alone(line):
    assert not BRITISH.search(KEPT.sub("", line))
