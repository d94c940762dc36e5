"""Each reading of a log file has a name; those that go on keep the one that their lines' ids were made of."""

from django.db import migrations, models

NAMES = "UPDATE aiops_followed_file SET generation = to_hex(device) || ':' || to_hex(inode) || ':' || head"


class Migration(migrations.Migration):
    dependencies = [
        ("aiops", "0004_feedback_settled"),
    ]

    operations = [
        migrations.AddField(
            model_name="followedfile",
            name="tail",
            field=models.CharField(blank=True, default="", max_length=32),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="followedfile",
            name="generation",
            field=models.CharField(default="", max_length=80),
            preserve_default=False,
        ),
        migrations.RunSQL(NAMES, migrations.RunSQL.noop),
    ]
