from uuid import UUID

import django.db.models.deletion
from django.db import migrations, models

import django_reactor.journal.fields


class Migration(migrations.Migration):
    """No wait was ever stored before, so the owner's default is never used."""

    dependencies = [
        ("django_reactor", "0004_maps"),
    ]

    operations = [
        migrations.AddField(
            model_name="wait",
            name="error",
            field=django_reactor.journal.fields.JSONTextField(null=True),
        ),
        migrations.AddField(
            model_name="wait",
            name="owner",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                default=UUID(int=0),
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="django_reactor.execution",
            ),
            preserve_default=False,
        ),
        migrations.AlterField(
            model_name="wait",
            name="state",
            field=models.CharField(
                choices=[
                    ("open", "open"),
                    ("accepted", "accepted"),
                    ("applied", "applied"),
                    ("rejected", "rejected"),
                    ("timed_out", "timed out"),
                    ("closed", "closed"),
                ],
                max_length=16,
            ),
        ),
        migrations.AddIndex(
            model_name="wait",
            index=models.Index(fields=["owner"], name="reactor_wait_owner"),
        ),
        migrations.AddIndex(
            model_name="wait",
            index=django_reactor.journal.fields.PartialIndex(
                fields=["correlation_id"],
                name="reactor_wait_correlation",
                where=models.Q(("correlation_id__isnull", False)),
            ),
        ),
    ]
