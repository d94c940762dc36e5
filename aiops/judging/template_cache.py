"""Templates of masked texts, and the verdicts already given: a text seen before needs no model. For the DRAIN service.

The tree is Drain's (He et al. 2017) with Opni's settings: a level for the number of words, one for each of the first
six, then the template most alike. A hit is a text whose very words were judged before (whatever wildcards its template
has by now), or one that a template given in advance covers entirely. So the common answer costs one look into a
dictionary.
Memory is bounded: the texts longest unseen go first, and a template goes with its last text.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

LIKE = 0.4  # least share of equal words that makes a text one of a template's
PREFIX = 6  # words that lead through the tree (Drain's depth of 8, less the root and the number of words)
MOST_CHILDREN = 512
WILD = "<*>"
TEXTS = 200_000
MOST_SAMPLE = 1000  # characters of a raw line kept to show what a template looks like
FORMAT = 1


class Hit(NamedTuple):
    level: str
    template: str
    cluster_id: int


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
    told: bool = False  # a person has said so: no model's verdict replaces it


@dataclass(slots=True)
class Cluster:
    number: int
    words: tuple[str, ...]
    level: str = ""  # set for a template given in advance: then it answers without a known text
    texts: set[str] = field(default_factory=set)
    most: str = ""  # the text seen most often
    template: str = ""

    def __post_init__(self):
        self.template = " ".join(self.words)


def words_of(masked: str) -> tuple[str, ...]:
    return tuple(masked.replace("_", " ").split())


def has_digit(word: str) -> bool:
    return any(sign.isdigit() for sign in word)


class Tree:
    """Words to clusters: nested dictionaries, at whose ends are lists of cluster numbers."""

    def __init__(self):
        self.root: dict = {}

    def leaf(self, words: Sequence[str]) -> list[int]:
        """The list that a new template belongs into, made where it is missing."""
        node = self.root.setdefault(len(words), {})
        for word in words[:PREFIX]:
            if word not in node:
                full = len(node) + (WILD not in node) >= MOST_CHILDREN
                word = WILD if has_digit(word) or full else word
            node = node.setdefault(word, {})
        return node.setdefault(None, [])

    def find(self, words: Sequence[str]) -> list[int]:
        node = self.root.get(len(words))
        for word in words[:PREFIX]:
            if node is None:
                return []
            node = node.get(word) or node.get(WILD)
        return node.get(None, []) if node else []

    def remove(self, words: Sequence[str], number: int) -> None:
        """Takes the cluster out wherever its words (as they were when it was made) have put it, and empty branches."""
        self._remove(self.root.get(len(words), {}), list(words[:PREFIX]), number)
        if not self.root.get(len(words), True):
            del self.root[len(words)]

    def _remove(self, node: dict, words: list[str], number: int) -> bool:
        if not words:
            kept = [other for other in node.get(None, ()) if other != number]
            gone = len(kept) != len(node.get(None, ()))
            node[None] = kept
            if not kept:
                del node[None]
            return gone
        # a word that became a wildcard in the template still stands in its branch
        tries = node.keys() if words[0] == WILD else {words[0], WILD} & node.keys()
        for word in list(tries):
            if self._remove(node[word], words[1:], number):
                if not node[word]:
                    del node[word]
                return True
        return False


def likeness(template: Sequence[str], words: Sequence[str], *, wild_counts: bool) -> tuple[float, int]:
    """Share of equal words, and how many wildcards the template has."""
    if not words:
        return 1.0, 0
    same = wild = 0
    for mine, other in zip(template, words, strict=True):
        if mine == WILD:
            wild += 1
        elif mine == other:
            same += 1
    return (same + (wild if wild_counts else 0)) / len(words), wild


class TemplateCache:
    """The templates and verdicts of one service. Not for several threads at once.

    most_texts bounds the memory: about 0.5 KiB a text of usual length.
    """

    def __init__(self, most_texts: int = TEXTS):
        self.most_texts = most_texts
        self.clear()

    def clear(self) -> None:
        """Forgets every text and every learned template. Numbers of templates go on, so that none ever means two."""
        self.next_number = getattr(self, "next_number", 1)
        self.tree = Tree()
        self.clusters: dict[int, Cluster] = {}
        self.texts: OrderedDict[str, Text] = OrderedDict()
        self.given = 0  # templates given in advance

    def __len__(self) -> int:
        return len(self.texts)

    def match_many(self, masked: Sequence[str]) -> list[Hit | None]:
        """The verdict of each text, or None where the model must say."""
        return [self._match(text) for text in masked]

    def _match(self, masked: str) -> Hit | None:
        known = self.texts.get(masked)
        if known is not None:
            known.count += 1
            self.texts.move_to_end(masked)
            return Hit(known.level, self.clusters[known.cluster].template, known.cluster)
        if self.given:
            cluster = self._covering(words_of(masked))
            if cluster is not None:
                return Hit(cluster.level, cluster.template, cluster.number)
        return None

    def _covering(self, words: Sequence[str]) -> Cluster | None:
        best = self._nearest(words, 1.0, wild_counts=True)
        return best if best is not None and best.level else None

    def _nearest(self, words: Sequence[str], least: float, *, wild_counts: bool) -> Cluster | None:
        best, best_key = None, (least, -1)
        for number in self.tree.find(words):
            cluster = self.clusters[number]
            key = likeness(cluster.words, words, wild_counts=wild_counts)
            if key >= best_key:
                best, best_key = cluster, key
        return best

    def learn(self, items: Iterable[tuple[str, str, str]], *, told: bool = False) -> list[Learned]:
        """Takes (masked text, level, raw sample) and gives where each went. A text's later level counts, but what a
        person has told stands until a person tells otherwise."""
        return [self._learn(*item, told) for item in items]

    def _learn(self, masked: str, level: str, sample: str, told: bool) -> Learned:
        known = self.texts.get(masked)
        if known is not None:
            known.count += 1
            if told or not known.told:
                known.level, known.told = level, told
            self.texts.move_to_end(masked)
            cluster, changed = self.clusters[known.cluster], False
        else:
            cluster, changed = self._place(words_of(masked))
            known = self.texts[masked] = Text(cluster.number, level, sample[:MOST_SAMPLE], told=told)
            cluster.texts.add(masked)
        most = self.texts.get(cluster.most)
        if most is None or (known is not most and known.count > most.count):
            cluster.most, changed = masked, True
        shown = self.texts[cluster.most].sample
        while len(self.texts) > self.most_texts:
            self._forget_oldest()
        return Learned(cluster.template, cluster.number, changed, shown)

    def _place(self, words: tuple[str, ...]) -> tuple[Cluster, bool]:
        """The cluster of the words, made or made more general where need be, and whether it changed."""
        cluster = self._nearest(words, LIKE, wild_counts=False)
        if cluster is None or cluster.level:
            return self._new(words), True
        merged = tuple(mine if mine == other else WILD for mine, other in zip(cluster.words, words, strict=True))
        if merged == cluster.words:
            return cluster, False
        cluster.words, cluster.template = merged, " ".join(merged)
        return cluster, True

    def _new(self, words: tuple[str, ...], level: str = "") -> Cluster:
        cluster = Cluster(self.next_number, words, level)
        self.next_number += 1
        self._enter(cluster)
        return cluster

    def _enter(self, cluster: Cluster) -> None:
        self.clusters[cluster.number] = cluster
        self.tree.leaf(cluster.words).append(cluster.number)

    def give(self, templates: Iterable[tuple[str, str]]) -> None:
        """Templates with a level that are known in advance: (template, level)."""
        for template, level in templates:
            self._new(words_of(template), level)
            self.given += 1

    def _forget_oldest(self) -> None:
        masked, text = self.texts.popitem(last=False)
        for _ in range(len(self.texts)):
            if not text.told:
                break
            self.texts[masked] = text  # what a person has told stays as long as there is anything else to forget
            masked, text = self.texts.popitem(last=False)
        cluster = self.clusters[text.cluster]
        cluster.texts.discard(masked)
        if not cluster.texts and not cluster.level:
            del self.clusters[cluster.number]
            self.tree.remove(cluster.words, cluster.number)
        elif cluster.most == masked:
            cluster.most = max(cluster.texts, key=lambda one: self.texts[one].count, default="")

    def dump(self) -> bytes:
        """Everything, as compressed JSON: for a restart, and for an archive."""
        clusters = [[one.number, list(one.words), one.level, one.most] for one in self.clusters.values()]
        texts = [
            [masked, one.cluster, one.level, one.sample, one.count, one.told] for masked, one in self.texts.items()
        ]
        state = {"format": FORMAT, "next": self.next_number, "clusters": clusters, "texts": texts}
        return zlib.compress(json.dumps(state, ensure_ascii=False, separators=(",", ":")).encode(), 1)

    def load(self, data: bytes) -> None:
        """Replaces everything by what `dump` gave. Raises ValueError, and changes nothing, where it is not that."""
        other = TemplateCache(self.most_texts)
        try:
            state = json.loads(zlib.decompress(data))
            if state["format"] != FORMAT:
                raise ValueError(f"format {state['format']}")
            for number, words, level, most in state["clusters"]:
                other._enter(Cluster(int(number), tuple(words), level, most=most))
                other.given += bool(level)
            for masked, number, level, sample, count, told in state["texts"]:
                other.texts[masked] = Text(number, level, sample, count, bool(told))
                other.clusters[number].texts.add(masked)
            other.next_number = max(int(state["next"]), self.next_number)
        except (zlib.error, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"not a template cache: {error}")
        while len(other.texts) > other.most_texts:
            other._forget_oldest()
        self.__dict__.update(other.__dict__)
