from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("django_reactor", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Leader",
            fields=[
                ("task", models.CharField(max_length=32, primary_key=True, serialize=False)),
                ("holder", models.UUIDField()),
                ("until", models.DateTimeField()),
            ],
            options={
                "verbose_name": "leader",
                "verbose_name_plural": "leaders",
                "default_permissions": (),
            },
        ),
    ]
