"""Borrowing between tenants: what each lends, has lent and borrowed, and the loans."""

from decimal import Decimal

import django.db.models.deletion
import django.db.models.expressions
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("resources", "0004_idle_policy"),
    ]

    operations = [
        migrations.CreateModel(
            name="Loan",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("gpu", models.BigIntegerField(default=0, verbose_name="GPU")),
                ("cpu", models.DecimalField(decimal_places=6, default=Decimal("0"), max_digits=14, verbose_name="CPU")),
                ("ram", models.BigIntegerField(default=0, verbose_name="Memory (MiB)")),
            ],
            options={
                "verbose_name": "loan",
                "verbose_name_plural": "loans",
                "db_table": "tenant_loan",
            },
        ),
        migrations.RemoveConstraint(
            model_name="tenant",
            name="tenant_gpu_within_capacity",
        ),
        migrations.RemoveConstraint(
            model_name="tenant",
            name="tenant_cpu_within_capacity",
        ),
        migrations.RemoveConstraint(
            model_name="tenant",
            name="tenant_ram_within_capacity",
        ),
        migrations.AddField(
            model_name="tenant",
            name="cpu_borrow_limit",
            field=models.DecimalField(
                db_default=0, decimal_places=6, default=0, max_digits=14, verbose_name="CPU borrowing limit"
            ),
        ),
        migrations.AddField(
            model_name="tenant",
            name="cpu_borrowed",
            field=models.DecimalField(
                db_default=0, decimal_places=6, default=0, max_digits=14, verbose_name="CPU borrowed"
            ),
        ),
        migrations.AddField(
            model_name="tenant",
            name="cpu_lent",
            field=models.DecimalField(
                db_default=0, decimal_places=6, default=0, max_digits=14, verbose_name="CPU lent"
            ),
        ),
        migrations.AddField(
            model_name="tenant",
            name="gpu_borrow_limit",
            field=models.BigIntegerField(db_default=0, default=0, verbose_name="GPU borrowing limit"),
        ),
        migrations.AddField(
            model_name="tenant",
            name="gpu_borrowed",
            field=models.BigIntegerField(db_default=0, default=0, verbose_name="GPU borrowed"),
        ),
        migrations.AddField(
            model_name="tenant",
            name="gpu_lent",
            field=models.BigIntegerField(db_default=0, default=0, verbose_name="GPU lent"),
        ),
        migrations.AddField(
            model_name="tenant",
            name="lends",
            field=models.BooleanField(db_default=False, default=False, verbose_name="lends idle resources"),
        ),
        migrations.AddField(
            model_name="tenant",
            name="ram_borrow_limit",
            field=models.BigIntegerField(db_default=0, default=0, verbose_name="Memory borrowing limit"),
        ),
        migrations.AddField(
            model_name="tenant",
            name="ram_borrowed",
            field=models.BigIntegerField(db_default=0, default=0, verbose_name="Memory borrowed"),
        ),
        migrations.AddField(
            model_name="tenant",
            name="ram_lent",
            field=models.BigIntegerField(db_default=0, default=0, verbose_name="Memory lent"),
        ),
        migrations.AddField(
            model_name="tenant",
            name="recalled_until",
            field=models.DateTimeField(blank=True, null=True, verbose_name="loans recalled until"),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("gpu_inuse__gte", 0),
                    (
                        "gpu_inuse__lte",
                        django.db.models.expressions.CombinedExpression(
                            django.db.models.expressions.CombinedExpression(
                                models.F("gpu"), "+", models.F("gpu_borrowed")
                            ),
                            "-",
                            models.F("gpu_lent"),
                        ),
                    ),
                ),
                name="tenant_gpu_within_capacity",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("cpu_inuse__gte", 0),
                    (
                        "cpu_inuse__lte",
                        django.db.models.expressions.CombinedExpression(
                            django.db.models.expressions.CombinedExpression(
                                models.F("cpu"), "+", models.F("cpu_borrowed")
                            ),
                            "-",
                            models.F("cpu_lent"),
                        ),
                    ),
                ),
                name="tenant_cpu_within_capacity",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("ram_inuse__gte", 0),
                    (
                        "ram_inuse__lte",
                        django.db.models.expressions.CombinedExpression(
                            django.db.models.expressions.CombinedExpression(
                                models.F("ram"), "+", models.F("ram_borrowed")
                            ),
                            "-",
                            models.F("ram_lent"),
                        ),
                    ),
                ),
                name="tenant_ram_within_capacity",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("gpu_lent__gte", 0),
                    models.Q(
                        ("gpu_borrowed", 0),
                        models.Q(
                            ("gpu_borrowed__gt", 0),
                            (
                                "gpu_inuse",
                                django.db.models.expressions.CombinedExpression(
                                    models.F("gpu"), "+", models.F("gpu_borrowed")
                                ),
                            ),
                            ("gpu_lent", 0),
                        ),
                        _connector="OR",
                    ),
                ),
                name="tenant_gpu_borrowed",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("cpu_lent__gte", 0),
                    models.Q(
                        ("cpu_borrowed", 0),
                        models.Q(
                            ("cpu_borrowed__gt", 0),
                            (
                                "cpu_inuse",
                                django.db.models.expressions.CombinedExpression(
                                    models.F("cpu"), "+", models.F("cpu_borrowed")
                                ),
                            ),
                            ("cpu_lent", 0),
                        ),
                        _connector="OR",
                    ),
                ),
                name="tenant_cpu_borrowed",
            ),
        ),
        migrations.AddConstraint(
            model_name="tenant",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("ram_lent__gte", 0),
                    models.Q(
                        ("ram_borrowed", 0),
                        models.Q(
                            ("ram_borrowed__gt", 0),
                            (
                                "ram_inuse",
                                django.db.models.expressions.CombinedExpression(
                                    models.F("ram"), "+", models.F("ram_borrowed")
                                ),
                            ),
                            ("ram_lent", 0),
                        ),
                        _connector="OR",
                    ),
                ),
                name="tenant_ram_borrowed",
            ),
        ),
        migrations.AddField(
            model_name="loan",
            name="borrower",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="loans_taken",
                to="resources.tenant",
                verbose_name="borrower",
            ),
        ),
        migrations.AddField(
            model_name="loan",
            name="lender",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="loans_given",
                to="resources.tenant",
                verbose_name="lender",
            ),
        ),
        migrations.AddConstraint(
            model_name="loan",
            constraint=models.UniqueConstraint(fields=("borrower", "lender"), name="tenant_loan_once"),
        ),
        migrations.AddConstraint(
            model_name="loan",
            constraint=models.CheckConstraint(
                condition=models.Q(("lender", models.F("borrower")), _negated=True), name="tenant_loan_to_another"
            ),
        ),
        migrations.AddConstraint(
            model_name="loan",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("cpu__gte", 0),
                    ("gpu__gte", 0),
                    ("ram__gte", 0),
                    models.Q(("cpu__gt", 0), ("gpu__gt", 0), ("ram__gt", 0), _connector="OR"),
                ),
                name="tenant_loan_of_something",
            ),
        ),
    ]
