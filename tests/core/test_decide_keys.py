"""What a commit does with a command that was sent with a key (G5)."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from bide.core.access import Validity
from bide.core.commands import Receipt, Unwelcome
from bide.core.decide import decide_all
from bide.core.plan import reads
from tests.support.decisions import NOW, RUN, parked, signal, view_of, waiting_for

MOMENT = timedelta(microseconds=1)


@pytest.mark.parametrize("key", [Validity("of a key"), Validity("of a key", expires_at=NOW + MOMENT)])
def test_G5_a_command_under_a_good_key_is_decided_as_any_other(key: Validity) -> None:
    view = view_of(parked(), waiting_for("go"))
    view.keys[key.hash] = key

    [reply] = decide_all(view, [signal(key=key.hash)])

    assert isinstance(reply, Receipt)
    assert reply.outcome == "woke"


@pytest.mark.parametrize(
    "key",
    [
        Validity("of another"),
        Validity("of a key", revoked_at=NOW),
        Validity("of a key", revoked_at=NOW + MOMENT),
        Validity("of a key", expires_at=NOW),
        Validity("of a key", expires_at=datetime(1970, 1, 1, tzinfo=NOW.tzinfo)),
    ],
)
def test_G5_a_command_under_a_bad_key_changes_nothing_and_its_neighbours_go_on(key: Validity) -> None:
    view = view_of(parked(), waiting_for("go"))
    view.keys[key.hash] = key

    replies = decide_all(view, [signal("msg_1", key="of a key"), signal("msg_2")])

    assert replies[0] == Unwelcome()
    assert isinstance(replies[1], Receipt)
    assert [signal.id for signal in view.inbox[RUN].values()] == ["msg_2"]


def test_G5_keys_are_read_for_the_commands_that_were_sent_with_one() -> None:
    assert reads([signal("msg_1", key="one"), signal("msg_2"), signal("msg_3", key="one")], {}).keys == {"one"}
