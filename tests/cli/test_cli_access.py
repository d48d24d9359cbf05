"""`keys` and `workspaces`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Bide


def test_a_key_is_shown_once_and_can_be_revoked(bide: Bide) -> None:
    """G5."""
    made = bide("keys", "create", "for the bank", "--scope", "runs:read", "--expires", "7d", "--json").json
    [listed] = bide("keys", "list", "--json").json["items"]

    assert made["key"].startswith("bide_ws_")
    assert len(made["key"]) == len("bide_ws_") + 43
    assert listed == {name: value for name, value in made.items() if name != "key"}
    assert made["key"] not in bide("keys", "list").out
    assert bide("keys", "revoke", made["id"]).code == 0
    assert bide("keys", "revoke", made["id"]).code == 1
    assert "revoked" in bide("keys", "list").out


def test_a_scope_that_is_none_and_a_workspace_that_is_not_there(bide: Bide) -> None:
    assert bide("keys", "create", "--scope", "root").code == 2
    assert "bide workspaces create bank" in bide("keys", "create", "--workspace", "bank").err


def test_workspaces_are_made_once(bide: Bide) -> None:
    assert bide("workspaces", "create", "bank").code == 0
    assert bide("workspaces", "create", "bank").code == 1
    assert bide("workspaces", "create", "default").code == 1
    assert bide("workspaces", "list").out.split() == ["bank", "default"]
    assert bide("workspaces", "create", "the bank").out.endswith("--workspace 'the bank'\n")
    assert bide("keys", "create", "--workspace", "bank").code == 0


def test_a_key_that_is_good_for_longer_than_a_calendar_goes_never_expires(bide: Bide) -> None:
    """G5: a deadline saturates."""
    made = bide("keys", "create", "x", "--expires", "999999999d", "--json").json
    assert made["expires_at"].startswith("9999-12-31T")
    assert "good" in bide("keys", "list").out


@pytest.mark.parametrize("expires", ["0s", "0.0000001s", "PT0S"])
def test_a_key_that_is_good_for_no_time_is_refused(bide: Bide, expires: str) -> None:
    answer = bide("keys", "create", "x", "--expires", expires)
    assert (answer.code, answer.out, "--expires" in answer.err) == (2, "", True)
    assert bide("keys", "list", "--json").code != 0  # there is not even a store


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "a\0", "x" * 201, "\ud800"], ids=ascii)
def test_the_name_of_a_key_can_be_printed(bide: Bide, name: str) -> None:
    """It is shown in lists, and is who answers (W11)."""
    answer = bide("keys", "create", name)
    assert (answer.code, answer.out, "NAME" in answer.err) == (2, "", True)
    assert "\x1b" not in answer.err
