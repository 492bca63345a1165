"""What the last run of the test suite left in build/tests.xml: cases, minutes, and what the attacks recovered.

An attack of tests/attacks records what it recovered by the fixture `recovered`; the suite is run by `make unit`.
"""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

from gate.lines import LOWER, Line

RESULTS = Path(__file__).parents[1] / "build" / "tests.xml"


def suite(say: Callable[[str], None]) -> list[Line]:
    if not RESULTS.exists():
        say("no run of the test suite is in build/: `make unit` leaves one")
        return []
    cases = list(ET.parse(RESULTS).getroot().iter("testcase"))
    minutes = sum(float(own.get("time", 0)) for own in ET.parse(RESULTS).getroot().iter("testsuite")) / 60
    lines = [
        Line(name="size: test cases", value=len(cases), better=LOWER, tolerance=0.02, is_share=True),
        Line(name="size: minutes of the test suite", value=minutes, better=LOWER, tolerance=0.25, is_share=True),
    ]
    attacks = [case for case in cases if properties([case], "recovered rows")]
    for what in ("rows", "values") if attacks else ():
        found = sum(int(each.get("value", 0)) for each in properties(attacks, f"recovered {what}"))
        lines.append(Line(name=f"confidentiality: {what} recovered by attacks", value=found, better=LOWER))
    if attacks:
        lines.append(Line(name="confidentiality: attacks", value=len(attacks)))
    return lines


def properties(cases: list[ET.Element], name: str) -> list[ET.Element]:
    return [each for case in cases for each in case.iter("property") if each.get("name") == name]
