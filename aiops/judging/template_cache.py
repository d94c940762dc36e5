"""A cache of templates and verdicts by masked text: a text seen before needs no model. Used by the DRAIN service.

A new text is placed by Drain's tree (He et al. 2017): one level for the number of words, one for each of the first six
words, then the most similar template. `regroup` learns the templates again from all texts together
(`template_learning`), so that a value that came early, such as a user's name, does not stay a part of templates.
A hit is a text whose exact words were judged before, whatever wildcards its template has by now, so it costs one
dictionary look-up. Memory is bounded: the least recently seen texts are dropped first, and a template is dropped with
its last text.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from opnilog.template_learning import WILD, is_value, join_groups, learn_groups, template_of, text_of, words_of

SIMILAR = 0.4  # minimum share of equal words for a text to belong to a template
PREFIX = 6  # words used as levels of the tree (Drain's depth of 8, less the root and the number of words)
MAX_CHILDREN = 512
TEXTS = 200_000
MAX_SAMPLE = 1000  # characters of a raw line kept to show what a template looks like
FORMAT = 4
# 1 had one more field for each cluster, which was always empty; 1 and 2 no explanations; up to 3 a template had one
# number of words only, and other words were variables.
READABLE = {1, 2, 3, 4}
FIRST_REGROUP = 32  # texts; the next one is due when their number has doubled
MAX_EARLY = 10_000  # explanations that came before the verdict


class Hit(NamedTuple):
    level: str
    template: str
    cluster_id: int
    confidence: float | None = None  # the model's, when it gave the verdict
    unexpected: tuple | None = None  # [position, word] that it did not expect


class Learned(NamedTuple):
    template: str
    cluster_id: int
    changed: bool  # the template is new or more general, or its most frequent sample is another
    sample: str


@dataclass(slots=True)
class Text:
    """One masked text that has a verdict."""

    cluster: int
    level: str
    sample: str
    count: int = 1
    from_feedback: bool = False  # a user's verdict: no model's verdict replaces it
    confidence: float | None = None
    unexpected: tuple | None = None


@dataclass(slots=True)
class Cluster:
    """The texts of one template. It has words of its own for each number of words that its texts have."""

    number: int
    forms: dict[int, tuple[str, ...]]  # by the number of words; the first is shown
    texts: set[str] = field(default_factory=set)
    most: str = ""  # the text seen most often
    template: str = ""

    def __post_init__(self):
        self.template = text_of(next(iter(self.forms.values())))

    def generalise(self, words: Sequence[str]) -> bool:
        """Replace the words that differ from a text's by wildcards; return whether there are any."""
        mine = self.forms[len(words)]
        merged = tuple(old if old == new else WILD for old, new in zip(mine, words, strict=True))
        if merged == mine:
            return False
        self.forms[len(words)] = merged
        self.template = text_of(next(iter(self.forms.values())))
        return True


class Tree:
    """A search tree from words to clusters: nested dictionaries whose leaves are lists of cluster numbers."""

    def __init__(self):
        self.root: dict = {}

    def leaf(self, words: Sequence[str]) -> list[int]:
        """Return the leaf for a new template, created where it is missing."""
        node = self.root.setdefault(len(words), {})
        for at, word in enumerate(words[:PREFIX]):
            if word not in node:
                full = len(node) + (WILD not in node) >= MAX_CHILDREN
                word = WILD if full or is_value(words, at) else word
            node = node.setdefault(word, {})
        return node.setdefault(None, [])

    def find(self, words: Sequence[str]) -> list[int]:
        """Return the cluster numbers that these words may belong to."""
        nodes = [self.root.get(len(words), {})]
        for word in words[:PREFIX]:
            if len(nodes) == 1 and WILD not in nodes[0]:  # the usual case
                nodes = [nodes[0][word]] if word in nodes[0] else []
                continue
            keys = (word, WILD) if word != WILD else (WILD,)
            nodes = [node[key] for node in nodes for key in keys if key in node]
        return [number for node in nodes for number in node.get(None, ())]

    def remove(self, words: Sequence[str], number: int) -> None:
        """Remove the cluster from where its words put it when it was created, and the branches left empty."""
        self._remove(self.root.get(len(words), {}), list(words[:PREFIX]), number)
        if not self.root.get(len(words), True):
            del self.root[len(words)]

    def _remove(self, node: dict, words: list[str], number: int) -> bool:
        if not words:
            kept = [other for other in node.get(None, ()) if other != number]
            removed = len(kept) != len(node.get(None, ()))
            node[None] = kept
            if not kept:
                del node[None]
            return removed
        # a word that became a wildcard in the template is still the key of its branch
        tries = node.keys() if words[0] == WILD else {words[0], WILD} & node.keys()
        for word in list(tries):
            if self._remove(node[word], words[1:], number):
                if not node[word]:
                    del node[word]
                return True
        return False


