"""Model instances in stored values: a reference, the live instance here, a fetched one elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.db import connection, models, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from django_reactor.exceptions import Gone, SerializationError
from django_reactor.journal.codec import Codec
from tests.codec_support import stored

pytestmark = pytest.mark.django_db


def queries() -> CaptureQueriesContext:
    return CaptureQueriesContext(connection)


@pytest.fixture
def user() -> User:
    return User.objects.create(username="ada", first_name="Ada")


def test_only_the_label_and_the_primary_key_are_stored(user: User) -> None:
    assert json.loads(stored(user)) == {"$": "model", "m": "auth.User", "v": user.pk}


def test_the_codec_gives_the_live_instance_back_without_a_query(user: User) -> None:
    codec = Codec()
    text = codec.encode({"user": user}, at="result")
    with queries() as seen:
        assert codec.decode(text)["user"] is user
    assert len(seen) == 0


def test_another_codec_fetches_the_row_as_it_is_now_and_only_once(user: User) -> None:
    text = stored(user)
    User.objects.update(first_name="Grace")
    codec = Codec()
    with queries() as seen:
        again = codec.decode(text)
        assert codec.decode(text) is again
    assert len(seen) == 1
    assert again == user
    assert again is not user
    assert again.first_name == "Grace"


def test_all_instances_of_one_value_are_fetched_with_one_query_for_each_model(user: User) -> None:
    users = [user, *(User.objects.create(username=f"user {n}") for n in range(20))]
    groups = [Group.objects.create(name=f"group {n}") for n in range(5)]
    text = stored({"users": users, "pairs": {(users[0], groups[0]): groups}, "again": tuple(users)})
    with queries() as seen:
        again = Codec().decode(text)
    assert len(seen) == 2
    assert again == {"users": users, "pairs": {(users[0], groups[0]): groups}, "again": tuple(users)}
    assert again["users"][3] is again["again"][3]


def test_more_rows_than_one_query_may_name_are_fetched_in_several() -> None:
    Group.objects.bulk_create([Group(name=f"group {n}") for n in range(1101)])
    groups = list(Group.objects.order_by("name"))
    text = stored(groups)
    with queries() as seen:
        assert Codec().decode(text) == groups
    assert len(seen) == 3


def test_an_argument_is_fetched_only_when_a_step_asks_for_it(user: User) -> None:
    codec = Codec()
    text = Codec().encode_arguments({"user": user, "group": Group.objects.create(name="g")}, redacted=(), at="inputs")
    with queries() as seen:
        arguments = codec.decode_arguments(text)
        assert list(arguments) == ["user", "group"]
        assert len(seen) == 0
        assert arguments["user"] == user
        assert arguments["user"] is arguments["user"]
    assert len(seen) == 1


def test_a_deleted_row_is_gone_elsewhere_and_others_stay_readable(user: User) -> None:
    group = Group.objects.create(name="g")
    text = Codec().encode_arguments({"user": user, "group": group}, redacted=(), at="inputs")
    pk = user.pk
    user.delete()
    arguments = Codec().decode_arguments(text)
    assert arguments["group"] == group
    with pytest.raises(Gone) as caught:
        arguments["user"]
    assert (caught.value.model, caught.value.pk) == ("auth.User", pk)


def test_a_live_instance_that_was_deleted_is_gone_here_too(user: User) -> None:
    codec = Codec()
    text = codec.encode([user], at="result")
    user.delete()
    with pytest.raises(Gone):
        codec.decode(text)


def test_an_instance_whose_deletion_was_rolled_back_is_fetched_again(user: User) -> None:
    codec = Codec()
    pk, text = user.pk, codec.encode(user, at="result")
    with transaction.atomic():
        user.delete()
        transaction.set_rollback(True)
    assert codec.decode(text).pk == pk


def test_an_instance_that_was_copied_under_a_new_key_is_not_given_for_the_old_one(user: User) -> None:
    codec = Codec()
    pk, text = user.pk, codec.encode(user, at="result")
    user.pk, user._state.adding, user.username = None, True, "copy"
    user.save()
    assert codec.decode(text).pk == pk


def test_of_several_instances_of_one_row_the_last_one_is_given_back(user: User) -> None:
    codec = Codec()
    text = codec.encode(user, at="inputs.user")
    newer = User.objects.get(pk=user.pk)
    codec.encode(newer, at="result")
    assert codec.decode(text) is newer


def test_a_lazy_user_is_stored_as_the_user(user: User) -> None:
    codec = Codec()
    assert codec.decode(codec.encode(SimpleLazyObject(lambda: user), at="result")) is user


def test_an_instance_with_deferred_fields_is_fetched_whole(user: User) -> None:
    text = stored(User.objects.only("pk").get(pk=user.pk))
    again = Codec().decode(text)
    with queries() as seen:
        assert again.first_name == "Ada"
    assert len(seen) == 0


def test_a_primary_key_of_text_is_kept() -> None:
    session = Session.objects.create(session_key="k\x7f'", session_data="", expire_date=timezone.now())
    assert Codec().decode(stored(session)) == session


class _Written:
    """A router that reads from a replica and writes elsewhere."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "default"


