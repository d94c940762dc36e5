"""The shipped rules of failures, the search for the last exception, and both on hostile logs: without runs."""

from __future__ import annotations

import pytest

from jobs.doctor import rules
from jobs.doctor.packages import package_of
from jobs.doctor.shipped_code import SHIPPED
from jobs.models import FailureRule
from kernel.errors import Refused
from kernel.textlog.exceptions import last_exception
from mlp.tests.growth import ends
from mlp.tests.tiers import few

MANY, LONG = 150_000, 3_000_000

CHAINED = """\
epoch 3
Traceback (most recent call last):
  File "/scripts/train.py", line 3, in load
    return table[name]
           ~~~~~^^^^^^
KeyError: 'digits'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/scripts/train.py", line 9, in <module>
    main()
  File "/scripts/lib/net.py", line 5, in main
    load("digits")
  File "/usr/lib/python3.11/site-packages/torch/x.py", line 77, in forward
    raise ValueError("no such data")
ValueError: no such data
  looked in /datasets
done
"""


class TestTrace:
    def test_the_last_exception_alone_with_its_cause_and_the_users_line(self):
        trace = last_exception(CHAINED)
        assert (trace.error, trace.message) == ("ValueError", "no such data\n  looked in /datasets\ndone")
        assert trace.cause == "KeyError: 'digits'"
        assert trace.text.startswith("Traceback")
        assert "KeyError" not in trace.text
        place = trace.place(("/scripts",))
        assert (place.file, place.line, place.code) == ("/scripts/lib/net.py", 5, 'load("digits")')

    def test_a_syntax_error_has_no_header(self):
        trace = last_exception(
            'hello\n  File "/scripts/train.py", line 2\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n'
        )
        assert (trace.error, trace.frames[0].line, trace.frames[0].code) == ("SyntaxError", 2, "x = = 1")

    def test_the_worker_that_failed_first(self):
        lines = [
            "[1] Traceback (most recent call last):", '[1]   File "/scripts/a.py", line 1, in <module>',
            "[0] working", "[1]     1 / 0", "[1] ZeroDivisionError: division by zero",
            "[0] Traceback (most recent call last):", '[0]   File "/scripts/a.py", line 7, in <module>',
            "[0] RuntimeError: Connection closed by peer",
        ]  # fmt: skip
        assert last_exception("\n".join(lines), 1).error == "ZeroDivisionError"
        assert last_exception("\n".join(lines)).error == "RuntimeError"

    def test_an_exception_of_a_group(self):
        text = (
            "  + Exception Group Traceback (most recent call last):\n"
            '  |   File "/scripts/t.py", line 3, in <module>\n'
            "  | ExceptionGroup: two (1 sub-exception)\n"
            "  +-+---------------- 1 ----------------\n"
            "    | Traceback (most recent call last):\n"
            '    |   File "/scripts/t.py", line 2, in one\n'
            "    |     raise KeyError('a')\n"
            "    | KeyError: 'a'\n"
            "    +------------------------------------\n"
        )
        assert last_exception(text).short == "KeyError: 'a'"

    @pytest.mark.parametrize(
        "text",
        few(
            [
                "Traceback (most recent call last):\n" * MANY,
                ("Traceback (most recent call last):\n" + '  File "x", line 1, in y\n' * (MANY // 2) + "\n") * 2,
                '  File "' + "x" * LONG,
                "Traceback (most recent call last):\n" + " " * LONG + "\n: : :",
                "\n" * LONG,
                "a" * LONG + ": b",
                "a." * LONG + "(",
                "[1] Traceback (most recent call last):\n[1] " + "(" * LONG,
            ],
            2,
        ),
        ids=["headers", "frames", "file", "spaces", "lines", "word", "words", "brackets"],
    )
    def test_no_log_takes_quadratic_time(self, text):
        assert ends(lambda: last_exception(text))


class TestRules:
    @pytest.mark.parametrize("pattern", [*(rule.pattern for rule in SHIPPED), "(a|aa)+$"])
    def test_the_engine_is_one_whose_time_is_linear_for_any_pattern(self, pattern):
        """RE2 does not go back in the text: there is no text for which it takes long."""
        assert type(rules.compiled(pattern)).__module__ == "re2"

    def test_a_pattern_that_would_need_to_go_back_in_the_text_is_refused(self):
        with pytest.raises(Refused, match="the pattern is not valid"):
            rules.compiled(r"(a+)\1")

    def test_patterns_that_are_evil_for_other_engines_end(self):
        assert ends(lambda: rules.compiled("(a|aa)+b$").search("a" * LONG))

    @pytest.mark.parametrize("rule", SHIPPED, ids=lambda rule: rule.key)
    def test_each_matches_its_example_and_none_before_it_does(self, rule):
        keys = [
            each.key for each in SHIPPED
            if each.where == rule.where and not each.needs
            and rules.of_shipped(each, 1).search(rule.example) is not None
        ]  # fmt: skip
        assert rules.of_shipped(rule, 1).search(rule.example) is not None
        assert rule.needs or keys[0] == rule.key
        assert rules.of_shipped(rule, 1).search("") is None

    def test_a_version_that_is_not_there_is_no_question_of_the_python(self):
        """pip tells of versions for other Pythons, too, when another one is asked for."""
        text = (
            "its packages could not be installed: exit code 1\nERROR: Ignored the following versions that require a "
            "different python version: 1.21 Requires-Python >=3.7,<3.11\nERROR: Could not find a version that "
            "satisfies the requirement x==9 (from versions: 1.0, 2.0)\nERROR: No matching distribution found for x==9"
        )
        matches = ((rule.key, rules.of_shipped(rule, 1).search(text)) for rule in SHIPPED)
        assert next(each for each in matches if each[1] is not None) == ("packages_version", {"package": "x==9"})

    @pytest.mark.parametrize(
        ("said", "found"),
        [
            ("Because there is no version of x==9 and you require x==9, we can", ("packages_version", "x==9")),
            ("Because y was not found in the provided package locations and you", ("packages_unknown", "y")),
            ("Because x==1 has no wheels with a matching Python ABI tag", ("packages_wheel", "x==1")),
            ("Because all versions of x depend on y<2 and you require y, we can conclude that your requirements are "
             "unsatisfiable.", ("packages_conflict", None)),
        ],
    )  # fmt: skip
    def test_the_words_of_uv(self, said, found):
        text = f"its packages could not be installed: exit code 1\nerror: No solution found\n  cause: {said}"
        matches = ((rule.key, rules.of_shipped(rule, 1).search(text)) for rule in SHIPPED)
        key, groups = next(each for each in matches if each[1] is not None)
        assert (key, groups.get("package")) == found

    def test_keys_are_unique(self):
        assert len({rule.key for rule in SHIPPED}) == len(SHIPPED)

    @pytest.mark.parametrize(
        ("module", "package"),
        [("cv2", "opencv-python-headless"), ("sklearn.svm", "scikit-learn"), ("PIL", "pillow"), ("yaml", "PyYAML"),
         ("google.protobuf.x", "protobuf"), ("my_module", "my-module")],
    )  # fmt: skip
    def test_the_package_of_a_module(self, module, package):
        assert package_of(module) == package

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"pattern": "(unclosed"}, "pattern: the pattern is not valid"),
            ({"pattern": "(?=ahead)x"}, "pattern: the pattern is not valid"),
            ({"pattern": "x*"}, "pattern: must not match an empty text"),
            ({"pattern": "(a{500}){500}"}, "pattern: the pattern is not valid"),
            ({"example": "something else"}, "example: the pattern does not match"),
            ({"explanation": "100 % of %(ram)s"}, "explanation: a percent sign"),
            ({"explanation_zh": "%(what)s"}, "explanation_zh: the pattern has no group what"),
        ],
    )
    def test_a_rule_is_checked_before_it_is_stored(self, fields, words):
        row = FailureRule(**{"title": "T", "pattern": "boom", "example": "boom!", "explanation": "E", **fields})
        with pytest.raises(Refused) as refusal:
            rules.check(row)
        assert str(refusal.value.msg).startswith(words)


