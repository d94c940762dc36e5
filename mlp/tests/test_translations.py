"""The Chinese interface is complete: every string is marked, in the catalogue, and shown translated."""

from __future__ import annotations

import gettext
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from babel.messages import Catalog
from django.conf import settings
from django.urls import reverse
from django.utils import translation

from datasets.models import Dataset
from datasets.models import State as DatasetState
from jobs.models import Job
from jobs.models import State as JobState
from mlp.operators.tests.admin_world import put
from mlp.visitors import pages
from tools import translations

LANGUAGE = "zh_Hans"
FOLDER = Path(settings.BASE_DIR) / "locale" / LANGUAGE / "LC_MESSAGES"
TEMPLATES = Path(settings.BASE_DIR) / "templates"
CATALOGUE = translations.catalogue(LANGUAGE)
USED = {(message.context, message.id): message for message in translations.used(CATALOGUE)}
SHOWN_ATTRIBUTES = {"title", "alt", "placeholder", "aria-label", "aria-description"}
# Attributes whose words a script shows.
SHOWN_DATA = re.compile(r"data-(word|confirm|label|empty|copied|others|best|accuracy|loss|epoch|auto|light|dark)")
QUIET = {"script", "style", "code", "pre", "textarea"}
# The same in every language: product names, units, what one types.
NAMES = {
    "API", "CPU", "GPU", "RAM", "ROM", "MiB", "GiB", "UTC", "Python", "PyTorch", "TensorFlow", "curl", "train.py",
    "--epochs", "epochs", "NAME=value", "English", "JavaScript", "NAME", "value", "DEBUG", "CSV", "Pod", "Webhook",
    "NaN", "Git", "tar.gz", "null", "JSON", "Markdown", "MLflow", "SSH",
}  # fmt: skip


EXAMPLES = (
    "baseline, team=vision",
    "loss < 0.1 and lr = 0.01 and tag = baseline",
    "state = failed",
    "sweep",
    "ResNet-50 lr=0.1 #3",
    "--lr 0.1",
)  # are code


@pytest.fixture(scope="module")
def source() -> set[tuple[str | None, str]]:
    """Return (context, text) of every marked string; reading all files is not for those that only collect tests."""
    return {(message.context, message.id) for message in translations.used(translations.strings())}


# --- the catalogue -------------------------------------------------------------------------------------------------
def test_every_string_of_the_source_is_translated(source):
    missing = sorted(str(key) for key in source if key not in USED or not translations.is_translated(USED[key]))
    assert not missing, f"{len(missing)} strings need a translation: run tools/translations.py\n" + "\n".join(missing)


def test_the_catalogue_has_no_unused_strings(source):
    assert not set(USED) - source, "run tools/translations.py"


# Words that readers did not understand, or that another page says otherwise; what is said instead is in the catalogue.
REPLACED = {
    "System default": "System", "Second factors": "Two-factor authentication", "Make the token": "Create token",
    "Change the job's form": "Edit and run again", "Deleted on": "Will be deleted on", "Done.": "Alert rule created.",
    "May": "Scope", "作业": "任务", "第二因素": "两步验证", "占用最多": "占用空间最多", "回溯": "错误堆栈",
}  # fmt: skip


def _texts(english: bool) -> list[str]:
    """Return all texts of the catalogue, plural forms one by one."""
    messages = [message.id if english else message.string for message in USED.values()]
    return [text for texts in messages for text in ((texts,) if isinstance(texts, str) else texts)]


@pytest.mark.parametrize(("old", "new"), REPLACED.items())
def test_words_that_were_replaced_do_not_come_back(old, new):
    """A term has one form on all pages: whole texts in English, parts of them in Chinese."""
    texts = _texts(old.isascii())
    assert not [text for text in texts if (text == old if old.isascii() else old in text)]
    assert any(new in text for text in texts)


def test_chinese_has_its_own_comma():
    wrong = re.compile(r"[\u4e00-\u9fff],|,[\u4e00-\u9fff]")
    assert not [text for text in _texts(False) if wrong.search(text)]


def test_translations_are_complete():
    wrong = []
    for message in USED.values():
        source = translations.source_of(message)
        for text in translations.forms(message):
            same = translations.placeholders(text) == translations.placeholders(source)
            ends = text.endswith(("：", ":")) == source.endswith(":")
            if message.fuzzy or not same or not ends or text.strip() != text:
                wrong.append((message.id, text))
            rest = re.sub(translations.PLACEHOLDER, "", text)
            if not re.search(r"[\u4e00-\u9fff]", rest) and set(re.findall(r"[A-Za-z]+", rest)) - NAMES:
                wrong.append((message.id, "not Chinese"))
    assert not wrong, "fuzzy, other placeholders, blanks at an end, or a colon more or less"


def test_states_shown_at_run_time_are_in_the_catalogue():
    """`{% translate row.target %}` of the histories: all states of jobs and datasets."""
    for state in {*JobState.values, *DatasetState.values}:
        assert translations.is_translated(USED[None, state])


