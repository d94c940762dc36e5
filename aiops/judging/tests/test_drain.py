"""The template cache: templates and the verdicts stored with them."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiops.judging.template_cache import Hit, TemplateCache

TEXTS = st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", "x1", "<num>"]), max_size=9).map(" ".join), max_size=60)


def learned(cache: TemplateCache, *texts: str, level: str = "Normal"):
    return cache.learn([(text, level, f"raw {text}") for text in texts])


def test_an_unknown_text_is_a_miss_and_a_classified_one_a_hit():
    cache = TemplateCache()
    assert cache.match_many(["disk <num> full"]) == [None]
    [template] = learned(cache, "disk <num> full", level="Anomaly")
    assert template == ("disk <num> full", template.cluster_id, True, "raw disk <num> full")
    assert cache.match_many(["disk <num> full", "disk full"]) == [
        Hit("Anomaly", template.template, template.cluster_id),
        None,
    ]


def test_a_template_gives_no_verdict_and_may_have_texts_of_both_levels():
    cache = TemplateCache()
    [first] = learned(cache, "user was logged in by anna at <num>")
    [second] = learned(cache, "user was logged in by anna on <num>", level="Anomaly")
    assert second.cluster_id == first.cluster_id
    assert second.template == "user was logged in by anna <*> <num>"
    assert second.changed
    assert cache.match_many(["user was logged in by anna or <num>"]) == [None]
    levels = [hit.level for hit in cache.match_many(list(cache.texts))]
    assert levels == ["Normal", "Anomaly"]


def test_different_texts_and_lengths_have_different_templates():
    cache = TemplateCache()
    numbers = [template.cluster_id for template in learned(cache, "a b c d e", "v w x y z", "a b c d")]
    assert len(set(numbers)) == 3


def test_an_underscore_separates_words_but_stays_in_the_text():
    cache = TemplateCache()
    [template] = learned(cache, "open_file failed")
    assert template.template == "open file failed"
    assert cache.match_many(["open_file failed", "open file failed"])[1] is None
    assert cache.match_many(["open_file failed"])[0].level == "Normal"


def test_sentences_without_spaces_have_templates_by_character():
    cache = TemplateCache()
    line = "用户{}登录成功，来自<ip> 耗时<num>"
    names = ["张三", "李四", "王五", "赵六", "孙七", "周八", "吴九", "郑十"]
    learned(cache, *(line.format(name) for name in names))
    cache.regroup()
    [fresh] = learned(cache, line.format("何勇"))
    assert fresh.template == "用户<*> <*>登录成功，来自<ip>耗时<num>"
    assert {hit.template for hit in cache.match_many([line.format(name) for name in names])} == {fresh.template}


def test_a_users_label_overrides_the_models_verdict():
    """Also over a verdict that was in flight when the label was set, and after a restart."""
    cache = TemplateCache()
    learned(cache, "odd thing", level="Anomaly")
    cache.learn([("odd thing", "Normal", "raw")], from_feedback=True)
    learned(cache, "odd thing", level="Anomaly")
    assert cache.match_many(["odd thing"])[0].level == "Normal"
    other = TemplateCache()
    other.load(cache.dump())
    learned(other, "odd thing", level="Anomaly")
    assert other.match_many(["odd thing"])[0].level == "Normal"
    other.learn([("odd thing", "Anomaly", "raw")], from_feedback=True)
    assert other.match_many(["odd thing"])[0].level == "Anomaly"


def test_a_later_verdict_of_the_model_replaces_the_earlier_one():
    cache = TemplateCache()
    learned(cache, "odd thing", level="Anomaly")
    learned(cache, "odd thing", level="Normal")
    assert cache.match_many(["odd thing"])[0].level == "Normal"


def test_the_sample_is_of_the_most_frequent_text():
    cache = TemplateCache()
    learned(cache, "user was logged in by anna at <num>", "user was logged in by anna on <num>")
    cache.match_many(["user was logged in by anna on <num>"] * 3)
    [template] = learned(cache, "user was logged in by anna on <num>")
    assert template.changed
    assert template.sample == "raw user was logged in by anna on <num>"
    assert not learned(cache, "user was logged in by anna on <num>")[0].changed


def test_memory_is_bounded_and_the_least_recently_seen_is_evicted():
    cache = TemplateCache(most_texts=50)
    for number in range(500):
        letters = "".join(chr(97 + int(digit)) for digit in str(number))
        learned(cache, f"{letters} says {letters * 2} to {letters * 3}")
        learned(cache, "keep me here")
    assert len(cache) == 50
    assert len(cache.clusters) <= 50
    assert cache.match_many(["keep me here"])[0].level == "Normal"
    assert cache.match_many(["a says aa to aaa"]) == [None]


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_learned_texts_survive_a_restart(texts):
    cache = TemplateCache(most_texts=40)
    learned(cache, *texts)
    other = TemplateCache(most_texts=40)
    other.load(cache.dump())
    kept = list(cache.texts)
    assert None not in cache.match_many(kept)
    assert other.match_many(kept) == cache.match_many(kept)
    for text, hit in zip(kept, cache.match_many(kept), strict=True):
        template, words = hit.template.split(), text.replace("_", " ").split()
        assert all(mine in ("<*>", other) for mine, other in zip(template, words, strict=True))
    for cluster in cache.clusters.values():
        assert cluster.texts


def test_template_numbers_are_unique():
    cache = TemplateCache()
    [old] = learned(cache, "first of all")
    cache.clear()
    assert cache.match_many(["first of all"]) == [None]
    [new] = learned(cache, "something else entirely")
    assert new.cluster_id > old.cluster_id


@pytest.mark.parametrize("data", [b"", b"junk", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_an_invalid_dump_is_refused_and_changes_nothing(data):
    cache = TemplateCache()
    learned(cache, "still here")
    with pytest.raises(ValueError, match="not a template cache"):
        cache.load(data)
    assert cache.match_many(["still here"])[0]


def test_a_dump_of_the_first_format_is_read():
    cache = TemplateCache()
    learned(cache, "user anna left", "user bob left")
    state = json.loads(zlib.decompress(cache.dump()))
    state["clusters"] = [[number, words, "", most] for number, [words], most in state["clusters"]]
    first = zlib.compress(json.dumps({**state, "format": 1}).encode())
    other = TemplateCache()
    other.load(first)
    assert other.match_many(["user anna left"]) == cache.match_many(["user anna left"])
    assert other.dump() == cache.dump()


USERS = ["".join(chr(97 + int(digit)) * 2 for digit in str(number)) for number in range(40)]


def test_a_new_user_is_no_new_template_once_templates_are_learned():
    cache = TemplateCache()
    lines = [f"user {user} opened page <num>" for user in USERS] + [f"proxy for {user} closed <num>" for user in USERS]
    learned(cache, *lines)
    assert cache.is_regroup_due()
    cache.regroup()
    assert not cache.is_regroup_due()
    assert {cluster.template for cluster in cache.clusters.values()} == {
        "user <*> opened page <num>",
        "proxy for <*> closed <num>",
    }
    [new] = learned(cache, "user zoe opened page <num>")
    assert not new.changed
    assert new.template == "user <*> opened page <num>"


def test_templates_that_were_learned_by_an_earlier_release_keep_their_numbers_and_are_learned_again():
    cache = TemplateCache()
    learned(cache, *[f"took {user} <duration>" for user in USERS])
    cache.regroup()
    state = json.loads(zlib.decompress(cache.dump()))
    state["clusters"] = [[number, words, most] for number, [words], most in state["clusters"]]
    other = TemplateCache()
    other.load(zlib.compress(json.dumps({**state, "format": 3}).encode()))
    assert other.is_regroup_due()
    assert other.regroup() == []
    assert other.match_many(["took aa <duration>"]) == cache.match_many(["took aa <duration>"])


def templates_of(*lines: str) -> set[str]:
    """Return the templates that are learned from these lines."""
    cache = TemplateCache()
    learned(cache, *lines)
    cache.regroup()
    return {hit.template for hit in cache.match_many(lines)}


def test_the_days_and_months_of_dates_are_no_templates_of_their_own():
    lines = [f"backup at {day} {month} <num> done" for day in ("mon", "tue") for month in ("jan", "feb")]
    assert templates_of(*lines) == {"backup at <*> <*> <num> done"}
    assert templates_of("disk may fail soon", "disk will fail soon") == {"disk may fail soon", "disk will fail soon"}


def test_few_users_are_a_variable_and_two_states_are_not():
    assert templates_of(*[f"rejected password for {user} <num>" for user in USERS[:4]]) == {
        "rejected password for <*> <num>"
    }
    lines = [f"panel visible = {state} height = <num>" for state in ("true", "false")]
    assert templates_of(*lines) == set(lines)


def test_a_message_may_begin_with_one_of_many_words():
    lines = [f"{user} = <num>" for user in USERS[:20]]
    assert templates_of(*lines) == set(lines)
    errors = [f"java.io.{name}exception : stream closed" for name in ("eof.", "sync.")]
    assert templates_of(*errors) == set(errors)


def test_a_list_of_values_and_a_value_that_may_be_missing_are_one_template():
    cache = TemplateCache()
    lists = [f"delete of {'<token_with_digit> ' * count}done" for count in (1, 2, 9)]
    hosts = [f"connection from <ip> at {day} <num>" for day in ("sat", "sun")]
    named = [f"connection from <ip> {user} at sun <num>" for user in USERS]
    learned(cache, *lists, *hosts, *named)
    cache.regroup()
    other = TemplateCache()
    other.load(cache.dump())
    for known in (cache, other):
        for lines in (lists, hosts + named):
            assert len({hit.cluster_id for hit in known.match_many(lines)}) == 1
        [new, old] = learned(known, "connection from <ip> zoe at mon <num>", "connection from <ip> at mon <num>")
        assert new.cluster_id == old.cluster_id == known.match_many(hosts)[0].cluster_id
        assert not new.changed
        assert not old.changed
        assert new.template == "connection from <ip> <*> at <*> <num>"


def test_lines_of_values_only_have_templates_by_their_length():
    assert templates_of("<num> <num>", "<num> <num> <num>") == {"<num> <num>", "<num> <num> <num>"}


def test_few_different_words_are_parts_of_templates():
    cache = TemplateCache()
    lines = [f"connection of {user} was {end}" for user in USERS for end in ("opened", "closed")]
    learned(cache, *lines)
    cache.regroup()
    assert {cluster.template for cluster in cache.clusters.values()} == {
        "connection of <*> was opened", "connection of <*> was closed",
    }  # fmt: skip


def test_learned_templates_keep_their_numbers_and_are_reported_once():
    cache = TemplateCache()
    learned(cache, *[f"user {user} opened page <num>" for user in USERS])
    numbers = set(cache.clusters)
    [template] = cache.regroup()
    assert template.cluster_id in numbers
    assert cache.regroup() == []
    assert cache.match_many(["user aa opened page <num>"])[0].template == template.template


def test_learned_templates_survive_a_restart_and_a_new_model():
    cache = TemplateCache()
    learned(cache, *[f"user {user} opened page <num>" for user in USERS])
    cache.regroup()
    other = TemplateCache()
    other.load(cache.dump())
    assert not other.is_regroup_due()
    other.forget_verdicts()
    assert other.match_many(["user aa opened page <num>"]) == [None]
    [known] = learned(other, "user aa opened page <num>", level="Anomaly")
    assert not known.changed
    assert known.cluster_id in cache.clusters
    assert other.match_many(["user aa opened page <num>"])[0].level == "Anomaly"


@pytest.mark.long
def test_long_texts_that_differ_at_every_word_do_not_stop_the_learning():
    cache = TemplateCache()
    words = ["same"] * 1500
    learned(cache, *[" ".join([*words[:place], "other", *words[place + 1 :]]) for place in range(300)])
    cache.regroup()
    assert sum(len(cluster.texts) for cluster in cache.clusters.values()) == 300


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_every_text_matches_its_learned_template(texts):
    cache = TemplateCache()
    learned(cache, *texts)
    cache.regroup()
    learned(cache, "a b c", "x1 b")
    for text, hit in zip(cache.texts, cache.match_many(list(cache.texts)), strict=True):
        form = cache.clusters[hit.cluster_id].forms[len(text.split())]
        assert all(mine in ("<*>", word) for mine, word in zip(form, text.split(), strict=True))
