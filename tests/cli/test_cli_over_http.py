"""Verbs with `--url` and `--key`: the same program, against a real server, on every store (contract §11)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tests.cli.conftest import PATIENCE_SECONDS, SHOP, Answer, Bide
from tests.support.postgres import fresh_schema


@dataclass(frozen=True)
class Served:
    """A `bide dev` that runs, and how to reach its store without it; None where nobody else can."""

    url: str
    key: str
    store: str | None


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "shop.py").write_text(SHOP)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BIDE_")}
    program = [sys.executable, "-m", "bide"]
    with ExitStack() as stack:
        store = {"memory": "memory://", "sqlite": f"sqlite:///{folder}/shop.db"}.get(request.param)
        if store is None:
            store = stack.enter_context(fresh_schema(request.getfixturevalue("postgres_server").url()))
            subprocess.run([*program, "migrate", "--store", store], check=True, env=environment, capture_output=True)
        serving = stack.enter_context(
            subprocess.Popen(
                [*program, "dev", "shop.py", "--store", store, "--port", "0", "--json", "--no-reload"],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(serving.kill)
        assert serving.stdout is not None
        said = json.loads(serving.stdout.readline())
        yield Served(said["url"], said["key"], None if request.param == "memory" else store)


class Remote:
    """The program, with the server in its environment."""

    def __init__(self, bide: Bide, served: Served, patch: pytest.MonkeyPatch) -> None:
        self._bide = bide
        self.store = served.store
        patch.setenv("BIDE_URL", served.url)
        patch.setenv("BIDE_KEY", served.key)

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Answer:
        return self._bide(*arguments, stdin=stdin)

    def done(self, *arguments: str) -> Answer:
        answer = self(*arguments)
        assert answer.code == 0, answer.err
        return answer

    def until(self, says: Callable[[str], bool], *arguments: str) -> Answer:
        """Ask until the answer is the one that the worker's doings lead to."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            answer = self.done(*arguments)
            if says(answer.out):
                return answer
        raise AssertionError(answer.out)

    def parked(self, *arguments: str) -> str:
        """A run that waits."""
        run_id = self.done("start", *arguments).out.strip()
        self.until(lambda out: '"waiting"' in out, "runs", "--status", "waiting", "--json")
        self.until(lambda out: '"status":"waiting"' in out, "show", run_id, "--json")
        return run_id


@pytest.fixture
def remote(bide: Bide, served: Served, monkeypatch: pytest.MonkeyPatch) -> Remote:
    return Remote(bide, served, monkeypatch)


def test_a_run_is_started_explained_signalled_and_ended(remote: Remote, served: Served) -> None:
    """§11: `start`, `explain`, `signal`, `show`, `ledger show`, by the correlation key as well as by the id."""
    run_id = remote.parked("order", '{"item": 7}', "--correlation-key", "order:1", "--tag", "a=b")

    said = remote.done("explain", "order:1", "--url", served.url).out
    assert "is waiting for the signal 'paid'" in said
    assert f"bide signal order:1 paid '{{}}' --url {served.url}" in said
    assert served.key not in said
    assert (
        remote.done("signal", "order:1", "paid", '{"amount": 1}').out
        == f"woke: {run_id} was waiting for it and goes on\n"
    )
    assert remote("start", "echo", "-", "--wait", "60s", stdin=b"[7]").out == "[7]\n"
    ended = remote.until(lambda out: "completed" in out, "show", run_id)
    assert '{"paid":{"amount":1}}' in ended.out
    entries = remote.done("ledger", "show", run_id, "--json").json["items"]
    assert [entries[0]["name"], entries[-1]["name"]] == ["run_started", "run_completed"]
    gone = remote("signal", run_id, "paid")
    assert (gone.code, "error:" in gone.err) == (1, True)


def test_tasks_waits_and_signal_ids_are_answered(remote: Remote) -> None:
    """`answer`, `complete`, `waits`, with who answers."""
    approve = remote.parked("approve")
    [wait] = remote.done("waits", "--run", approve, "--json").json["items"]
    task = wait["id"].replace("wait_", "int_") + "_0"

    foreign = remote("answer", task, "true", "--by", "bob", "--json")
    assert (foreign.code, foreign.error["code"]) == (1, "forbidden")
    invalid = remote("answer", wait["id"], '"yes"', "--by", "ann", "--json")
    assert (invalid.code, invalid.error["code"]) == (1, "bad_input")
    assert remote.done("answer", wait["id"], "true", "--by", "ann").out.startswith("woke: ")
    remote.parked("approval")
    assert remote.done("complete", "approve-1", "true").out.startswith("woke: ")
    late = remote("complete", "approve-1", "false", "--json")
    assert (late.code, late.error["code"]) == (1, "already_answered")


