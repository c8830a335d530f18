from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("django_reactor", "0005_answers_of_waits"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="execution",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("undo_execution", "Can undo an execution"),
                    ("cancel_execution", "Can cancel an execution"),
                    ("retry_execution", "Can retry an execution"),
                    ("resume_execution", "Can answer an interrupt of an execution"),
                ],
                "verbose_name": "execution",
                "verbose_name_plural": "executions",
            },
        ),
        migrations.AlterField(
            model_name="maprun",
            name="state",
            field=models.CharField(
                choices=[
                    ("loading", "loading"),
                    ("running", "running"),
                    ("failing", "failing"),
                    ("withdrawn", "withdrawn"),
                    ("done", "done"),
                    ("undoing", "undoing"),
                    ("undone", "undone"),
                ],
                max_length=16,
            ),
        ),
    ]
