from django.db import migrations, models

ACTIONS = [
    ("", "nothing"),
    ("more_memory", "Run again with twice the memory"),
    ("again", "Run again"),
    ("edit", "Edit the script"),
    ("upload_script", "Upload the file"),
    ("dataset", "Choose or upload a dataset"),
    ("network", "Run again with another network"),
    ("form", "Edit and run again"),
    ("usage", "Show the usage"),
    ("chart", "Show the metrics"),
]


def action():
    return models.CharField(blank=True, choices=ACTIONS, default="", max_length=20, verbose_name="button")


class Migration(migrations.Migration):
    dependencies = [("jobs", "0032_attempts_and_nesting")]

    operations = [
        migrations.AlterField(model_name="diagnosis", name="action", field=action()),
        migrations.AlterField(model_name="failurerule", name="action", field=action()),
    ]
