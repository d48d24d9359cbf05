"""Workspaces, keys and secrets."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from bide.core.access import Key, Secret, Workspace
from bide.core.commands import AnyCommand, Unwelcome
from bide.stores.interface import Store
from bide.testing.store_contract.making import a_signal, a_start, outcomes, parked, reply_to, row
from bide.testing.store_contract.rows import visible_rows
from bide.testing.world import VirtualClock


def a_key(clock: VirtualClock, id: str = "key_1", workspace: str = "default") -> Key:
    return Key(
        id=id,
        workspace=workspace,
        hash=f"hash of {id}",
        name="für die Bank",
        scopes=("runs:read", "admin"),
        created_at=clock(),
        expires_at=clock() + timedelta(days=1),
        rate=7,
    )


class Access:
    async def test_a_key_comes_back_as_it_was_stored_with_the_time(self, store: Store, clock: VirtualClock) -> None:
        key = a_key(clock)
        await store.add_key(key)

        assert await store.key(key.hash) == (key, clock())
        assert await store.key("another") is None

    async def test_keys_are_listed_by_workspace(self, store: Store, clock: VirtualClock) -> None:
        keys = [a_key(clock, "key_1"), a_key(clock, "key_2", "other"), a_key(clock, "key_3")]
        for key in reversed(keys):
            await store.add_key(key)

        assert list(await store.keys(None)) == keys
        assert list(await store.keys("default")) == [keys[0], keys[2]]

    async def test_a_key_is_revoked_once_and_for_all(self, store: Store, rival: Store, clock: VirtualClock) -> None:
        key = a_key(clock)
        await store.add_key(key)
        clock.advance(timedelta(seconds=1))

        assert await rival.revoke_key(key.id)
        assert not await store.revoke_key(key.id)
        assert not await store.revoke_key("key_9")
        assert await store.key(key.hash) == (replace(key, revoked_at=clock()), clock())

    async def test_a_commit_sees_that_the_key_of_a_command_was_revoked(
        self, store: Store, rival: Store, clock: VirtualClock
    ) -> None:
        key = a_key(clock)
        await store.add_key(key)
        await parked(store, "run_1", "go")
        await parked(store, "run_2", "go")
        assert outcomes(await store.execute([a_signal("run_1", key=key.hash)])) == ["woke"]
        assert await rival.revoke_key(key.id)
        before = await visible_rows(store)

        batches: list[list[AnyCommand]] = [
            [a_signal("run_2", key=key.hash)],
            [a_signal("run_2", key=key.hash), a_start("run_3", key=key.hash)],
            [a_signal("run_2", key="of none")],
        ]
        for commands in batches:
            assert set((await store.execute(commands)).replies) == {Unwelcome()}
        assert await visible_rows(store) == before

    async def test_a_commit_sees_that_the_key_of_a_command_has_expired(self, store: Store, clock: VirtualClock) -> None:
        key = a_key(clock)
        await store.add_key(key)
        await parked(store, "run_1", "go")
        clock.advance(timedelta(days=1))

        assert await reply_to(store, a_signal("run_1", key=key.hash)) == Unwelcome()
        assert (await row(store, "run_1")).status == "waiting"

    async def test_the_last_use_of_a_key_is_noted(self, store: Store, clock: VirtualClock) -> None:
        key = a_key(clock)
        await store.add_key(key)
        clock.advance(timedelta(seconds=1))
        await store.touch_key(key.id)
        await store.touch_key("key_9")

        assert await store.key(key.hash) == (replace(key, last_used_at=clock()), clock())

    async def test_a_workspace_is_made_once(self, store: Store, rival: Store, clock: VirtualClock) -> None:
        made = Workspace(name="shop", created_at=clock())

        assert await store.add_workspace(made)
        assert not await rival.add_workspace(Workspace(name="shop", created_at=clock() + timedelta(days=1)))
        assert await store.add_workspace(Workspace(name="bank", created_at=clock()))
        assert [one.name for one in await store.workspaces()] == ["bank", "shop"]
        assert made in await store.workspaces()

    async def test_the_first_secret_stands(self, store: Store, rival: Store, clock: VirtualClock) -> None:
        first = Secret(id="s1", secret="sesame", created_at=clock())

        assert list(await store.secrets(first)) == [first]
        assert list(await rival.secrets(replace(first, secret="another"))) == [first]

    async def test_a_name_is_found_in_its_workspace_alone(self, store: Store) -> None:
        assert await store.name("default", "signal", "nobody's") is None
