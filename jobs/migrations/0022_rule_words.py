from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0021_limits"),
    ]

    operations = [
        migrations.AlterField(
            model_name="failurerule",
            name="explanation",
            field=models.TextField(
                help_text="What the failure means and what to do. %(name)s is replaced by the text that the group "
                "(?P&lt;name&gt;…) has matched.",
                max_length=2000,
                verbose_name="explanation",
            ),
        ),
    ]