def similarity(template: Sequence[str], words: Sequence[str]) -> tuple[float, int]:
    """Return the share of equal words, and how many wildcards the template has."""
    if not words:
        return 1.0, 0
    same = wild = 0
    for mine, other in zip(template, words, strict=True):
        if mine == WILD:
            wild += 1
        elif mine == other:
            same += 1
    return same / len(words), wild


class TemplateCache:
    """The templates and verdicts of one service. Not thread-safe.

    `most_texts` bounds the memory: about 0.5 KiB for a text of usual length. Templates are numbered from `first` on.
    `version` is that of the model whose verdicts these are, where its user keeps it.
    """

    def __init__(self, most_texts: int = TEXTS, first: int = 1):
        self.most_texts, self.next_number, self.version = most_texts, first, ""
        self.clear()

    def clear(self) -> None:
        """Drop every text and template. Template numbers go on, so that no number is ever used twice."""
        self.tree = Tree()
        self.clusters: dict[int, Cluster] = {}
        self.texts: OrderedDict[str, Text] = OrderedDict()
        self.early: OrderedDict[str, tuple] = OrderedDict()
        self.regroup_at = FIRST_REGROUP

    def forget_verdicts(self) -> None:
        """Drop all verdicts, and keep texts and templates with their numbers."""
        for text in self.texts.values():
            text.level, text.from_feedback, text.confidence, text.unexpected = "", False, None, None
        self.early.clear()

    def is_regroup_due(self) -> bool:
        """Tell whether the number of texts has doubled since the templates were learned from all of them."""
        return len(self.texts) >= self.regroup_at

    def regroup(self) -> list[Learned]:
        """Learn the templates from all texts; return those that are new or other words.

        A template keeps the number of the one that most of its lines had, so that known templates are not new ones.
        """
        groups = join_groups(learn_groups({masked: text.count for masked, text in self.texts.items()}))
        claims = []
        for group in groups:
            votes = Counter()
            for masked in chain.from_iterable(group):
                votes[self.texts[masked].cluster] += self.texts[masked].count
            claims += [(count, number, group) for number, count in votes.items()]
        numbers: dict[int, int] = {}
        taken = set()
        for _, number, group in sorted(claims, key=lambda claim: (-claim[0], claim[1])):
            if number not in taken and id(group) not in numbers:
                numbers[id(group)] = number
                taken.add(number)
        before, self.clusters, self.tree = self.clusters, {}, Tree()
        changed = [self._adopt(group, numbers.get(id(group)), before) for group in groups]
        self.regroup_at = max(FIRST_REGROUP, 2 * len(self.texts))
        return [template for template in changed if template.changed]

    def _adopt(self, groups: list[list[str]], number: int | None, before: dict[int, Cluster]) -> Learned:
        """Make the texts, in groups of equal length, a template with this number, or with a new one."""
        if number is None:
            number, self.next_number = self.next_number, self.next_number + 1
        by_lines = sorted(groups, key=lambda group: -sum(self.texts[masked].count for masked in group))
        forms = {len(words): words for words in map(template_of, by_lines)}
        texts = set(chain.from_iterable(groups))
        most = max(chain.from_iterable(groups), key=lambda masked: self.texts[masked].count)
        cluster = Cluster(number, forms, texts, most)
        for masked in texts:
            self.texts[masked].cluster = number
        self._enter(cluster)
        old = before.get(number)
        changed = old is None or old.template != cluster.template
        return Learned(cluster.template, number, changed, self.texts[most].sample)

    def __len__(self) -> int:
        return len(self.texts)

    def match_many(self, masked: Sequence[str]) -> list[Hit | None]:
        """Return the verdict of each text, or None where the model must judge it."""
        return [self.match(text) for text in masked]

    def match(self, masked: str, lines: int = 1) -> Hit | None:
        """Return the verdict of a text that so many lines have, or None where the model must judge it."""
        known = self.texts.get(masked)
        if known is None:
            return None
        known.count += lines
        self.texts.move_to_end(masked)
        if not known.level:  # a new model has not judged it yet
            return None
        template = self.clusters[known.cluster].template
        if known.from_feedback:  # the model's reasons are not the user's
            return Hit(known.level, template, known.cluster)
        return Hit(known.level, template, known.cluster, known.confidence, known.unexpected)

    def is_labelled(self, masked: str) -> bool:
        """Tell whether the text has a user's verdict."""
        known = self.texts.get(masked)
        return known is not None and known.from_feedback

    def explain(self, masked: str, unexpected: Sequence) -> None:
        """Keep the words of a text that the model did not expect; they may come before its verdict."""
        known = self.texts.get(masked)
        if known is not None:
            known.unexpected = tuple(unexpected)
            return
        self.early[masked] = tuple(unexpected)
        while len(self.early) > MAX_EARLY:
            self.early.popitem(last=False)

    def _nearest(self, words: Sequence[str]) -> Cluster | None:
        best, best_key = None, (SIMILAR, -1)
        for number in self.tree.find(words):
            cluster = self.clusters[number]
            key = similarity(cluster.forms[len(words)], words)
            if key >= best_key:
                best, best_key = cluster, key
        return best

    def learn(self, items: Iterable[tuple], *, from_feedback: bool = False) -> list[Learned]:
        """Add (masked text, level, raw sample, confidence if any) and return the template of each.

        The latest level of a text counts, except that a user's feedback is replaced by newer feedback only.
        """
        return [self._learn(*item, from_feedback=from_feedback) for item in items]

    def _learn(
        self, masked: str, level: str, sample: str, confidence: float | None = None, *, from_feedback: bool
    ) -> Learned:
        known = self.texts.get(masked)
        if known is not None:
            known.count += 1
            if from_feedback or not known.from_feedback:
                known.level, known.from_feedback, known.confidence = level, from_feedback, confidence
            self.texts.move_to_end(masked)
            cluster, changed = self.clusters[known.cluster], False
        else:
            cluster, changed = self._place(words_of(masked))
            known = Text(
                cluster.number, level, sample[:MAX_SAMPLE], from_feedback=from_feedback, confidence=confidence,
                unexpected=self.early.pop(masked, None),
            )  # fmt: skip
            self.texts[masked] = known
            cluster.texts.add(masked)
        most = self.texts.get(cluster.most)
        if most is None or (known is not most and known.count > most.count):
            cluster.most, changed = masked, True
        shown = self.texts[cluster.most].sample
        while len(self.texts) > self.most_texts:
            self._drop_oldest()
        return Learned(cluster.template, cluster.number, changed, shown)

    def _place(self, words: tuple[str, ...]) -> tuple[Cluster, bool]:
        """Return the cluster of the words, created or generalised where necessary, and whether it changed."""
        cluster = self._nearest(words)
        if cluster is None:
            cluster = Cluster(self.next_number, {len(words): words})
            self.next_number += 1
            self._enter(cluster)
            return cluster, True
        return cluster, cluster.generalise(words)

    def _enter(self, cluster: Cluster) -> None:
        self.clusters[cluster.number] = cluster
        for words in cluster.forms.values():
            self.tree.leaf(words).append(cluster.number)

    def _drop_oldest(self) -> None:
        masked, text = self.texts.popitem(last=False)
        for _ in range(len(self.texts)):
            if not text.from_feedback:
                break
            self.texts[masked] = text  # feedback is kept as long as there is anything else to drop
            masked, text = self.texts.popitem(last=False)
        cluster = self.clusters[text.cluster]
        cluster.texts.discard(masked)
        if not cluster.texts:
            del self.clusters[cluster.number]
            for words in cluster.forms.values():
                self.tree.remove(words, cluster.number)
        elif cluster.most == masked:
            cluster.most = max(cluster.texts, key=lambda text: self.texts[text].count, default="")

    def dump(self) -> bytes:
        """Return the whole cache as compressed JSON, to be loaded after a restart."""
        clusters = [
            [cluster.number, [list(words) for words in cluster.forms.values()], cluster.most]
            for cluster in self.clusters.values()
        ]
        texts = [
            [masked, text.cluster, text.level, text.sample, text.count,
             text.from_feedback, text.confidence, text.unexpected]
            for masked, text in self.texts.items()
        ]  # fmt: skip
        state = {"format": FORMAT, "next": self.next_number, "regroup_at": self.regroup_at, "version": self.version}
        state |= {"clusters": clusters, "texts": texts}
        return zlib.compress(json.dumps(state, ensure_ascii=False, separators=(",", ":")).encode(), 1)

    def load(self, data: bytes) -> None:
        """Replace the whole cache by a dump. Raises ValueError, and changes nothing, when it is not one."""
        other = TemplateCache(self.most_texts)
        try:
            state = json.loads(zlib.decompress(data))
            if state["format"] not in READABLE:
                raise ValueError(f"format {state['format']}")
            learned = state["format"] == FORMAT
            for number, words, *_, most in state["clusters"]:
                forms = {len(form): tuple(form) for form in (words if learned else [words])}
                other._enter(Cluster(int(number), forms, most=most))
            for masked, number, level, sample, count, from_feedback, *reasons in state["texts"]:
                confidence, unexpected = reasons or (None, None)
                words = tuple(unexpected) if unexpected else None
                other.texts[masked] = Text(number, level, sample, count, bool(from_feedback), confidence, words)
                other.clusters[number].texts.add(masked)
            other.next_number = max(int(state["next"]), self.next_number)
            other.version = str(state.get("version", ""))
            # a dump of before templates were learned, or learned in this way, is regrouped at once
            other.regroup_at = int(state["regroup_at"]) if learned else FIRST_REGROUP
        except (zlib.error, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"not a template cache: {error}")
        while len(other.texts) > other.most_texts:
            other._drop_oldest()
        self.__dict__.update(other.__dict__)
