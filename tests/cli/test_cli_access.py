"""`keys` and `workspaces`."""

from __future__ import annotations

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
