import django.db.models.deletion
from django.db import migrations, models

import django_reactor.journal.fields


class Migration(migrations.Migration):
    """Maps get the id by which their reactor waits for them. (Nothing has written to their table so far.)"""

    dependencies = [
        ("django_reactor", "0003_owner_of_parts"),
    ]

    operations = [
        migrations.DeleteModel(name="MapRun"),
        migrations.CreateModel(
            name="MapRun",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("step", models.CharField(max_length=200)),
                ("generation", models.IntegerField(default=0)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("loading", "loading"),
                            ("running", "running"),
                            ("failing", "failing"),
                            ("done", "done"),
                            ("undoing", "undoing"),
                            ("undone", "undone"),
                        ],
                        max_length=16,
                    ),
                ),
                ("total", models.IntegerField(null=True)),
                ("fan_out", models.IntegerField(null=True)),
                ("fail_fast", models.BooleanField(default=True)),
                ("first_failed", models.IntegerField(null=True)),
                ("summary", django_reactor.journal.fields.JSONTextField(null=True)),
                ("rollbacks", models.IntegerField(default=0)),
                (
                    "execution",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="map_runs",
                        to="django_reactor.execution",
                    ),
                ),
            ],
            options={
                "verbose_name": "map run",
                "verbose_name_plural": "map runs",
                "default_permissions": ("view",),
            },
        ),
        migrations.AddConstraint(
            model_name="maprun",
            constraint=models.UniqueConstraint(fields=("execution", "step", "generation"), name="reactor_one_map_run"),
        ),
        migrations.AddIndex(
            model_name="maprun",
            index=django_reactor.journal.fields.PartialIndex(
                fields=["state"],
                name="reactor_map_moving",
                where=models.Q(("state__in", ["running", "failing", "undoing"])),
            ),
        ),
        migrations.RemoveIndex(model_name="execution", name="reactor_execution_parent"),
        migrations.AddIndex(
            model_name="execution",
            index=django_reactor.journal.fields.PartialIndex(
                fields=["parent", "parent_step", "parent_generation", "status", "element_index"],
                name="reactor_execution_parent",
                where=models.Q(("parent__isnull", False)),
            ),
        ),
    ]
