"""The interface in Chinese is complete: every string is marked, is in the catalogue, and appears translated."""

from __future__ import annotations

import gettext
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
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
SOURCE = translations.strings()
CATALOGUE = translations.read_po(FOLDER / "django.po")
USED = {key: message for key, message in CATALOGUE.items() if not message.obsolete}
SHOWN_ATTRIBUTES = {"title", "alt", "placeholder", "aria-label", "aria-description"}
# Attributes whose words a script shows.
SHOWN_DATA = re.compile(r"data-(word|confirm|label|empty|copied|others|best|accuracy|loss|epoch|auto|light|dark)")
QUIET = {"script", "style", "code", "pre", "textarea"}
# The same in every language: product names, units, what one types.
NAMES = {
    "API", "CPU", "GPU", "RAM", "ROM", "Mi", "UTC", "Python", "PyTorch", "TensorFlow", "curl", "train.py",
    "--epochs", "epochs", "NAME=value", "English", "JavaScript", "NAME", "value", "DEBUG",
}  # fmt: skip


# --- the catalogue -------------------------------------------------------------------------------------------------
def test_every_string_of_the_source_is_translated():
    missing = sorted(key for key in SOURCE if key not in USED or not CATALOGUE[key].translated)
    assert not missing, f"{len(missing)} strings need words: run tools/translations.py and give them some\n{missing}"


def test_the_catalogue_has_nothing_else():
    assert not sorted(set(USED) - set(SOURCE)), "run tools/translations.py"


def test_translations_are_whole():
    wrong = []
    for message in USED.values():
        for words in message.words:
            same = translations.placeholders(words) == translations.placeholders(message.plural or message.id)
            ends = words.endswith(("：", ":")) == message.id.endswith(":")
            if "fuzzy" in message.flags or not same or not ends or words.strip() != words:
                wrong.append((message.id, words))
            rest = re.sub(translations.PLACEHOLDER, "", words)
            if not re.search(r"[\u4e00-\u9fff]", rest) and set(re.findall(r"[A-Za-z]+", rest)) - NAMES:
                wrong.append((message.id, "not Chinese"))
    assert not wrong, "fuzzy, other placeholders, blanks at an end, or a colon more or less"


def test_states_said_at_run_time_are_in_the_catalogue():
    """`{% translate row.target %}` of the histories: whatever a job or dataset can be."""
    for state in {*JobState.values, *DatasetState.values}:
        assert USED[("", state)].translated


def test_the_compiled_catalogue_is_that_of_the_source():
    with (FOLDER / "django.mo").open("rb") as file:
        compiled = dict(gettext.GNUTranslations(file)._catalog)
    compiled.pop("", None)
    expected = {}
    for message in USED.values():
        name = f"{message.context}\x04{message.id}" if message.context else message.id
        for index, words in enumerate(message.words):
            expected[(name, index) if message.plural else name] = words
    assert compiled == expected, "run tools/translations.py"


def test_the_files_are_as_the_tool_writes_them():
    entries = list(CATALOGUE.values())
    assert (FOLDER / "django.po").read_text() == translations.write_po(entries, LANGUAGE)
    assert (FOLDER / "django.mo").read_bytes() == translations.compiled(entries, LANGUAGE)


def test_django_itself_reads_it():
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
    found = [(message.context, message.id, message.plural) for message in translations.in_python(text)]
    assert found == [("", "one two", ""), ("c", "a", "b"), ("", "x", "y")]


def test_strings_are_found_in_templates():
    text = (
        "{% load i18n %}{% translate \"it's\" %}{% translate 'c' context 'k' %}{{ x|default:_('d') }}"
        "{% blocktranslate count n=n %}{{ n }} one{% plural %}{{ n }} more{% endblocktranslate %}"
    )
    found = {(message.context, message.id, message.plural) for message in translations.in_template(text)}
    assert found == {("", "it's", ""), ("k", "c", ""), ("", "d", ""), ("", "%(n)s one", "%(n)s more")}


def test_words_survive_the_file(tmp_path):
    awkward = translations.Message("k", 'a "b"\n\\c %(d)s', "", ["甲“乙”\n\\%(d)s"])
    gone = translations.Message("", "gone", "", ["没了"], obsolete=True)
    plural = translations.Message("", "%(n)s one", "%(n)s more", ["%(n)s 个"])
    path = tmp_path / "django.po"
    path.write_text(translations.write_po([awkward, gone, plural], LANGUAGE))
    again = translations.read_po(path)
    assert {key: (one.plural, one.words, one.obsolete) for key, one in again.items()} == {
        one.key: (one.plural, one.words, one.obsolete) for one in (awkward, gone, plural)
    }