def test_the_compiled_catalogue_is_that_of_the_source():
    with (FOLDER / "django.mo").open("rb") as file:
        compiled = dict(gettext.GNUTranslations(file)._catalog)
    compiled.pop("", None)
    expected = {}
    for message in USED.values():
        plural = isinstance(message.id, tuple)
        text = message.id[0] if plural else message.id
        name = f"{message.context}\x04{text}" if message.context else text
        for index, form in enumerate(translations.forms(message)):
            expected[(name, index) if plural else name] = form
    assert compiled == expected, "run tools/translations.py"


def test_the_files_are_as_the_tool_writes_them():
    assert (FOLDER / "django.po").read_bytes() == translations.as_po(CATALOGUE)
    assert (FOLDER / "django.mo").read_bytes() == translations.as_mo(CATALOGUE)


def test_django_reads_the_catalogue():
    with translation.override("zh-hans"):
        assert translation.gettext("datasets") == "数据集"
        assert translation.pgettext("a job", "Cancel") == "取消"
        assert translation.ngettext("%(counter)s object", "%(counter)s objects", 2) == "%(counter)s 个对象"


# --- what the tool finds --------------------------------------------------------------------------------------------
def test_strings_are_found_in_python():
    text = (
        "from django.utils.translation import gettext as _, npgettext, ngettext_lazy\n"
        "_('one ' 'two'); _(name); npgettext('c', 'a', 'b', 2); ngettext_lazy('x', 'y', 3); other('no')\n"
    )
    assert list(translations.in_python(text)) == [(None, "one two"), ("c", ("a", "b")), (None, ("x", "y"))]


def test_messages_are_found_in_python():
    text = (
        "raise Refused('must be %(low)s', field='x', low=1)\n"
        "raise HttpError(404, 'no such file', field='path')\n"
        "fail(pk, Message('broken: %(problem)s', problem=problem)); Message('%(a)s: %(b)s', a=1, b=2)\n"
    )
    templates = [text for _context, text in translations.in_python(text)]
    assert templates == ["must be %(low)s", "no such file", "broken: %(problem)s"]


def test_strings_are_found_in_templates():
    text = (
        "  {% load i18n %}{% translate \"it's\" %}\n    {% translate 'c' context 'k' %}\n {{ x|default:_('d') }}"
        "{% blocktranslate count n=n %}{{ n }} one{% plural %}{{ n }} more{% endblocktranslate %}"
    )
    expected = {(None, "it's"), ("k", "c"), (None, "d"), (None, ("%(n)s one", "%(n)s more"))}
    assert set(translations.in_template(text)) == expected


def test_translations_of_removed_strings_are_kept_for_their_return():
    source, awkward = Catalog(), 'a "b"\n\\c %(d)s'
    for id, context in ((awkward, "k"), ("gone", None), (("%(n)s one", "%(n)s more"), None)):
        source.add(id, context=context)
    catalog = translations.merged(translations.SteadyCatalog(LANGUAGE), source)
    catalog.get(awkward, "k").string = "甲“乙”\n\\%(d)s"
    catalog.get("gone").string = "没了"
    catalog.get("%(n)s one").string = ("%(n)s 个",)
    whole = translations.as_po(catalog)
    again = translations.read(LANGUAGE, whole)
    assert translations.as_po(again) == whole
    source.delete("gone")
    without = translations.read(LANGUAGE, translations.as_po(translations.merged(again, source)))
    assert "gone" not in without
    source.add("gone")
    assert translations.as_po(translations.merged(without, source)) == whole