def test_a_row_is_fetched_where_it_is_written_not_from_a_replica(user: User, settings: Any) -> None:
    settings.DATABASE_ROUTERS = [_Written()]
    assert Codec().decode(stored(user)) == user


def test_the_database_of_an_instance_from_elsewhere_is_stored_with_it(user: User) -> None:
    user._state.db = "archive"
    assert json.loads(stored(user))["d"] == "archive"


def test_a_model_that_is_not_the_installed_one_is_refused() -> None:
    class User(models.Model):  # noqa: DJ008
        class Meta:
            app_label = "auth"
            apps = type(apps)(installed_apps=())

    with pytest.raises(SerializationError, match=r"auth\.User is not the installed model of this name"):
        stored(User(pk=1))


class Visible(models.Manager[Any]):
    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().filter(hidden=False)


# Kinds of models that the installed apps do not have


@pytest.fixture
def made(transactional_db: None) -> Iterator[dict[str, type[models.Model]]]:
    """Models with tables for one test, under the label of an installed app."""

    class Proxy(User):
        class Meta:
            app_label = "auth"
            proxy = True

    class Child(Group):
        more = models.CharField(max_length=10)

        class Meta:
            app_label = "auth"

    class Keyed(models.Model):  # noqa: DJ008
        id = models.UUIDField(primary_key=True)
        hidden = models.BooleanField(default=False)

        objects = Visible()

        class Meta:
            app_label = "auth"

    class Composite(models.Model):  # noqa: DJ008
        pk = models.CompositePrimaryKey("tenant", "number")
        tenant = models.UUIDField()
        number = models.IntegerField()

        class Meta:
            app_label = "auth"

    made: list[type[models.Model]] = [Proxy, Child, Keyed, Composite]
    tables = [model for model in made if not model._meta.proxy]
    try:
        with connection.schema_editor() as editor:
            for model in tables:
                editor.create_model(model)
        yield {model.__name__: model for model in made}
        with connection.schema_editor() as editor:
            for model in reversed(tables):
                editor.delete_model(model)
    finally:
        for model in made:
            del apps.all_models["auth"][model.__name__.lower()]
        apps.clear_cache()


KEY = UUID("12345678-1234-5678-1234-567812345678")


def test_every_kind_of_model_comes_back(made: dict[str, Any], user: User) -> None:
    proxy = made["Proxy"].objects.get()
    child = made["Child"].objects.create(name="parent", more="child")
    keyed = made["Keyed"].objects.create(id=KEY, hidden=True)  # its default manager does not find it
    composite = made["Composite"].objects.create(tenant=KEY, number=7)
    for instance in (proxy, child, keyed, composite):
        again = Codec().decode(stored(instance))
        assert type(again) is type(instance)
        assert (again.pk, again.__dict__.keys()) == (instance.pk, instance.__dict__.keys())
    assert Codec().decode(stored([composite, composite, keyed])) == [composite, composite, keyed]


def test_a_key_given_as_text_leads_to_the_same_row(made: dict[str, Any]) -> None:
    codec = Codec()
    keyed = made["Keyed"].objects.create(id=str(KEY))
    text = codec.encode(keyed, at="result")
    assert json.loads(text)["v"] == {"$": "uuid", "v": str(KEY)}
    assert codec.decode(text) is keyed
    assert Codec().decode(text).pk == KEY


def test_an_incomplete_composite_key_is_refused(made: dict[str, Any]) -> None:
    composite = made["Composite"].objects.create(tenant=KEY, number=7)
    composite.number = None
    with pytest.raises(SerializationError, match="not saved"):
        stored(composite)
