"""The path of a message in docs/explanation/architecture.md is the one that messages take."""

import re
import sys
from pathlib import Path

import pytest
from serving import machine
from test_state import feed, started

from onlad.serve.listener import Listener

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"


class Courier(Listener):
    courier = "test"


@pytest.mark.skipif(not PAGE.exists(), reason="the tests of a wheel stand alone")
def test_a_message_takes_the_path_that_the_page_describes(tmp_path):
    walk = PAGE.read_text().split("## The path of a message")[1].split("\n\n")[2]
    assert 5 <= len(re.findall(r"^\d+\. ", walk, re.MULTILINE)) <= 10
    named = re.findall(r"`(\w+\.\w+)`", walk)
    X = machine(401, faults=[400])
    service = started(tmp_path)
    feed(service, X[:400])
    service.listen(Courier())
    called = []

    def note(frame, event, _):
        module = frame.f_globals.get("__name__", "")
        name = f"{module.rpartition('.')[2]}.{frame.f_code.co_name}"
        if event == "call" and module.startswith("onlad.") and name in named:
            called.append(name)

    sys.setprofile(note)
    try:
        feed(service, X[400:])
    finally:
        sys.setprofile(None)
    service.close()
    assert list(dict.fromkeys(called)) == named