def test_W10_waits_are_changed_one_by_one_and_by_filter(remote: Remote) -> None:
    """W10."""
    first, second = remote.parked("forever"), remote.parked("forever")
    where = ("--run", first, "--of", "ann")

    dry = remote.done("waits", "assign", *where, "--to", "bob", "--reason", "holidays", "--dry-run", "--json").json
    moved = remote.done("waits", "move", *where, "--deadline", "2h", "--reason", "later").out
    [wait] = remote.done("waits", "--run", first, "--json").json["items"]
    assert (dry["ids"], moved) == ([wait["id"]], f"{wait['id']} moved\n")
    assert (wait["details"]["assignee"], wait["deadline"] is not None) == ("ann", True)
    [other] = remote.done("waits", "--run", second, "--json").json["items"]
    assert remote.done("waits", "cancel", other["id"], "--reason", "enough").out == f"{other['id']} cancelled\n"
    again = remote("waits", "fail", other["id"], "--reason", "enough", "--json")
    assert (again.code, again.error["code"]) == (1, "no_target")
    remote.done("cancel", first, "--reason", "the end")


def test_runs_are_cancelled_and_retried_and_events_emitted(remote: Remote) -> None:
    run_id = remote.parked("order", "--correlation-key", "order:2")
    assert remote.done("cancel", "order:2", "--reason", "why not").out == f"{run_id} is cancelled\n"
    assert remote("cancel", "order:2").code == 1

    broken = remote("start", "broken", "--wait", "60s", "--json")
    assert (broken.code, broken.error["code"]) == (1, "run_failed")
    [failed, *_] = remote.done("runs", "--definition", "broken", "--json").json["items"]
    assert "which retries" in remote.done("retry", failed["id"]).out
    assert remote("retry", run_id).code == 1
    assert remote.done("emit", "order.shipped", '{"order": 1}', "--id", "evt-1").out.startswith("queued: 0 started")
    assert remote("signal", "nobody", "paid").code == 1
    assert "nobody" in remote.done("unused").out


def test_dead_letters_are_listed_retried_and_discarded(remote: Remote) -> None:
    """U7: `mail` of the shop cannot tell anybody of the task."""
    run_id = remote.parked("approve")
    listed = remote.until(lambda out: run_id in out, "dead-letters", "--json").json["items"]
    [letter] = [one for one in listed if one["run_id"] == run_id]

    assert remote.done("dead-letters", "retry", letter["id"]).out == f"{letter['id']} is tried again\n"
    [again] = [
        one
        for one in remote.until(lambda out: run_id in out, "dead-letters", "--json").json["items"]
        if one["run_id"] == run_id
    ]
    assert remote.done("dead-letters", "discard", again["id"]).out == f"{again['id']} is discarded\n"
    assert remote("dead-letters", "discard", again["id"]).code == 1
    remote.done("cancel", run_id)


def test_the_progress_of_items_is_told_the_same_in_both_ways(remote: Remote) -> None:
    """§8: expected, dispatched, answered, done and rejected, with `--url` and with `--store`."""
    run_id = remote.parked("reviews", '["a", "b", "c"]')
    task = f"{run_id.replace('run_', 'int_')}_1_"
    remote.until(lambda out: "3 dispatched" in out, "show", run_id)
    remote.done("answer", f"{task}0", "true")
    remote.done("waits", "fail", f"{task}2", "--reason", "no time")
    said = remote.until(lambda out: "1 done, 1 rejected" in out, "show", run_id).out
    assert "items  66 %: 3 expected, 3 dispatched, 2 answered, 1 done, 1 rejected\n" in said
    told = remote.done("show", run_id, "--json").json["progress"]
    assert (told["expected"], told["dispatched"], told["answered"]) == (3, 3, 2)
    assert (told["done"], told["rejected"], told["is_filled"]) == (1, 1, True)
    if remote.store is not None:
        assert remote.done("show", run_id, "--store", remote.store, "--json").json["progress"] == told
        assert "items  66 %" in remote.done("show", run_id, "--store", remote.store).out
    remote.done("cancel", run_id)


def test_both_ways_print_the_same(remote: Remote) -> None:
    """With `--store` and with `--url` a verb that looks has the same answer."""
    if remote.store is None:
        pytest.skip("a memory:// store is seen by its own process alone")
    run_id = remote.parked("order", '{"item": 7}', "--correlation-key", "order:3")
    remote.done("signal", run_id, "hello", '{"a": 1}')
    for verb in (
        ("show", run_id),
        ("runs", "--status", "waiting"),
        ("waits", "--run", "order:3"),
        ("ledger", "show", run_id),
        ("unused",),
    ):
        over_http = remote.done(*verb, "--json").json
        on_the_store = remote.done(*verb, "--store", remote.store, "--json").json
        assert over_http == on_the_store, verb
        columns = [line.split()[0] for line in remote.done(*verb).out.splitlines() if line.strip()]
        same = [
            line.split()[0] for line in remote.done(*verb, "--store", remote.store).out.splitlines() if line.strip()
        ]
        assert columns == same, verb