# --- texts in HTML -------------------------------------------------------------------------------------------------
class Texts(HTMLParser):
    """Collects the (where, text) of a page that people see: text nodes and the attributes that are shown or read."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.quiet: list[str] = []
        self.found: list[tuple[str, str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag in QUIET:
            self.quiet.append(tag)
        for name, value in attrs:
            if value and (name in SHOWN_ATTRIBUTES or SHOWN_DATA.match(name)):
                self.found.append((f"{tag} {name}", " ".join(value.split())))

    def handle_endtag(self, tag):
        if self.quiet and tag == self.quiet[-1]:
            self.quiet.pop()

    def handle_data(self, data):
        if not self.quiet and data.strip():
            self.found.append(("text", " ".join(data.split())))


def bare(source: str) -> list[tuple[str, str]]:
    """The texts of a template that no tag or variable stands for."""
    source = re.sub(r"\{#.*?#\}", "", source)
    source = re.sub(r"\{% comment.*?endcomment %\}", "", source, flags=re.DOTALL)
    source = re.sub(r"\{% blocktrans.*?endblocktrans(?:late)? %\}", "", source, flags=re.DOTALL)
    # what a filter gives in place of nothing is text too
    source = re.sub(r"\{\{.*?\}\}", lambda tag: " ".join(re.findall(r"""default:["'](.*?)["']""", tag[0])), source)
    source = re.sub(r"\{%.*?%\}", "", source)
    found = []
    for where, text in Texts(source).found:
        words = [word for word in re.split(r"[\s·/]+", text) if re.search(r"[^\W\d_]{2,}", word)]
        if any(word.strip(".,:()") not in NAMES for word in words):
            found.append((where, text))
    return found


@pytest.mark.parametrize("path", sorted(TEMPLATES.rglob("*.html")), ids=lambda path: str(path.relative_to(TEMPLATES)))
def test_templates_have_no_text_of_their_own(path):
    allowed = {("text", "content_copy"), ("text", "data-theme")}  # the name of an icon
    assert not [text for text in bare(path.read_text()) if text not in allowed]


def test_bare_text_is_noticed():
    source = (
        '<p title="Hello there">{{ name|default:"nobody" }}</p><b>{% translate "x" %}</b><i class="all right">CPU</i>'
        '<code>ls</code><a data-confirm="Sure?">{# note #}Go</a>{% blocktranslate %}fine{% endblocktranslate %}'
    )
    assert [text for _where, text in bare(source)] == ["Hello there", "nobody", "Sure?", "Go"]


# --- the pages -----------------------------------------------------------------------------------------------------
ENGLISH = {message.id for message in USED.values() if message.words[0] != message.id and "%(" not in message.id}
SENTENCES = {text for text in ENGLISH if len(text.split()) > 2}


def untranslated(html: str, besides: set[str] = frozenset()) -> list[tuple[str, str]]:
    found = []
    for where, text in Texts(html).found:
        if text in besides:
            continue
        if text in ENGLISH or any(sentence in text for sentence in SENTENCES):
            found.append((where, text))
    return found


@pytest.fixture
def chinese(client, alice, home):
    """Alice's browser, set to Chinese; she has a job and a dataset in every state."""
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
def test_pages_speak_chinese(chinese):
    for address in addresses():
        response = chinese.get(address)
        assert response.status_code == (404 if address == "/nowhere" else 200), address
        html = response.content.decode()
        assert re.search(r"[\u4e00-\u9fff]", html), address
        assert not untranslated(html), address


@pytest.mark.django_db
@pytest.mark.parametrize("query", ["", "?action=register"])
def test_the_way_in_speaks_the_browser_s_language(client, query):
    html = client.get("/regist_login" + query, headers={"accept-language": "zh-CN,zh;q=0.9,en;q=0.5"}).content.decode()
    assert 'lang="zh-hans"' in html
    assert "登录" in html
    assert not untranslated(html)


@pytest.mark.django_db
def test_empty_pages_speak_chinese(client, bob):
    client.force_login(bob)
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    for address in ("/index", "/datasets", "/jobs", "/usage", "/scripts"):
        assert not untranslated(client.get(address).content.decode()), address


@pytest.mark.django_db
def test_refusals_of_forms_speak_chinese(chinese):
    """A page says a refusal in its own language; the same call over REST says it in English."""
    html = chinese.post("/datasets", {"name": "Not Legal", "size": "1"}).content.decode()
    assert "须为 1 至 50 个小写字母" in html
    assert not untranslated(html)


@pytest.mark.django_db
def test_rest_speaks_english_whoever_asks(as_alice):
    message = as_alice.refused("get", "users/alice/jobs/nosuch", HTTP_ACCEPT_LANGUAGE="zh-CN")
    assert message.isascii()


@pytest.mark.django_db
def test_english_stays_english(client, alice):
    client.force_login(alice)
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "en"
    html = re.sub(r"<button name=\"language\".*?</button>", "", client.get("/index").content.decode(), flags=re.DOTALL)
    assert not re.search(r"[\u4e00-\u9fff]", html)


def test_a_fault_speaks_chinese():
    with translation.override("zh-hans"):
        html = pages.broken(None).content.decode()
    assert not untranslated(html)
