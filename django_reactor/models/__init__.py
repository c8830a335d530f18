"""Everything that runs is an `Execution` row; everything that happened is a `JournalEntry`.

Rows are written by the engine only, by conditional updates under a lease: reading is free, assigning a field and
saving is not supported. Times are UTC. Values (`inputs`, `output`, `arguments`, `value`) are JSON text with tagged
types, for `django_reactor.journal.codec`.
"""

from django_reactor.models.coordination import Holder, PeriodMark, RateCount, Ticket, TicketSequence
from django_reactor.models.executions import Execution, JournalEntry
from django_reactor.models.leaders import Leader
from django_reactor.models.maps import MapRun
from django_reactor.models.waits import Wait

__all__ = [
    # for everybody to read
    "Execution",
    "JournalEntry",
    "MapRun",
    "Wait",
    # for the engine alone
    "Holder",
    "Leader",
    "PeriodMark",
    "RateCount",
    "Ticket",
    "TicketSequence",
]
