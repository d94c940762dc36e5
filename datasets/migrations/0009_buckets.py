from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("datasets", "0008_src"),
        ("resources", "0014_records"),
    ]

    operations = [
        migrations.CreateModel(
            name="Bucket",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=63, verbose_name="name")),
                ("endpoint", models.CharField(blank=True, max_length=300, verbose_name="address of the server")),
                ("bucket", models.CharField(max_length=255, verbose_name="bucket")),
                ("prefix", models.CharField(blank=True, max_length=500, verbose_name="folder")),
                ("region", models.CharField(max_length=63, verbose_name="region")),
                ("virtual_hosted", models.BooleanField(default=False, verbose_name="bucket as part of the host name")),
                (
                    "signing",
                    models.CharField(
                        choices=[
                            ("key", "with an access key"),
                            ("platform", "with the credentials in the platform's environment"),
                            ("none", "not at all: the bucket is public"),
                        ],
                        max_length=8,
                        verbose_name="requests are signed",
                    ),
                ),
                ("access_key", models.CharField(blank=True, max_length=200, verbose_name="access key")),
                ("secret", models.TextField(blank=True)),
                ("everybody", models.BooleanField(default=False, verbose_name="all users may read it")),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("tenants", models.ManyToManyField(related_name="+", to="resources.tenant", verbose_name="tenants")),
            ],
            options={
                "verbose_name": "bucket",
                "verbose_name_plural": "buckets",
                "db_table": "bucket",
                "constraints": [models.UniqueConstraint(fields=("name",), name="bucket_name")],
            },
        ),
    ]
