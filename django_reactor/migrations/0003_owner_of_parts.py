import django.db.models
from django.db import migrations

import django_reactor.journal.fields


class Migration(migrations.Migration):
    dependencies = [("django_reactor", "0002_leader")]

    operations = [
        migrations.AddIndex(
            model_name="execution",
            index=django_reactor.journal.fields.PartialIndex(
                fields=["owner"],
                name="reactor_execution_owner",
                where=django.db.models.Q(("relation__in", ["composed", "element"])),
            ),
        ),
    ]
