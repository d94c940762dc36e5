"""docs/settings.md has every setting, as it is declared."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from django.conf import settings

from mlp.settings import SECTIONS

from .test_architecture import product

ROOT = Path(settings.BASE_DIR)
DECLARED = {name: setting for section in SECTIONS for name, setting in section.settings.items()}


def test_the_page_is_current():
    render = runpy.run_path(str(ROOT / "tools" / "settings.py"))["render"]
    assert (ROOT / "docs" / "settings.md").read_text() == render(SECTIONS), "run: python tools/settings.py"


def test_every_setting_has_a_meaning_and_numbers_have_a_unit_or_count_something():
    assert len(DECLARED) > 50
    assert [name for name, setting in DECLARED.items() if len(setting.help) < 10] == []
    in_units = {name for name in DECLARED if name.endswith(("_S", "_MIB", "_DAYS"))}
    assert {name for name in in_units if not DECLARED[name].unit} == set()


def test_the_environment_is_read_by_declared_settings_only():
    """`env()` alone declares nothing."""
    callers = [path for path in product() if re.search(r"(?<![\w.])env\(", path.read_text())]
    assert [path.relative_to(ROOT).as_posix() for path in callers] == ["kernel/environment.py"]
