"""What a store of objects has listed, so that it is not asked again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from albert_data.storage.status import Status
from albert_data.storage.urls import StoreURL

# What a store has listed, for as long as nobody changes the files: one request tells of 1,000 objects.
# Of this thread alone: another one may change files of its own meanwhile.
_listed: ContextVar[dict[StoreURL, Status] | None] = ContextVar("listed", default=None)


@contextmanager
def remember_listings() -> Iterator[None]:
    """Within the block, a store is not asked again about what it has listed. For files that nobody changes."""
    token = _listed.set(_listed.get() or {})
    try:
        yield
    finally:
        _listed.reset(token)


def recall() -> dict[StoreURL, Status]:
    """What was listed in this block. Outside of one, a dictionary that nobody else sees."""
    known = _listed.get()
    return {} if known is None else known
