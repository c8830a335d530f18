from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("django_reactor", "0007_coordination"),
    ]

    operations = [
        migrations.AddField(
            model_name="execution",
            name="contentions",
            field=models.IntegerField(default=0),
        ),
    ]
