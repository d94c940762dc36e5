"""The tables of a new database, at once: what 0001 to 0006 make one after the other in an older one."""

from decimal import Decimal

import django.db.models.deletion
import django.db.models.expressions
import django_fsm
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("resources", "0001_initial"),
        ("resources", "0002_page_words"),
        ("resources", "0003_network"),
        ("resources", "0004_idle_policy"),
        ("resources", "0005_lending"),
        ("resources", "0006_retention"),
    ]

    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Tenant",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "trash_days",
                    models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="days in the trash"),
                ),
                (
                    "log_days",
                    models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="days until logs are removed"),
                ),
                (
                    "metrics_days",
                    models.PositiveSmallIntegerField(
                        blank=True, null=True, verbose_name="days until metrics are removed"
                    ),
                ),
                (
                    "output_days",
                    models.PositiveSmallIntegerField(
                        blank=True, null=True, verbose_name="days until outputs are removed"
                    ),
                ),
                ("cpu", models.DecimalField(decimal_places=6, default=Decimal("0"), max_digits=14, verbose_name="CPU")),
                ("gpu", models.BigIntegerField(default=0, verbose_name="GPU")),
                ("ram", models.BigIntegerField(default=0, verbose_name="Memory (MiB)")),
                ("rom", models.BigIntegerField(default=0, verbose_name="Disk (bytes)")),
                ("name", models.CharField(max_length=50, unique=True, verbose_name="name")),
                (
                    "cpu_inuse",
                    models.DecimalField(
                        decimal_places=6, default=Decimal("0"), max_digits=14, verbose_name="CPU in use"
                    ),
                ),
                ("gpu_inuse", models.BigIntegerField(default=0, verbose_name="GPU in use")),
                ("ram_inuse", models.BigIntegerField(default=0, verbose_name="Memory in use")),
                ("rom_inuse", models.BigIntegerField(default=0, verbose_name="Disk in use")),
                (
                    "source",
                    models.CharField(
                        choices=[("discovered", "discovered"), ("set", "set")],
                        default="discovered",
                        max_length=10,
                        verbose_name="capacity is",
                    ),
                ),
                (
                    "network",
                    models.CharField(
                        blank=True,
                        choices=[("open", "Platform and internet"), ("platform", "Platform only"), ("none", "None")],
                        db_default="",
                        default="",
                        max_length=10,
                        verbose_name="network",
                    ),
                ),
                (
                    "idle_gpu_minutes",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="idle after (minutes, GPU)"),
                ),
                (
                    "idle_gpu_percent",
                    models.PositiveSmallIntegerField(
                        db_default=5, default=5, verbose_name="idle below (% of its GPUs)"
                    ),
                ),
                (
                    "idle_cpu_minutes",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="idle after (minutes, CPU)"),
                ),
                (
                    "idle_cpu_percent",
                    models.PositiveSmallIntegerField(db_default=5, default=5, verbose_name="idle below (% of its CPU)"),
                ),
                (
                    "idle_grace_minutes",
                    models.PositiveIntegerField(
                        db_default=10, default=10, verbose_name="minutes from the warning to the stop"
                    ),
                ),
                ("lends", models.BooleanField(db_default=False, default=False, verbose_name="lends idle resources")),
                ("recalled_until", models.DateTimeField(blank=True, null=True, verbose_name="loans recalled until")),
                ("gpu_lent", models.BigIntegerField(db_default=0, default=0, verbose_name="GPU lent")),
                (
                    "cpu_lent",
                    models.DecimalField(
                        db_default=0, decimal_places=6, default=0, max_digits=14, verbose_name="CPU lent"
                    ),
                ),
                ("ram_lent", models.BigIntegerField(db_default=0, default=0, verbose_name="Memory lent")),
                ("gpu_borrowed", models.BigIntegerField(db_default=0, default=0, verbose_name="GPU borrowed")),
                (
                    "cpu_borrowed",
                    models.DecimalField(
                        db_default=0, decimal_places=6, default=0, max_digits=14, verbose_name="CPU borrowed"
                    ),
                ),
                ("ram_borrowed", models.BigIntegerField(db_default=0, default=0, verbose_name="Memory borrowed")),
                (
                    "gpu_borrow_limit",
                    models.BigIntegerField(db_default=0, default=0, verbose_name="GPU borrowing limit"),
                ),
                (
                    "cpu_borrow_limit",
                    models.DecimalField(
                        db_default=0, decimal_places=6, default=0, max_digits=14, verbose_name="CPU borrowing limit"
                    ),
                ),
                (
                    "ram_borrow_limit",
                    models.BigIntegerField(db_default=0, default=0, verbose_name="Memory borrowing limit"),
                ),
            ],
            options={
                "verbose_name": "tenant",
                "verbose_name_plural": "tenants",
                "db_table": "tenant",
                "constraints": [
                    models.CheckConstraint(
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
                    models.CheckConstraint(
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
                    models.CheckConstraint(
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
                    models.CheckConstraint(
                        condition=models.Q(("rom_inuse__gte", 0), ("rom_inuse__lte", models.F("rom"))),
                        name="tenant_rom_within_capacity",
                    ),
                    models.CheckConstraint(
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
                    models.CheckConstraint(
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
                    models.CheckConstraint(
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
                ],
            },
        ),
        migrations.CreateModel(
            name="ResourceRequest",
            fields=[
                ("cpu", models.DecimalField(decimal_places=6, default=Decimal("0"), max_digits=14, verbose_name="CPU")),
                ("gpu", models.BigIntegerField(default=0, verbose_name="GPU")),
                ("ram", models.BigIntegerField(default=0, verbose_name="Memory (MiB)")),
                ("rom", models.BigIntegerField(default=0, verbose_name="Disk (bytes)")),
                ("id", models.CharField(max_length=64, primary_key=True, serialize=False)),
                (
                    "applier",
                    models.CharField(
                        choices=[
                            ("dm", "data manager"),
                            ("jm", "job manager"),
                            ("am", "application manager"),
                            ("mm", "model manager"),
                        ],
                        max_length=2,
                        verbose_name="applier",
                    ),
                ),
                (
                    "request_type",
                    models.CharField(
                        choices=[("request", "request"), ("release", "release")], max_length=7, verbose_name="type"
                    ),
                ),
                ("owner", models.CharField(blank=True, max_length=50, verbose_name="owner")),
                (
                    "state",
                    django_fsm.FSMField(
                        choices=[
                            ("tried", "tried"),
                            ("confirmed", "confirmed"),
                            ("cancelled", "cancelled"),
                            ("released", "released"),
                        ],
                        default="tried",
                        max_length=50,
                        protected=True,
                        verbose_name="state",
                    ),
                ),
                ("created", models.DateTimeField(auto_now_add=True, verbose_name="created")),
                ("settled", models.DateTimeField(null=True, verbose_name="settled")),
                ("released", models.DateTimeField(null=True, verbose_name="released")),
                (
                    "tenant",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="requests",
                        to="resources.tenant",
                        verbose_name="tenant",
                    ),
                ),
            ],
            options={
                "verbose_name": "resource request",
                "verbose_name_plural": "resource requests",
                "db_table": "resource_request",
                "indexes": [
                    models.Index(fields=["tenant", "request_type", "state"], name="resource_request_books"),
                    models.Index(fields=["-created"], name="resource_request_newest"),
                    models.Index(
                        condition=models.Q(("state", "tried")), fields=["created"], name="resource_request_open"
                    ),
                    models.Index(
                        condition=models.Q(
                            ("request_type", "request"), ("state__in", ["tried", "confirmed"]), ("owner__gt", "")
                        ),
                        fields=["tenant", "owner"],
                        name="resource_request_held",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["tried", "confirmed", "cancelled", "released"])),
                        name="resource_request_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("cpu__gte", 0), ("gpu__gte", 0), ("ram__gte", 0), ("rom__gte", 0)),
                        name="resource_request_not_negative",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("tenant__isnull", False), ("state", "cancelled"), _connector="OR"),
                        name="resource_request_has_tenant",
                    ),
                ],
            },
            bases=(django_fsm.ConcurrentTransitionMixin, models.Model),
        ),
        migrations.CreateModel(
            name="Loan",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("gpu", models.BigIntegerField(default=0, verbose_name="GPU")),
                ("cpu", models.DecimalField(decimal_places=6, default=Decimal("0"), max_digits=14, verbose_name="CPU")),
                ("ram", models.BigIntegerField(default=0, verbose_name="Memory (MiB)")),
                (
                    "borrower",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="loans_taken",
                        to="resources.tenant",
                        verbose_name="borrower",
                    ),
                ),
                (
                    "lender",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="loans_given",
                        to="resources.tenant",
                        verbose_name="lender",
                    ),
                ),
            ],
            options={
                "verbose_name": "loan",
                "verbose_name_plural": "loans",
                "db_table": "tenant_loan",
                "constraints": [
                    models.UniqueConstraint(fields=("borrower", "lender"), name="tenant_loan_once"),
                    models.CheckConstraint(
                        condition=models.Q(("lender", models.F("borrower")), _negated=True),
                        name="tenant_loan_to_another",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("cpu__gte", 0),
                            ("gpu__gte", 0),
                            ("ram__gte", 0),
                            models.Q(("cpu__gt", 0), ("gpu__gt", 0), ("ram__gt", 0), _connector="OR"),
                        ),
                        name="tenant_loan_of_something",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="UsageSample",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cpu", models.DecimalField(decimal_places=6, default=Decimal("0"), max_digits=14, verbose_name="CPU")),
                ("gpu", models.BigIntegerField(default=0, verbose_name="GPU")),
                ("ram", models.BigIntegerField(default=0, verbose_name="Memory (MiB)")),
                ("rom", models.BigIntegerField(default=0, verbose_name="Disk (bytes)")),
                ("at", models.DateTimeField(verbose_name="at")),
                ("owner", models.CharField(blank=True, max_length=50, verbose_name="owner")),
                ("applier", models.CharField(blank=True, max_length=2, verbose_name="applier")),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="samples",
                        to="resources.tenant",
                        verbose_name="tenant",
                    ),
                ),
            ],
            options={
                "verbose_name": "usage sample",
                "verbose_name_plural": "usage samples",
                "db_table": "usage_sample",
                "indexes": [models.Index(fields=["at"], name="usage_sample_age")],
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "at", "owner", "applier"), name="usage_sample_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="UserLimit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "user",
                    models.CharField(
                        blank=True, help_text="empty: all users without their own", max_length=50, verbose_name="user"
                    ),
                ),
                (
                    "cpu",
                    models.DecimalField(blank=True, decimal_places=6, max_digits=14, null=True, verbose_name="CPU"),
                ),
                ("gpu", models.BigIntegerField(blank=True, null=True, verbose_name="GPU")),
                ("ram", models.BigIntegerField(blank=True, null=True, verbose_name="Memory (MiB)")),
                ("rom", models.BigIntegerField(blank=True, null=True, verbose_name="Disk (bytes)")),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="limits",
                        to="resources.tenant",
                        verbose_name="tenant",
                    ),
                ),
            ],
            options={
                "verbose_name": "limit of a user",
                "verbose_name_plural": "limits of users",
                "db_table": "user_limit",
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "user"), name="user_limit_once"),
                    models.CheckConstraint(
                        condition=models.Q(("gpu__isnull", True), ("gpu__gte", 0), _connector="OR"),
                        name="user_limit_gpu",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("cpu__isnull", True), ("cpu__gte", 0), _connector="OR"),
                        name="user_limit_cpu",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("ram__isnull", True), ("ram__gte", 0), _connector="OR"),
                        name="user_limit_ram",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("rom__isnull", True), ("rom__gte", 0), _connector="OR"),
                        name="user_limit_rom",
                    ),
                ],
            },
        ),
    ]
