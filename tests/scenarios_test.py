"""The answers of scenarios/README.md are those of the results."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scenarios"))
import make_readme  # noqa: E402


def test_every_scenario_has_its_answer():
    assert set(make_readme.ANSWERS) == {path.stem for path in (ROOT / "scenarios").glob("*.json")}


@pytest.mark.parametrize("name", make_readme.ANSWERS)
def test_an_answer_is_that_of_the_result(name):
    assert make_readme.row(name) in make_readme.PAGE.read_text()
