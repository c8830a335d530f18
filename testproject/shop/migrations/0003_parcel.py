import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("shop", "0002_thanks"),
    ]

    operations = [
        migrations.CreateModel(
            name="Parcel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "execution_id",
                    models.UUIDField(editable=False, help_text="The execution that packed it.", unique=True),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("packed", "Packed"), ("handed over", "Handed Over"), ("unpacked", "Unpacked")],
                        default="packed",
                        max_length=11,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="parcels", to="shop.order"
                    ),
                ),
            ],
        ),
    ]
