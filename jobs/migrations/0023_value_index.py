"""The index of values by job alone goes: those that begin with the job serve its queries, and each costs its writers."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0022_rule_words"),
    ]

    operations = [
        migrations.AlterField(
            model_name="value",
            name="job",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="values",
                to="jobs.job",
                verbose_name="job",
            ),
        ),
    ]
