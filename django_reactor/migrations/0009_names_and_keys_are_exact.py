from django.db import migrations

from django_reactor.journal.fields import ExactCharField


class Migration(migrations.Migration):
    dependencies = [
        ("django_reactor", "0008_contentions"),
    ]

    operations = [
        migrations.AlterField(
            model_name="execution",
            name="idempotency_key",
            field=ExactCharField(max_length=255, null=True),
        ),
        migrations.AlterField(
            model_name="execution",
            name="parent_step",
            field=ExactCharField(default="", max_length=200),
        ),
        migrations.AlterField(
            model_name="execution",
            name="reactor",
            field=ExactCharField(max_length=200),
        ),
        migrations.AlterField(
            model_name="journalentry",
            name="step",
            field=ExactCharField(max_length=200),
        ),
        migrations.AlterField(
            model_name="maprun",
            name="step",
            field=ExactCharField(max_length=200),
        ),
        migrations.AlterField(
            model_name="ticket",
            name="step",
            field=ExactCharField(default="", max_length=200),
        ),
        migrations.AlterField(
            model_name="wait",
            name="correlation_id",
            field=ExactCharField(max_length=255, null=True),
        ),
        migrations.AlterField(
            model_name="wait",
            name="step",
            field=ExactCharField(max_length=200),
        ),
    ]
