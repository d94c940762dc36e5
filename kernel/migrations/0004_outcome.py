from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("kernel", "0003_stored_bytes")]

    operations = [
        migrations.AddField(
            model_name="statechange",
            name="outcome",
            field=models.CharField(blank=True, db_default="", default="", editable=False, max_length=10),
        ),
    ]