def test_what_a_server_refuses_is_exit_code_1(remote: Remote, served: Served) -> None:
    unknown = remote("show", "run_01b8dac5b40000000000000000000000", "--json")
    assert (unknown.code, unknown.error["code"]) == (1, "run_not_found")
    assert remote("explain", "no:such:key").code == 1
    stranger = remote("runs", "--key", "bide_ws_" + "0" * 43, "--json")
    assert (stranger.code, stranger.error["code"]) == (1, "unauthorized")
    assert "--key" in stranger.error["message"]
    assert remote("start", "ordr", "--json").error["code"] == "definition_not_found"


@pytest.mark.parametrize("verb", [["audit"], ["migrate"], ["doctor"], ["keys", "list"], ["workspaces", "list"],
                                  ["ledger", "verify", "run_1"], ["ledger", "export", "run_1"], ["policy", "test"],
                                  ["worker"], ["serve"], ["dev"]], ids=" ".join)  # fmt: skip
def test_a_verb_that_needs_the_store_says_so(bide: Bide, verb: list[str]) -> None:
    """§11: exit code 2."""
    answer = bide(*verb, "--url", "http://127.0.0.1:9")

    assert (answer.code, answer.out) == (2, "")
    assert "works on the store itself" in answer.err


def test_what_cannot_be_meant_is_exit_code_2(bide: Bide, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://127.0.0.1:9"
    monkeypatch.delenv("BIDE_APP")
    for wrong, hint in (
        (["runs", "--url", url], "BIDE_KEY"),
        (["runs", "--url", url, "--key", "k", "--store", "sqlite:///x.db"], "not both"),
        (["runs", "--url", url, "--key", "k", "--workspace", "eu"], "the key says which workspace"),
        (["runs", "--key", "k"], "--url is missing"),
        (["start", "order", "--key", "order:1"], "--correlation-key"),
    ):
        answer = bide(*wrong)
        assert (answer.code, hint in answer.err) == (2, True), answer.err
    monkeypatch.setenv("BIDE_URL", url)
    assert bide("audit").code == 2
    assert (bide.folder / "bide.db").exists() is False


@pytest.mark.parametrize("key", ["é", "a\nb", "a ", "\ud800"], ids=ascii)
@pytest.mark.parametrize("is_typed", [True, False])
def test_a_key_that_cannot_be_sent_is_exit_code_2(
    bide: Bide, key: str, is_typed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """§11: what was typed cannot be meant; it is a secret, so it is not repeated."""
    if not is_typed:
        monkeypatch.setenv("BIDE_KEY", key.replace("\ud800", "\udcff"))
    answer = bide("runs", "--url", "http://127.0.0.1:9", *(["--key", key] if is_typed else []), "--json")

    assert (answer.code, answer.out, answer.error["code"]) == (2, "", "bad_configuration")
    assert answer.error["message"].startswith("--key (BIDE_KEY) ")
    assert "é" not in answer.error["message"]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:abc", "http://127.0.0.1:99999", "http://a\nb", "127.0.0.1:9", "http://"]
)
@pytest.mark.parametrize("is_typed", [True, False])
def test_a_url_that_leads_nowhere_is_exit_code_2(
    bide: Bide, url: str, is_typed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_typed:
        monkeypatch.delenv("BIDE_APP")
        monkeypatch.setenv("BIDE_URL", url)
    answer = bide("runs", *(["--url", url] if is_typed else []), "--key", "bide_ws_x", "--json")

    assert (answer.code, answer.out, answer.error["code"]) == (2, "", "bad_configuration")
    assert answer.error["message"].startswith(f"--url (BIDE_URL) {url!r} ")


class Elsewhere(BaseHTTPRequestHandler):
    """Somebody else's application, which has bide below a path of its own."""

    def do_GET(self) -> None:
        body = b'{"detail":"Not Found"}'
        self.send_response(404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody reads it."""


def test_a_url_without_the_path_of_the_api_says_so(bide: Bide) -> None:
    """H4: a mounted API answers below its path alone."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        Thread(target=server.serve_forever).start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            answer = bide("runs", "--url", url, "--key", "bide_ws_x")
        finally:
            server.shutdown()
    assert answer.code == 1
    assert f"no bide API answers at {url}" in answer.err
    assert "mounted" in answer.err


def test_a_server_that_is_not_there_is_exit_code_1(bide: Bide) -> None:
    answer = bide("runs", "--url", "http://127.0.0.1:9", "--key", "bide_ws_x", "--json")

    assert (answer.code, answer.error["code"]) == (1, "unavailable")
    assert "http://127.0.0.1:9" in answer.error["message"]
    assert "ConnectError" not in answer.error["message"]
