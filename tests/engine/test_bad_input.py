"""Bad input: each is a clear error that says what to do, and leaves a whole store (the world checks at its end)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import bide
from bide.engine.runtime import open_store
from bide.engine.settings import Settings
from bide.testing import world
from tests.support.worlds import Ctx

app = bide.App("strict")

TOO_LONG = "x" * 201
LONGEST = "x" * 200
PRINTABLE = "1 to 200 printable characters"
NO_NAMES = ["", TOO_LONG, "a\x00b", "a\nb", "half \ud800", None, 5, b"bytes"]


@app.machine("order")
class Order:
    @bide.start
    def begin(self, ctx: Ctx) -> bide.Await:
        return bide.Await("go", then="finish")

    def finish(self, ctx: Ctx) -> bide.Done:
        return bide.Done()


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@dataclasses.dataclass
class Holds:
    inner: Any


UNSTORABLE: list[tuple[Callable[[], Any], str]] = [
    (object, "object cannot become JSON"),
    (lambda: {"a": [1, object()]}, "at $.a[1]: object cannot become JSON"),
    (lambda: Holds(lambda: 1), "at $.inner: function cannot become JSON"),
    (lambda: {"a": float("nan")}, "at $.a: nan is not JSON"),
    (lambda: [float("inf")], "at $[0]: inf is not JSON"),
    (lambda: "half \ud800", "half a surrogate pair"),
    (lambda: {"half \udfff": 1}, "half a surrogate pair"),
    (lambda: "a\x00b", "contains NUL"),
    (lambda: {"a": 2**63}, "at $.a: the number is out of range"),
    (lambda: {1: "a", "1": "b"}, "the key is there more than once"),
    (lambda: nested(65), "nested deeper than 64 levels"),
    (circular, "nested deeper than 64 levels"),
    (lambda: [0] * 200_001, "more than 200,000 values"),
]
UNSTORABLE_IDS = [words for _, words in UNSTORABLE]


# ---------------------------------------------------------------- what to start


@pytest.mark.parametrize("name", ["nothing", "", "Order", "order ", "\ud800"])
async def test_an_unknown_definition_is_refused_with_those_that_there_are(store_url: str, name: str) -> None:
    async with world(app, store=store_url) as there:
        with pytest.raises(bide.DefinitionNotFound, match="registered are: order") as refused:
            await there.start(name)
        assert repr(name) in str(refused.value)
        assert await there.runs() == []


async def test_an_unknown_version_is_refused_by_name_and_version(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        with pytest.raises(bide.DefinitionNotFound, match="no version '9' of it; there are: 1"):
            await there.start("order", version="9")


@pytest.mark.parametrize("definition", [None, 5, object, Holds, lambda: 1])
async def test_what_is_no_definition_is_refused_in_words(store_url: str, definition: Any) -> None:
    async with world(app, store=store_url) as there:
        with pytest.raises(
            bide.BadInput, match=r"is no definition; give its name, or what @app\.machine or @app\.workflow made"
        ):
            await there.start(definition)


@pytest.mark.parametrize(("make", "words"), UNSTORABLE, ids=UNSTORABLE_IDS)
async def test_an_input_that_cannot_be_stored_is_refused_with_its_place(
    store_url: str, make: Callable[[], Any], words: str
) -> None:
    async with world(app, store=store_url) as there:
        with pytest.raises(bide.BadInput, match="the input of 'order' cannot be stored") as refused:
            await there.start("order", make())
        assert words in str(refused.value)
        assert await there.runs() == []


@pytest.mark.parametrize("key", [key for key in NO_NAMES if key is not None])
async def test_a_correlation_key_that_no_store_could_carry_is_refused(store_url: str, key: Any) -> None:
    async with world(app, store=store_url) as there:
        with pytest.raises(bide.BadInput, match=PRINTABLE):
            await there.start("order", correlation_key=key)
        assert await there.runs() == []


@pytest.mark.parametrize("key", ["run_1", "wait_1", "int_1", "run_", "wait_\u00e9"])
async def test_a_correlation_key_that_looks_like_an_id_is_refused(store_url: str, key: str) -> None:
    async with world(app, store=store_url) as there:
        with pytest.raises(bide.BadInput, match="use another prefix than run_, wait_ or int_"):
            await there.start("order", correlation_key=key)


@pytest.mark.parametrize("key", ["x", LONGEST, "order 1", "支払い:1", "Run_1", "%_'\";--", "🙂" * 200])
async def test_any_other_correlation_key_is_an_address(store_url: str, key: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("order", correlation_key=key)
        assert (await there.signal(key, "go")).run_id == run.id


@pytest.mark.parametrize(
    ("delay", "words"),
    [
        ("soon", "units are w, d, h, m, s, ms and us"),
        ("", "it is empty"),
        ("-1s", "it is negative"),
        (-1, "it is negative"),
        (timedelta(seconds=-1), "it is negative"),
        (float("nan"), "not a finite number"),
        (True, "a truth value says no time"),
        ("10", "it has no unit"),
        (datetime(2030, 1, 1, tzinfo=UTC), "a datetime says no time"),
        ("P1M", "years and months differ in length"),
    ],
)
async def test_a_delay_that_says_no_duration_is_refused_with_the_forms_that_do(
    store_url: str, delay: Any, words: str
) -> None:
    async with world(app, store=store_url) as there:
        with pytest.raises(bide.BadInput, match="delay=") as refused:
            await there.start("order", delay=delay)
        assert words in str(refused.value)
        assert '"1h30m"' in str(refused.value)
        assert await there.runs() == []


async def test_a_delay_beyond_all_time_starts_a_run_that_is_never_due(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("order", delay=timedelta.max)
        await there.advance("36500d")
        assert (await there.get(run.id)).status == "ready"
        await there.cancel(run.id)


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ({"a": 1}, "tag 'a' with the value 1"),
        ({"a": None}, "tag 'a' with the value None"),
        ({"a": "half \ud800"}, "tag 'a' with the value"),
        ({"a": TOO_LONG}, PRINTABLE),
        ({1: "a"}, "tag name 1"),
        ({"": "a"}, "tag name ''"),
        ({"a\x00": "b"}, "tag name"),
        (["a", "b"], "give a mapping of texts to texts"),
        ("a=b", "give a mapping of texts to texts"),
        (5, "give a mapping of texts to texts"),
    ],
)
async def test_tags_that_are_not_short_texts_are_refused(store_url: str, tags: Any, words: str) -> None:
    async with world(app, store=store_url) as there:
        with pytest.raises(bide.BadInput) as refused:
            await there.start("order", tags=tags)
        assert words in str(refused.value)
        with pytest.raises(bide.BadInput):
            await there.runs(tags=tags)
        assert await there.runs() == []


async def test_tags_are_found_again(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("order", tags={"customer": "7", "empty": "", "größe": "支払い'\"%"})
        await there.start("order", tags={"customer": "8"})
        for tags in ({"customer": "7"}, {"empty": ""}, {"größe": "支払い'\"%"}, {"customer": "7", "empty": ""}):
            assert [found.id for found in await there.runs(tags=tags)] == [run.id]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"priority": "high"}, "priority='high': give a whole number"),
        ({"priority": 1.5}, "priority=1.5"),
        ({"priority": 2**70}, "from -32768 to 32767"),
        ({"priority": True}, "priority=True"),
        ({"queue": ""}, "queue '' cannot be used"),
        ({"queue": TOO_LONG}, PRINTABLE),
        ({"queue": "a\x00"}, PRINTABLE),
        ({"correlation_scope": "always"}, 'give "live" or "forever"'),
        ({"if_exists": "ignore"}, 'give "raise" or "return"'),
    ],
)
async def test_other_options_of_a_start_are_checked(store_url: str, options: dict[str, Any], words: str) -> None:
    async with world(app, store=store_url) as there:
        with pytest.raises(bide.BadInput) as refused:
            await there.start("order", **options)
        assert words in str(refused.value)
        assert await there.runs() == []


@pytest.mark.parametrize("workspace", NO_NAMES)
async def test_a_workspace_needs_a_name(workspace: Any) -> None:
    with pytest.raises(bide.BadInput, match="workspace"):
        app.client(workspace)


# ---------------------------------------------------------------- what to send


@pytest.mark.parametrize(("make", "words"), UNSTORABLE, ids=UNSTORABLE_IDS)
async def test_a_payload_that_cannot_be_stored_is_refused_and_the_run_waits_on(
    store_url: str, make: Callable[[], Any], words: str
) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("order")
        with pytest.raises(bide.BadInput, match="the payload cannot be stored") as refused:
            await there.signal(run.id, "go", make())
        assert words in str(refused.value)
        assert await there.inbox(run.id) == []
        assert (await there.get(run.id)).status == "waiting"


@pytest.mark.parametrize("name", NO_NAMES)
async def test_a_signal_needs_a_name(store_url: str, name: Any) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("order")
        with pytest.raises(bide.BadInput, match=PRINTABLE):
            await there.signal(run.id, name)
        with pytest.raises(bide.BadInput, match=PRINTABLE):
            bide.Signal(name)
        assert await there.inbox(run.id) == []


@pytest.mark.parametrize("key", [key for key in NO_NAMES if key is not None])
async def test_a_dedup_key_that_no_store_could_carry_is_refused(store_url: str, key: Any) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("order")
        with pytest.raises(bide.BadInput, match="dedup key"):
            await there.signal(run.id, "go", dedup_key=key)
        assert await there.inbox(run.id) == []


@pytest.mark.parametrize("target", [*NO_NAMES, "wait_1_1", "int_1"])
async def test_a_target_that_is_neither_run_nor_key_is_refused(store_url: str, target: Any) -> None:
    async with world(app, store=store_url) as there:
        with pytest.raises(bide.BadInput, match="signal target"):
            await there.signal(target, "go")


# ---------------------------------------------------------------- what to look at and end


@pytest.mark.parametrize("run_id", ["run_unknown", "", "order:1", "run_\x00", "run_\ud800", "run_" + TOO_LONG, None, 5])
async def test_a_run_that_does_not_exist_is_not_found_by_any_call(store_url: str, run_id: Any) -> None:
    async with world(app, store=store_url) as there:
        client = there.client()
        for call in (client.get, client.result, client.cancel, client.retry, client.inbox, client.ledger):
            with pytest.raises(bide.RunNotFound, match=r"there is no run|no run has the correlation key"):
                await call(run_id)


async def test_a_run_of_another_workspace_is_not_found_by_any_call(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("order")
        client = there.client("other")
        for call in (client.get, client.result, client.cancel, client.retry, client.inbox, client.ledger):
            with pytest.raises(bide.RunNotFound, match="in this workspace"):
                await call(run.id)
        assert await client.runs() == []
        assert await client.waits() == []


@pytest.mark.parametrize("reason", ["half \ud800", "a\x00b", object()])
async def test_a_reason_that_cannot_be_stored_is_refused_and_cancels_nothing(store_url: str, reason: Any) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("order")
        with pytest.raises(bide.BadInput, match="the reason cannot be stored"):
            await there.cancel(run.id, reason=reason)
        assert (await there.get(run.id)).status == "waiting"


@pytest.mark.parametrize("limit", [0, -1, 10_001, "5", True, None])
async def test_a_page_has_a_size(store_url: str, limit: Any) -> None:
    async with world(app, store=store_url) as there:
        for call in (there.runs, there.waits):
            with pytest.raises(bide.BadInput, match="limit="):
                await call(limit=limit)


@pytest.mark.parametrize("cursor", ["x", "run_1/", "run_1/x", "/"])
async def test_a_cursor_that_was_not_given_out_is_refused(store_url: str, cursor: str) -> None:
    async with world(app, store=store_url) as there:
        with pytest.raises(bide.BadInput, match="is not one that bide gave out"):
            await there.waits(cursor=cursor)


@pytest.mark.parametrize("timeout", ["soon", -1, float("nan")])
async def test_a_timeout_for_a_result_must_say_a_duration(store_url: str, timeout: Any) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("order")
        with pytest.raises(bide.BadInput, match="timeout="):
            await there.client().result(run.id, timeout=timeout)


async def test_only_a_failed_or_held_run_can_be_retried(store_url: str) -> None:
    async with world(app, store=store_url) as there:
        run = await there.start("order")
        with pytest.raises(bide.NotHeld, match="is waiting; only held and failed runs can be retried"):
            await there.retry(run.id)
        await there.signal(run.id, "go")
        with pytest.raises(bide.RunIsFinal, match="is completed already"):
            await there.cancel(run.id)


# ---------------------------------------------------------------- what a step returns


@pytest.mark.parametrize(("make", "words"), UNSTORABLE, ids=UNSTORABLE_IDS)
@pytest.mark.parametrize("place", ["result", "state", "metadata"])
async def test_what_a_step_cannot_have_stored_fails_its_run_at_once(
    store_url: str, place: str, make: Callable[[], Any], words: str
) -> None:
    own = bide.App("own")
    calls = []

    @own.machine("bad")
    class Bad:
        async def begin(self, ctx: Ctx) -> Any:
            calls.append(ctx.attempt)
            value = make()
            return {
                "result": bide.Done(value),
                "state": bide.Next("begin", value),
                "metadata": bide.Await("go", "begin", None, metadata={"m": value}),
            }[place]

    what = {
        "result": "the result cannot be stored",
        "state": "the state after step 'begin' cannot be stored",
        "metadata": "the wait's description cannot be stored",
    }[place]
    async with world(own, store=store_url) as there:
        run = await there.start("bad", {"given": 1})
        assert run.status == "failed"
        assert run.info.error is not None
        assert (run.info.error.code, run.info.error.step) == ("BadInput", "begin")
        assert what in run.info.error.message
        assert words.rpartition("]: ")[2].rpartition("$.a: ")[2].rpartition("inner: ")[2] in run.info.error.message
        assert run.info.state == {"given": 1}
        await there.advance("1d")
    assert calls == [0]  # the same again next time: never retried


BAD_OUTCOMES: list[tuple[str, Callable[[], Any], str, str]] = [
    ("timeout text", lambda: bide.Await("go", "begin", timeout="soon"), "BadOutcome", "timeout='soon'"),
    ("timeout negative", lambda: bide.Await("go", "begin", timeout=-1), "BadOutcome", "it is negative"),
    ("timeout nan", lambda: bide.Await("go", "begin", timeout=float("nan")), "BadOutcome", "not a finite number"),
    (
        "timeout naive",
        lambda: bide.Await("go", "begin", timeout=datetime(2030, 1, 1)),  # noqa: DTZ001  # that is the mistake
        "BadOutcome",
        "has no time zone",
    ),
    ("join timeout", lambda: bide.Spawn([], "begin", timeout="soon"), "BadOutcome", "timeout='soon'"),
    ("delay", lambda: bide.Retry(delay="-5s"), "BadOutcome", "delay='-5s'"),
    ("delay type", lambda: bide.Retry(delay=None), "BadOutcome", "delay=None"),  # type: ignore[arg-type]
    ("no names", lambda: bide.Await([], "begin"), "BadOutcome", "awaits no signal; name at least one"),
    ("empty name", lambda: bide.Await("", "begin"), "BadInput", PRINTABLE),
    ("long name", lambda: bide.Await(["go", TOO_LONG], "begin"), "BadInput", PRINTABLE),
    ("name type", lambda: bide.Await(5, "begin"), "BadInput", PRINTABLE),
    ("stop surrogate", lambda: bide.Stop("half \ud800"), "BadInput", "the reason cannot be stored"),
    ("stop nul", lambda: bide.Stop("a\x00b"), "BadInput", "the reason cannot be stored"),
]


@pytest.mark.parametrize(
    ("make", "code", "words"), [case[1:] for case in BAD_OUTCOMES], ids=[case[0] for case in BAD_OUTCOMES]
)
async def test_an_outcome_that_cannot_be_followed_fails_its_run_at_once(
    store_url: str, make: Callable[[], Any], code: str, words: str
) -> None:
    own = bide.App("own")

    @own.machine("bad")
    class Bad:
        def begin(self, ctx: Ctx) -> Any:
            return make()

    async with world(own, store=store_url) as there:
        run = await there.start("bad")
        assert run.status == "failed"
        assert run.info.error is not None
        assert (run.info.error.code, run.info.error.step) == (code, "begin")
        assert words in run.info.error.message


async def test_a_value_that_cannot_be_shown_is_still_a_bad_outcome(store_url: str) -> None:
    class Unprintable:
        def __repr__(self) -> str:
            raise RuntimeError("not even this")

    own = bide.App("own")

    @own.machine("bad")
    class Bad:
        def begin(self, ctx: Ctx) -> Any:
            return Unprintable()

    async with world(own, store=store_url) as there:
        run = await there.start("bad")
        assert run.status == "failed"
        assert run.info.error is not None
        assert run.info.error.code == "BadOutcome"


# ---------------------------------------------------------------- what to register


class Plain:
    def begin(self, ctx: Ctx) -> bide.Done:
        return bide.Done()


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_definition_needs_a_name(name: Any) -> None:
    with pytest.raises(bide.BadDefinition, match=PRINTABLE):
        bide.App().machine(name)(Plain)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"version": ""}, "version '' cannot be used"),
        ({"version": 2}, "version 2 cannot be used"),
        ({"queue": ""}, "queue '' cannot be used"),
        ({"priority": "high"}, "priority='high'"),
        ({"priority": 2**40}, "from -32768 to 32767"),
        ({"retries": -1}, "there must be at least one try"),
        ({"retries": "many"}, "cannot be registered"),
        ({"cancel_grace": "soon"}, "'soon' cannot be used as a duration"),
    ],
)
def test_options_of_a_definition_are_checked_when_it_is_registered(options: dict[str, Any], words: str) -> None:
    with pytest.raises(bide.BadDefinition) as refused:
        bide.App().machine("order", **options)(Plain)
    assert words in str(refused.value)
    assert "order" in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"attempts": 0}, "at least one try"),
        ({"factor": 0.5}, "must not shrink"),
        ({"first": "soon"}, "'soon' cannot be used as a duration"),
        ({"most": -1}, "it is negative"),
    ],
)
def test_a_retry_policy_that_cannot_work_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bide.RetryPolicy(**options)


def test_a_machine_needs_steps_and_one_start() -> None:
    class Empty:
        def helps(self, other: int) -> int:
            return other

    class Two:
        def one(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

        def two(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    class Both:
        @bide.start
        def one(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

        @bide.start
        def two(self, ctx: Ctx) -> bide.Done:
            return bide.Done()

    for cls, words in [
        (Empty, "has no step: write methods that take ctx"),
        (Two, "marks none of its steps; mark exactly one step with @bide.start"),
        (Both, "marks one, two; mark exactly one"),
    ]:
        with pytest.raises(bide.BadDefinition, match=words):
            bide.App().machine("bad")(cls)


def test_a_machine_is_a_class() -> None:
    for decorator in (app.machine, app.workflow):
        with pytest.raises(bide.BadDefinition, match=r'write @app\.\w+\("name"\)'):

            @decorator  # type: ignore[arg-type]  # the mistake that is to be told
            class Named: ...

    with pytest.raises(bide.BadDefinition, match="decorates a class"):
        bide.App().machine("bad")(lambda ctx: None)  # type: ignore[type-var]  # that is the mistake


def test_a_name_and_version_can_be_registered_once() -> None:
    own = bide.App()
    own.machine("order")(Plain)
    with pytest.raises(bide.BadDefinition, match=r"'order' version '1' is registered already; .* name or version="):
        own.machine("order")(type("Other", (Plain,), {}))
    own.machine("order", version="2")(type("Other", (Plain,), {}))


# ---------------------------------------------------------------- where to keep it


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "is not a store URL that bide knows; use one of memory://, sqlite://, postgresql://"),
        ("bide.db", "is not a store URL that bide knows"),
        ("mysql://host/db", "is not a store URL that bide knows"),
        ("sqlite:bide.db", "is not a store URL that bide knows"),
        ("sqlite://bide.db", "names no file; write sqlite:///bide.db"),
        ("sqlite:///", "names no file"),
        ("postgresql:///db", "names no host; write postgresql://user@host:5432/database"),
        ("postgresql://[::1/db", "cannot be read as a URL"),
    ],
)
async def test_a_store_url_that_cannot_be_used_is_refused_with_the_form_that_can(url: str, words: str) -> None:
    with pytest.raises(bide.BadConfiguration) as refused:
        open_store(url, Settings())
    assert words in str(refused.value)


async def test_the_store_is_looked_at_when_it_is_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BIDE_STORE", raising=False)
    own = bide.App("own", store="nowhere://at/all")
    own.machine("order")(Plain)
    with pytest.raises(bide.BadConfiguration, match="nowhere://at/all"):
        await own.client().start("order")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://ann:s3cret@host/db",
        "postgres:/ann:s3cret@host/db",
        "postgresql://ann:s3cret@[::1/db",
        "postgresql://ann:s3cret@:5432/db",
        "postgresql://ann:s3cret@host:port/db",
        "mysql://host/db?user=ann&password=s3cret",
        "mysql://ann:s3cret@s3cret@host/db",
    ],
)
async def test_a_refused_store_url_does_not_show_its_password(url: str) -> None:
    with pytest.raises(bide.BadConfiguration) as refused:
        open_store(url, Settings())
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"max_payload_bytes": 0},
            "max_payload_bytes is 0 (from argument), which cannot be used: it must be at",
        ),
        ({"concurrency": "many"}, "concurrency is 'many'"),
        ({"lease": "soon"}, "lease is 'soon'"),
        ({"hints": "perhaps"}, "hints is 'perhaps'"),
        ({"max_payload": 10}, "there is no setting 'max_payload'; there are: store, max_payload_bytes"),
    ],
)
async def test_a_setting_that_cannot_be_used_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(bide.BadConfiguration) as refused:
        bide.App("own", **settings).settings()
    assert words in str(refused.value)
