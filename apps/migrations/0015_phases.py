import django_fsm
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("apps", "0014_key_tokens"),
    ]

    operations = [
        migrations.AlterField(
            model_name="replica",
            name="phase",
            field=django_fsm.FSMField(
                choices=[("waiting", "waiting"), ("starting", "starting"), ("ready", "ready"), ("ending", "stopping")],
                default="waiting",
                max_length=10,
                protected=True,
                verbose_name="phase",
            ),
        ),
        migrations.AlterField(
            model_name="rollout",
            name="phase",
            field=django_fsm.FSMField(
                choices=[
                    ("waiting", "waiting for resources"),
                    ("starting", "starting"),
                    ("canary", "canary"),
                    ("restarting", "restarting"),
                    ("ending", "stopping the other run"),
                    ("failed", "failed"),
                ],
                default="waiting",
                max_length=10,
                protected=True,
                verbose_name="phase",
            ),
        ),
        migrations.AddConstraint(
            model_name="replica",
            constraint=models.CheckConstraint(
                condition=models.Q(("phase__in", ["waiting", "starting", "ready", "ending"])), name="app_replica_phase"
            ),
        ),
        migrations.AddConstraint(
            model_name="rollout",
            constraint=models.CheckConstraint(
                condition=models.Q(("phase__in", ["waiting", "starting", "canary", "restarting", "ending", "failed"])),
                name="app_rollout_phase",
            ),
        ),
    ]
