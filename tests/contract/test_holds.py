"""The contract of the port `Holds`: locks and semaphores."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from django_reactor.engine.coordination_ports import Hold, HoldKind, Holds, Wanted
from tests.contract.coordination_stores import Store, lock, semaphore, take

KEYS_THAT_ARE_NOT_ONE = [
    ("a", "A"),
    ("a", "a "),
    ("a", " a"),
    ("a", "a\t"),
    ("e", "é"),
    ("é", "e\N{COMBINING ACUTE ACCENT}"),
    ("straße", "strasse"),
    ("x" * 5000, "x" * 4999 + "y"),
    ("🙈", "🙉"),
    ("a", "a\x00"),
    ("a:1", "a%3A1"),
    ("{a}", "a"),
]


@pytest.fixture
def holds(coordination: Store) -> Holds:
    return coordination.holds


ANY = pytest.mark.parametrize("wanted", [lock(), semaphore(limit=1)], ids=["lock", "semaphore of one"])


# -- one owner ---------------------------------------------------------------------------------------------------------


@ANY
def test_what_one_has_nobody_else_gets_until_it_is_released(holds: Holds, wanted: Wanted) -> None:
    hold = take(holds, wanted)
    assert holds.take(uuid4(), 1, wanted) is None
    assert holds.release([hold]) == {hold}
    take(holds, wanted)


@ANY
def test_a_hold_says_what_is_held_by_whom(holds: Holds, wanted: Wanted) -> None:
    owner = uuid4()
    assert holds.take(owner, 3, wanted) == Hold(wanted=wanted, owner=owner, epoch=3, slot=0)


@ANY
def test_what_has_expired_is_free(coordination: Store, holds: Holds, wanted: Wanted) -> None:
    take(holds, wanted)
    coordination.after(59)
    assert holds.take(uuid4(), 1, wanted) is None
    coordination.after(2)
    take(holds, wanted)


@ANY
@pytest.mark.parametrize("later", [0, 1, 5])
def test_an_owner_takes_again_for_a_whole_ttl_by_the_same_claim_or_a_later_one(
    coordination: Store, holds: Holds, wanted: Wanted, later: int
) -> None:
    owner = uuid4()
    take(holds, wanted, owner, 2)
    coordination.after(50)
    again = take(holds, wanted, owner, 2 + later)
    coordination.after(50)
    assert holds.take(uuid4(), 9, wanted) is None
    assert holds.release([again]) == {again}
    take(holds, wanted)


@ANY
@pytest.mark.parametrize("seconds", [0, 61], ids=["held", "expired"])
def test_an_earlier_claim_of_the_owner_neither_takes_nor_extends_nor_releases(
    coordination: Store, holds: Holds, wanted: Wanted, seconds: float
) -> None:
    """A zombie: a runner that stood still while another continued its execution."""
    owner = uuid4()
    zombies = take(holds, wanted, owner, 1)
    successors = take(holds, wanted, owner, 2)
    coordination.after(seconds)
    assert holds.take(owner, 1, wanted) is None
    assert holds.extend([zombies]) == set()
    assert holds.release([zombies]) == set()
    if not seconds:
        assert holds.take(uuid4(), 9, wanted) is None
        assert holds.extend([successors]) == {successors}
        assert holds.release([successors]) == {successors}


@ANY
def test_what_another_has_taken_meanwhile_is_neither_extended_nor_released(
    coordination: Store, holds: Holds, wanted: Wanted
) -> None:
    lapsed = take(holds, wanted)
    coordination.after(61)
    others = take(holds, wanted)
    assert holds.extend([lapsed]) == set()
    assert holds.release([lapsed]) == set()
    assert holds.release([others]) == {others}


@ANY
def test_what_was_released_is_neither_extended_nor_released_again(holds: Holds, wanted: Wanted) -> None:
    hold = take(holds, wanted)
    assert holds.release([hold]) == {hold}
    assert holds.extend([hold]) == set()
    assert holds.release([hold]) == set()


@ANY
def test_who_extends_holds_for_a_whole_ttl_from_then_on(coordination: Store, holds: Holds, wanted: Wanted) -> None:
    hold = take(holds, wanted)
    coordination.after(50)
    assert holds.extend([hold]) == {hold}
    coordination.after(50)
    assert holds.extend([hold]) == {hold}
    assert holds.take(uuid4(), 1, wanted) is None
    coordination.after(61)
    assert holds.extend([hold]) == set(), "what has lapsed is taken again, not extended"


def test_several_are_extended_and_released_at_once_each_for_itself(coordination: Store, holds: Holds) -> None:
    owner = uuid4()
    short, long = take(holds, lock("short", ttl=10), owner), take(holds, lock("long", ttl=100), owner)
    places = take(holds, semaphore(), owner)
    coordination.after(20)
    assert holds.extend([short, long, places]) == {long, places}
    coordination.after(50)
    assert holds.take(uuid4(), 1, lock("long")) is None
    assert holds.release([long, places]) == {long, places}
    assert holds.release([]) == holds.extend([]) == set()


@pytest.mark.parametrize(("one", "other"), KEYS_THAT_ARE_NOT_ONE)
def test_keys_that_differ_at_all_are_two_keys(holds: Holds, one: str, other: str) -> None:
    take(holds, lock(one))
    take(holds, lock(other))
    assert holds.take(uuid4(), 1, lock(one)) is None
    assert holds.take(uuid4(), 1, lock(other)) is None


def test_a_lock_and_a_semaphore_of_one_key_have_nothing_to_do_with_each_other(holds: Holds) -> None:
    take(holds, lock("one"))
    take(holds, semaphore("one", limit=1))
    assert holds.take(uuid4(), 1, lock("one")) is None
    assert holds.take(uuid4(), 1, semaphore("one", limit=1)) is None


# -- semaphores --------------------------------------------------------------------------------------------------------


def test_as_many_as_the_limit_get_a_slot_each_the_first_free_one(holds: Holds) -> None:
    first, second, third = (take(holds, semaphore(limit=3)) for _ in range(3))
    assert [first.slot, second.slot, third.slot] == [0, 1, 2]
    assert holds.take(uuid4(), 1, semaphore(limit=3)) is None
    assert holds.release([second]) == {second}
    assert take(holds, semaphore(limit=3)).slot == 1


def test_an_owner_has_one_slot_however_often_it_takes(holds: Holds) -> None:
    owner = uuid4()
    take(holds, semaphore())
    own = take(holds, semaphore(), owner)
    assert take(holds, semaphore(), owner) == own
    assert take(holds, semaphore(), owner, 2).slot == own.slot
    assert holds.take(owner, 1, semaphore()) is None


def test_a_slot_that_has_expired_is_free(coordination: Store, holds: Holds) -> None:
    take(holds, semaphore(ttl=10))
    kept = take(holds, semaphore(ttl=100))
    coordination.after(20)
    assert take(holds, semaphore()).slot == 0
    assert holds.take(uuid4(), 1, semaphore()) is None
    assert holds.extend([kept]) == {kept}


def test_a_raised_limit_gives_more_slots(holds: Holds) -> None:
    take(holds, semaphore(limit=1))
    assert holds.take(uuid4(), 1, semaphore(limit=1)) is None
    assert [take(holds, semaphore(limit=3)).slot for _ in range(2)] == [1, 2]
    assert holds.take(uuid4(), 1, semaphore(limit=3)) is None


def test_those_beyond_a_lowered_limit_count_and_keep_their_slots(holds: Holds) -> None:
    first, second, third, fourth = (take(holds, semaphore(limit=4)) for _ in range(4))
    assert holds.extend([fourth]) == {fourth}
    assert take(holds, semaphore(limit=2), fourth.owner).slot == fourth.slot
    assert holds.take(uuid4(), 1, semaphore(limit=2)) is None
    holds.release([first])
    assert holds.take(uuid4(), 1, semaphore(limit=2)) is None, "three are in"
    holds.release([second])
    assert holds.take(uuid4(), 1, semaphore(limit=2)) is None, "two are in"
    holds.release([third])
    assert take(holds, semaphore(limit=2)).slot == 0
    assert holds.take(uuid4(), 1, semaphore(limit=2)) is None, "two are in"
    holds.release([fourth])
    assert take(holds, semaphore(limit=2)).slot == 1
    assert holds.take(uuid4(), 1, semaphore(limit=2)) is None


def test_an_owner_whose_slot_lapsed_gets_no_place_that_others_have(coordination: Store, holds: Holds) -> None:
    owner = uuid4()
    take(holds, semaphore(limit=1, ttl=100))
    lapsed = take(holds, semaphore(limit=2, ttl=10), owner)
    assert lapsed.slot == 1
    coordination.after(20)
    assert holds.take(owner, 1, semaphore(limit=1)) is None


# -- who has it --------------------------------------------------------------------------------------------------------


def test_holders_are_those_that_hold_now_by_slot(coordination: Store, holds: Holds) -> None:
    assert list(holds.holders(HoldKind.SEMAPHORE, "gateway")) == []
    lapsed, first, second, gone = (take(holds, semaphore(limit=4, ttl=ttl)) for ttl in (10, 100, 100, 100))
    take(holds, lock("gateway"))
    take(holds, semaphore("another"))
    coordination.after(20)
    holds.release([gone])
    found = holds.holders(HoldKind.SEMAPHORE, "gateway")
    assert [(h.slot, h.owner, h.epoch, h.key) for h in found] == [
        (1, first.owner, 1, "gateway"),
        (2, second.owner, 1, "gateway"),
    ]
    assert lapsed.slot == 0
    assert all(h.expires_at.tzinfo is not None for h in found)
    assert [h.owner for h in holds.holders(HoldKind.LOCK, "gateway")] != [first.owner]
    several = holds.holders(HoldKind.SEMAPHORE, "gateway", "another", "nobody's")
    assert [(h.key, h.slot) for h in several] == [("another", 0), ("gateway", 1), ("gateway", 2)]
    assert list(holds.holders(HoldKind.SEMAPHORE)) == []


def test_what_an_owner_holds_is_found_whatever_its_key(coordination: Store, holds: Holds) -> None:
    one, another = uuid4(), uuid4()
    take(holds, lock("a", ttl=100), one)
    take(holds, semaphore("b", ttl=100), one)
    take(holds, lock("lapsed", ttl=10), one)
    take(holds, lock("c", ttl=100), another)
    take(holds, lock("d", ttl=100))
    holds.release([take(holds, lock("released"), one)])
    coordination.after(20)

    def held(owner: UUID) -> list[tuple[str, str]]:
        return sorted((h.kind.value, h.key) for h in holds.held_by(owner))

    assert held(one) == [("lock", "a"), ("semaphore", "b")]
    assert held(another) == [("lock", "c")]
    assert held(uuid4()) == []


def test_what_nobody_has_held_for_a_day_is_forgotten_a_few_at_a_time(coordination: Store, holds: Holds) -> None:
    for number in range(5):
        holds.release([take(holds, lock(f"old:{number}"))])
    coordination.after(60 * 60 * 25)
    kept = take(holds, lock("held"))
    holds.release([take(holds, lock("new"))])
    forgotten = [holds.purge(2) for _ in range(4)]
    assert forgotten in ([2, 2, 1, 0], [0, 0, 0, 0]), "a store may forget them by itself"
    assert holds.extend([kept]) == {kept}


@ANY
@pytest.mark.parametrize("end", ["lapsed", "released"])
def test_what_was_held_within_a_day_is_not_forgotten(
    coordination: Store, holds: Holds, wanted: Wanted, end: str
) -> None:
    hold = take(holds, wanted)
    if end == "released":
        holds.release([hold])
    coordination.after(60 * 60 * 23 + wanted.ttl)
    assert holds.purge(10) == 0
    coordination.after(60 * 60 * 2)
    assert holds.purge(10) in (1, 0), "a store may forget it by itself"
    take(holds, wanted)


def test_an_earlier_claim_is_known_as_such_for_a_day_after_its_successors_hold_has_expired(
    coordination: Store, holds: Holds
) -> None:
    owner = uuid4()
    take(holds, lock(), owner, 2)
    coordination.after(60 * 60 * 23)
    holds.purge(10)
    assert holds.take(owner, 1, lock()) is None
    take(holds, lock(), owner, 2)
