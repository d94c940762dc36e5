"""Whether a masked text names a problem: an error, a failure, something missing, refused or lost.

The words are those by which programs report problems in general: severities, the operating system's error messages,
exceptions, in English and Chinese. A text that names a problem is no anomaly for that reason alone: a new text that
names none needs more surprise to be one (weighing.py). Words that deny a problem ("no errors", "failed: false") name
none.
"""

from __future__ import annotations

import re

# Also in the middle of a word, as in `socketTimeoutException`.
ANYWHERE = "error|exception|failed|failure|timeout|fatal|panic"
# At the start of a word, with any ending.
BEGINNINGS = """
abort alert attack breach broken cannot conflict corrupt crash critical damag deadlock defect degrad denied denies deny
emergency exceed exhaust expired fail fault forbid hung illegal incomplete inconsisten incorrect intrusi invalid
leak loss lost malform mismatch missing outage overflow overheat overload overrun problem refus reject segfault severe
stuck suspicious traceback trouble unable unauthor unavail uncaught uncorrect underrun unexpect unhandled unhealthy
unknown unreach unrecogni unrecover unresponsive unsupported unusable violat warn wrong
"""
# Whole words.
WORDS = """
alarm alarms bad bug crit dead died discarded dropped dropping emerg err hang hanging hangs interrupted interrupting
kill killed oops stale stall stalled stalls
"""
PHRASES = (
    r"(?:can|could|did|does|do|will|would) not",
    r"(?:ca|could|did|does|do|wo|would)n[’ ]?t",  # masking makes a space of an apostrophe
    r"no (?:response|route|space|such)",
    r"not (?:allowed|available|enough|exist|found|permitted|possible|respond\w*|valid)",
    r"out of (?:bounds|disk|memory|range|space|sync)",
    r"time[sd]?[ -]out",
    r"too (?:big|few|high|large|late|long|low|many|short|slow|small)",
)
CHINESE = """
不可用 不能 不足 丢失 中断 严重 冲突 崩溃 异常 报错 拒绝 损坏 故障 断开 无效 无法 死锁 溢出
致命 警告 超时 错误 非法 失败
"""
PROBLEM = re.compile(
    "|".join(
        (
            ANYWHERE,
            rf"(?<![a-z])(?:{'|'.join((*BEGINNINGS.split(), *PHRASES))})",
            rf"(?<![a-z])(?:{'|'.join(WORDS.split())})(?![a-z])",
            *CHINESE.split(),
        )
    )
)
_NOUN = r"(?:alarm|alert|conflict|error|exception|failure|fault|loss|problem|warning)s?"
_COUNTED = r"(?:alarms|alerts|conflicts|denied|dropped|errors|exceptions|failed|failures|faults|lost|rejected|warnings)"
# What names no problem although it has such a word.
NONE = re.compile(
    "|".join(
        (
            rf"(?<![a-z])(?:no|without|zero) (?:[a-z]+ )?{_NOUN}(?![a-z])",
            rf"(?<![a-z])(?:{_NOUN}|err|failed|timeout) ?[:=] ?(?:false|nil|no|none|null|ok|success)(?![a-z])",
            # a counter or a setting, whose value is judged as such
            rf"(?<![a-z])(?:{_COUNTED}|timeout) ?(?:[:=] ?<(?:num|duration)>|= ?<token_with_digit>)",
            r"(?<![a-z])(?:denied|error|fail|failed|reject|rejected|timeout|warn)_[a-z_]+(?= ?[:=])",  # a field
            r"(?<=: )(?:bad|dead)(?= :)",  # of an address
            r"fail[ -]?(?:over|safe)|fault[ -]toleran\w*|(?:error|exception)[ _-]?handler|error[._]log",
            "(?:无|没有|未发现|未见)(?:任何)?(?:异常|报错|警告|故障|错误|失败)",
        )
    )
)


def names_problem(masked: str) -> bool:
    """Tell whether a masked text (lower case, words separated by one space) names a problem."""
    return PROBLEM.search(NONE.sub(" ", masked)) is not None
