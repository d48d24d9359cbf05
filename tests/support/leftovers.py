"""What code leaves behind for the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def leaving_nothing(*kinds: type) -> Iterator[None]:
    """No object of these kinds that the block makes outlives its last reference: the collector has nothing to do.

    Those that were there before may have been left by other tests, where something refers to them.
    """
    gc.collect()
    gc.disable()
    try:
        before = _all_of(kinds)
        yield
        left = {id(each) for each in _all_of(kinds)} - {id(each) for each in before}
    finally:
        gc.enable()
    assert not left, f"{len(left)} objects refer to themselves"


def _all_of(kinds: tuple[type, ...]) -> list[object]:
    return [each for each in gc.get_objects() if isinstance(each, kinds)]
