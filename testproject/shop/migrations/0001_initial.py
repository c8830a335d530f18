import django.db.models.deletion
from django.db import migrations, models

import testproject.shop.models.gateway
import testproject.shop.money


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Customer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.CharField(max_length=20, unique=True)),
                ("blocked", models.BooleanField(default=False, help_text="Orders of a blocked customer are refused.")),
            ],
        ),
        migrations.CreateModel(
            name="GatewayCharge",
            fields=[
                (
                    "charge_id",
                    models.CharField(
                        default=testproject.shop.models.gateway.new_charge_id,
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "key",
                    models.CharField(
                        help_text="The idempotency key it was made under.", max_length=200, null=True, unique=True
                    ),
                ),
                (
                    "reference",
                    models.UUIDField(db_index=True, help_text="What the shop says the charge is for.", null=True),
                ),
                ("card", models.CharField(help_text="A fingerprint; the token itself is not kept.", max_length=16)),
                ("amount", testproject.shop.money.MoneyField()),
                (
                    "state",
                    models.CharField(
                        choices=[("captured", "Captured"), ("voided", "Voided"), ("refunded", "Refunded")],
                        default="captured",
                        max_length=10,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name="GatewayRequest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("reference", models.UUIDField(db_index=True, null=True)),
                ("key", models.CharField(max_length=200, null=True)),
                ("amount", testproject.shop.money.MoneyField()),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("charged", "Charged"),
                            ("repeated", "first charge returned again"),
                            ("declined", "card declined"),
                            ("timeout_charged", "timeout, charged all the same"),
                            ("timeout_not_charged", "timeout, not charged"),
                        ],
                        max_length=20,
                    ),
                ),
                ("received_at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
        migrations.CreateModel(
            name="Product",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sku", models.CharField(max_length=40, unique=True, verbose_name="SKU")),
                ("title", models.CharField(max_length=200)),
                ("price", testproject.shop.money.MoneyField(help_text="For one unit, where an order names no amount.")),
            ],
        ),
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "execution_id",
                    models.UUIDField(editable=False, help_text="The execution that placed it.", unique=True),
                ),
                ("quantity", models.PositiveIntegerField()),
                ("total", testproject.shop.money.MoneyField()),
                ("note", models.CharField(blank=True, max_length=500)),
                (
                    "status",
                    models.CharField(
                        choices=[("placed", "Placed"), ("confirmed", "Confirmed"), ("cancelled", "Cancelled")],
                        default="placed",
                        max_length=10,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "customer",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="orders", to="shop.customer"
                    ),
                ),
                (
                    "product",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="orders", to="shop.product"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Payment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("charge_id", models.CharField(max_length=40, unique=True)),
                ("amount", testproject.shop.money.MoneyField()),
                (
                    "state",
                    models.CharField(
                        choices=[("captured", "Captured"), ("refunded", "Refunded")], default="captured", max_length=10
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="payments", to="shop.order"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Stock",
            fields=[
                (
                    "product",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        serialize=False,
                        to="shop.product",
                    ),
                ),
                ("received", models.PositiveIntegerField(default=0, help_text="Units that ever came in.")),
                ("on_hand", models.PositiveIntegerField(default=0, help_text="Units that nobody has reserved.")),
            ],
            options={
                "verbose_name_plural": "stock",
            },
        ),
        migrations.CreateModel(
            name="Reservation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "key",
                    models.CharField(
                        help_text="Asked for again, it is the same reservation.", max_length=200, unique=True
                    ),
                ),
                ("quantity", models.PositiveIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[("held", "Held"), ("released", "Released")], default="held", max_length=10
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "product",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="reservations", to="shop.product"
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="order",
            name="reservation",
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.PROTECT, related_name="order", to="shop.reservation"
            ),
        ),
    ]
