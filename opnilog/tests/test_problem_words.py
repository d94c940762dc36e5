"""Which masked texts name a problem."""

from __future__ import annotations

import pytest

from opnilog.masking import mask
from opnilog.problem_words import names_problem

PROBLEMS = (
    "Connection refused",
    "java.net.SocketTimeoutException: Read timed out",
    "can't open /etc/x.conf",
    "Could not connect to 10.0.0.1",
    "No such file or directory",
    "No space left on device",
    "ERROR_CODE 5",
    "oom-kill: Killed process 12",
    "host 10.0.0.1 unreachable",
    "it doesn't exist",
    "BUG: soft lockup",
    "failed: false, error: disk full",
    "no errors on sda, sdb failed",
    "error handling request",
    "3 errors",
    "state: dead",
    "error: 5",
    "failed_units: 0, sdb failed",
    "连接超时",
    "登录失败",
    "没有错误，但连接已断开",
)
OTHERS = (
    "",
    "changed default settings of the installed package",
    "session opened for user root",
    "deadline 5, countdown started, badge issued",
    "no errors found",
    "completed without any errors",
    "backup ended: failed: false, skipped: false, error: none",
    "failover configured",
    "Starting ErrorHandler",
    "logging to /var/log/error.log",
    "queue drained (picked=50, deleted=50, requeued=0, failed=0)",
    'apparmor="ALLOWED" operation="getattr" denied_mask="r"',
    "accepted fe80::dead:beef:bad:1 as fe80",
    "timeout: 3200",
    "没有错误",
    "用户登录成功",
)


@pytest.mark.parametrize("line", PROBLEMS)
def test_an_error_a_failure_or_something_refused_is_a_problem(line):
    assert names_problem(mask(line))


@pytest.mark.parametrize("line", OTHERS)
def test_parts_of_other_words_and_denied_problems_are_none(line):
    assert not names_problem(mask(line))
