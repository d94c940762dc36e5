import django_fsm
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("aiops", "0007_page_words"),
    ]

    operations = [
        migrations.AlterField(
            model_name="trainingrun",
            name="state",
            field=django_fsm.FSMField(
                choices=[("training", "running"), ("completed", "completed"), ("error", "failed")],
                default="training",
                max_length=50,
                protected=True,
                verbose_name="state",
            ),
        ),
    ]