@pytest.mark.django_db
class TestSync:
    def test_upgrades_improve_shipped_rules_and_leave_decisions(self):
        rules.sync()
        own = FailureRule.objects.create(title="Ours", pattern="boom", example="boom", explanation="x", order=7)
        FailureRule.objects.filter(shipped="memory").update(active=False, order=3, title="old words")
        FailureRule.objects.create(shipped="gone", title="no longer shipped", pattern="x", example="x", explanation="x")
        rules.sync()
        row = FailureRule.objects.get(shipped="memory")
        assert (row.title, row.active, row.order) == ("Out of memory", False, 3)
        assert FailureRule.objects.get(pk=own.pk).pattern == "boom"
        assert not FailureRule.objects.filter(shipped="gone").exists()
        assert FailureRule.objects.exclude(shipped="").count() == len(SHIPPED)
        keys = [rule.key for rule in rules.in_force()]
        assert keys[0] == f"own:{own.pk}"
        assert "memory" not in keys


@pytest.mark.django_db
class TestAdmin:
    URL = "/admin/jobs/failurerule/"
    FORM = {
        "title": "Licence", "pattern": r"no licence (?P<tool>\w+)", "where": "exception",
        "example": "no licence abaqus",
        "explanation": "Ask for %(tool)s.", "order": "1",
    }  # fmt: skip

    def test_a_rule_is_added_changed_and_deleted(self, staff_client):
        answer = staff_client.post(self.URL + "add/", self.FORM)
        row = FailureRule.objects.get(title="Licence")
        assert answer.status_code == 302
        page = f"{self.URL}{row.pk}/"
        assert "0 of the last 0 failures" in staff_client.get(page + "change/").content.decode()
        staff_client.post(page + "do/change/", {**self.FORM, "order": "9", "confirmed": "1"})
        row.refresh_from_db()
        assert row.order == 9
        staff_client.post(page + "do/delete/", {"confirmed": "1"})
        assert not FailureRule.objects.filter(pk=row.pk).exists()

    @pytest.mark.parametrize("field", ["pattern", "example"])
    def test_a_wrong_rule_is_refused_at_its_field(self, staff_client, field):
        answer = staff_client.post(self.URL + "add/", {**self.FORM, field: "(x"})
        assert answer.status_code == 200
        assert ("not valid" if field == "pattern" else "does not match") in answer.content.decode()
        assert not FailureRule.objects.filter(title="Licence").exists()

    def test_a_shipped_rule_is_switched_off_but_not_changed(self, staff_client):
        assert "Out of memory" in staff_client.get(self.URL).content.decode()
        row = FailureRule.objects.get(shipped="memory")
        staff_client.post(f"{self.URL}{row.pk}/do/change/", {**self.FORM, "confirmed": "1"})
        staff_client.post(f"{self.URL}{row.pk}/do/delete/", {"confirmed": "1"})
        staff_client.post(f"{self.URL}{row.pk}/do/deactivate/")
        row.refresh_from_db()
        assert (row.title, row.active) == ("Out of memory", False)
        assert "memory" not in {rule.key for rule in rules.in_force()}
