"""What a model's own code leaves behind must not keep it, or other people's models, from an end."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.django_db(transaction=True)

# The folder of the check is the model's to write in: here it writes the result itself, and ends the check.
LIAR = """
import os, sys
told = {told}
with open(os.path.join(sys.argv[2], "told.json"), "w") as file:
    file.write(told)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ('"[" * 200_000', "nested too deeply"),
        ('"{\\"inputs\\": " + "[" * 100 + "]" * 100 + "}"', "nested too deeply"),
        ('"{\\"inputs\\": [NaN]}"', "not a finite number"),
        ('"{\\"inputs\\": [1e999]}"', "not a finite number"),
        (r'"{\"inputs\": [\"\\u0000\"]}"', "cannot be stored"),
        (r'"{\"format\": \"\\ud800\"}"', "cannot be stored"),
        ('"[]"', "no JSON object"),
        ('"{\\"inputs\\": [\\"" + "x" * 300_000 + "\\"]}"', "larger than 256 KiB"),
    ],
)
def test_a_result_that_cannot_be_stored_is_an_error_that_says_so(uploaded, make_model, settled, told, words):
    model = settled(make_model(uploaded("net/predictor.py", LIAR.format(told=told))))
    assert model.state == "error"
    assert model.reason.startswith("it does not load: the result of the check cannot be used: ")
    assert words in model.reason


def test_no_result_is_an_error_that_says_so(uploaded, make_model, settled):
    model = settled(make_model(uploaded("net/predictor.py", "import os\nos._exit(0)")))
    assert (model.state, model.reason) == ("error", "it does not load: the check left no result")