# --- texts in HTML -------------------------------------------------------------------------------------------------
class Texts(HTMLParser):
    """Collects the (where, text) of a page that users see: text nodes, and attributes that are shown or read aloud."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.quiet: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag in QUIET:
            self.quiet.append(tag)
        for name, value in attrs:
            if value and (name in SHOWN_ATTRIBUTES or SHOWN_DATA.match(name)):
                self.texts.append((f"{tag} {name}", " ".join(value.split())))

    def handle_endtag(self, tag):
        if self.quiet and tag == self.quiet[-1]:
            self.quiet.pop()

    def handle_data(self, data):
        if not self.quiet and data.strip():
            self.texts.append(("text", " ".join(data.split())))


def bare(source: str) -> list[tuple[str, str]]:
    """Return the texts of a template that are in no tag or variable."""
    source = re.sub(r"\{#.*?#\}", "", source)
    source = re.sub(r"\{% comment.*?endcomment %\}", "", source, flags=re.DOTALL)
    source = re.sub(r"\{% blocktrans.*?endblocktrans(?:late)? %\}", "", source, flags=re.DOTALL)
    # what a filter gives in place of nothing is text too
    source = re.sub(r"\{\{.*?\}\}", lambda tag: " ".join(re.findall(r"""default:["'](.*?)["']""", tag[0])), source)
    source = re.sub(r"\{%.*?%\}", "", source)
    offences = []
    for where, text in Texts(source).texts:
        words = [word for word in re.split(r"[\s·/]+", text) if re.search(r"[^\W\d_]{2,}", word)]
        if any(word.strip(".,:()") not in NAMES for word in words):
            offences.append((where, text))
    return offences


def test_templates_have_no_unmarked_text():
    allowed = {("text", "content_copy"), ("text", "data-theme"), ("text", "Aa")}  # icons
    allowed |= {("input placeholder", example) for example in EXAMPLES}
    templates = sorted(TEMPLATES.rglob("*.html"))
    assert len(templates) > 200
    found = {str(path): [text for text in bare(path.read_text()) if text not in allowed] for path in templates}
    assert {path: texts for path, texts in found.items() if texts} == {}


def test_unmarked_text_is_detected():
    source = (
        '<p title="Hello there">{{ name|default:"nobody" }}</p><b>{% translate "x" %}</b><i class="all right">CPU</i>'
        '<code>ls</code><a data-confirm="Sure?">{# note #}Go</a>{% blocktranslate %}fine{% endblocktranslate %}'
    )
    assert [text for _where, text in bare(source)] == ["Hello there", "nobody", "Sure?", "Go"]


# --- the pages -----------------------------------------------------------------------------------------------------
ENGLISH = {
    message.id
    for message in USED.values()
    if isinstance(message.id, str) and message.string != message.id and "%(" not in message.id
}
SENTENCES = {text for text in ENGLISH if len(text.split()) > 2}


def untranslated(html: str, besides: set[str] = frozenset()) -> list[tuple[str, str]]:
    offences = []
    for where, text in Texts(html).texts:
        if text in besides:
            continue
        if text in ENGLISH or any(sentence in text for sentence in SENTENCES):
            offences.append((where, text))
    return offences


@pytest.fixture
def chinese(client, alice, home):
    """Alice's client, set to Chinese; she has a job and a dataset in every state."""
    for number, state in enumerate(JobState.values):
        put(Job, alice, "job" + "abcdefg"[number], state)
    for number, state in enumerate(DatasetState.values):
        put(Dataset, alice, "set" + "abcdefg"[number], state)
    client.force_login(alice)
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    return client


def addresses() -> list[str]:
    jobs = [f"/jobs/job{letter}" for letter in "abcde"]
    sets = [f"/datasets/set{letter}" for letter in "abcd"]
    lists = ["/index", "/datasets", "/jobs", "/usage", "/jobs?new=1", "/datasets?new=1", "/jobs?q=nothing"]
    return lists + jobs + sets + [reverse("account"), reverse("reference"), "/scripts", "/nowhere"]


@pytest.mark.django_db
def test_pages_are_shown_in_chinese(chinese):
    for address in addresses():
        response = chinese.get(address)
        assert response.status_code == (404 if address == "/nowhere" else 200), address
        html = response.content.decode()
        assert re.search(r"[\u4e00-\u9fff]", html), address
        assert not untranslated(html), address


@pytest.mark.django_db
@pytest.mark.parametrize("query", ["", "?action=register"])
def test_the_login_page_uses_the_browsers_language(client, query):
    html = client.get("/regist_login" + query, headers={"accept-language": "zh-CN,zh;q=0.9,en;q=0.5"}).content.decode()
    assert 'lang="zh-hans"' in html
    assert "登录" in html
    assert not untranslated(html)


@pytest.mark.django_db
def test_empty_pages_are_shown_in_chinese(client, bob):
    client.force_login(bob)
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    for address in ("/index", "/datasets", "/jobs", "/usage", "/scripts"):
        assert not untranslated(client.get(address).content.decode()), address


@pytest.mark.django_db
def test_form_errors_are_shown_in_chinese(chinese):
    """A page shows a refusal in its language; the same call over REST is answered in English."""
    html = chinese.post("/datasets", {"name": "Not Legal", "size": "1"}).content.decode()
    assert "必须为 1 至 50 个字符，只含 a-z 和点" in html
    assert not untranslated(html)


@pytest.mark.django_db
def test_rest_answers_in_english_always(as_alice):
    message = as_alice.refused("get", "users/alice/jobs/nosuch", HTTP_ACCEPT_LANGUAGE="zh-CN")
    assert message.isascii()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("language", "expected"), [("zh-hans", "必须为 1 至 50 个字符"), ("en", "must be"), ("x", "must be")]
)
def test_rest_answers_the_scripts_of_a_page_in_its_language(as_alice, language, expected):
    body = {"name": "Not Legal", "size": 1}
    message = as_alice.refused("post", "users/alice/datasets", body, HTTP_X_PAGE_LANGUAGE=language)
    assert message.startswith("name")
    assert expected in message


@pytest.mark.django_db
def test_pages_in_english_have_no_chinese(client, alice):
    client.force_login(alice)
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "en"
    html = re.sub(r"<button name=\"language\".*?</button>", "", client.get("/index").content.decode(), flags=re.DOTALL)
    assert not re.search(r"[\u4e00-\u9fff]", html)


def test_server_errors_are_shown_in_chinese():
    with translation.override("zh-hans"):
        html = pages.broken(None).content.decode()
    assert not untranslated(html)
