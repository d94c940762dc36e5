"""The database no longer looks for the job of each value: its writers hold the job's lock, and that look cost them most."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0027_traceparent"),
    ]

    operations = [
        migrations.AlterField(
            model_name="value",
            name="job",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="values",
                to="jobs.job",
                verbose_name="job",
            ),
        ),
    ]
