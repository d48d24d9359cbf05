"""`dev` and `serve`: real processes, real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import PATIENCE_SECONDS, Bide

# The limit that httpx has by itself is shorter than a busy machine may take.
get = functools.partial(httpx.get, timeout=PATIENCE_SECONDS)
post = functools.partial(httpx.post, timeout=PATIENCE_SECONDS)


def save(path: Path, text: str) -> None:
    """All at once: who watches the file never sees half of it."""
    draft = path.with_name("draft")
    draft.write_text(text)
    os.replace(draft, path)


def ready(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=PATIENCE_SECONDS)
    return json.loads(line)


def pasted(line: str) -> Any:
    """What a line with `curl` in it gives to whoever pastes it into a shell."""
    if shutil.which("curl"):
        said = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
        return json.loads(said.stdout)
    words = shlex.split(line)
    headers = dict(words[n + 1].split(": ", 1) for n, word in enumerate(words) if word == "-H")
    return post(words[-1], headers=headers, content=words[words.index("-d") + 1]).json()


def test_dev_prints_a_key_and_a_line_that_works(bide: Bide) -> None:
    """Issue: one command that brings it all up, and says so in four lines, whatever they are wide."""
    process = bide.process("dev", "shop.py", "--port", "0", COLUMNS="40")
    assert process.stdout is not None
    lines = [process.stdout.readline().rstrip("\n") for _ in range(4)]
    served = re.fullmatch(r"shop is served at (http://127\.0\.0\.1:\d+), on sqlite:///shop\.db", lines[0])
    assert served is not None, lines
    url = served[1]
    assert lines[1] == f"API: {url}/docs"
    [key] = re.findall(r"^key: (bide_ws_\S+)$", lines[2])
    [line] = re.findall(r"^try: (curl .+)$", lines[3])

    started = pasted(line)
    assert started["id"].startswith("run_"), started
    headers = {"Authorization": f"Bearer {key}"}
    runs = f"{url}/v1/runs"
    assert get(f"{runs}/{started['id']}", headers=headers).status_code == 200
    echo = post(runs, headers=headers, json={"definition": "echo", "input": 7}).json()
    result = get(f"{runs}/{echo['id']}/result?wait=60s", headers=headers)
    assert result.json()["result"] == 7  # there is a worker
    assert get(lines[1].removeprefix("API: ")).status_code == 200
    assert get(f"{url}/readyz").status_code == 200

    process.send_signal(signal.SIGTERM)
    assert bide.finished(process).code == 0


LINKED = """

@app.workflow("verify")
async def verify(step: bide.Step, user: str) -> bool:
    cb = await step.callback("kyc", timeout="7d", returns=bool)
    await step.run("begin", os.write, 1, f"link: {cb.url}\\n".encode())  # a line is not mixed with another
    return await cb
"""


def test_W4_links_of_dev_lead_to_the_port_that_was_free(bide: Bide) -> None:
    """Also those of a run that goes on at once, before anybody could be told of the port."""
    shop = Path(bide.folder / "shop.py")
    shop.write_text(shop.read_text() + LINKED)
    run_id = bide("start", "verify", '"ann"').out.strip()
    process = bide.process("dev", "shop.py", "--port", "0", "--json", "--no-reload")
    assert process.stdout is not None
    lines = [process.stdout.readline(), process.stdout.readline()]
    [link] = [line.split()[1] for line in lines if line.startswith("link: ")]
    [url] = [json.loads(line)["url"] for line in lines if line.startswith("{")]

    assert link.startswith(f"http://localhost:{url.rpartition(':')[2]}/resume/")
    assert get(link).status_code == 200
    end = time.monotonic() + PATIENCE_SECONDS
    while bide("show", run_id, "--json").json["status"] != "waiting":  # what comes before is kept, and wakes nobody
        assert time.monotonic() < end
    assert post(link, json=True).json()["outcome"] == "woke"
    process.send_signal(signal.SIGTERM)
    assert bide.finished(process).code == 0


def test_dev_listens_on_an_address_of_ipv6(bide: Bide) -> None:
    process = bide.process("dev", "shop.py", "--host", "::1", "--port", "0", "--json", "--no-reload")
    url = ready(process)["url"]

    assert url.startswith("http://[::1]:")
    assert get(f"{url}/healthz").status_code == 200
    process.send_signal(signal.SIGTERM)
    assert bide.finished(process).code == 0


@pytest.mark.parametrize("template", ["approval", "workflow"])
def test_the_line_that_dev_prints_starts_a_run_of_what_new_wrote(bide: Bide, template: str) -> None:
    """Two commands from nothing to a run: an input is made up where one is needed."""
    wrote = bide("new", "mine", "--template", template)
    assert "then: bide dev mine." in wrote.out
    file = "mine.py" if template == "workflow" else "mine.machine"
    process = bide.process("dev", file, "--port", "0", "--json", "--no-reload", BIDE_STORE="sqlite:///mine.db")
    words = shlex.split(ready(process)["curl"])
    headers = dict(words[n + 1].split(": ", 1) for n, word in enumerate(words) if word == "-H")

    started = post(words[-1], headers=headers, content=words[words.index("-d") + 1])

    assert started.status_code == 201, started.text
    process.send_signal(signal.SIGTERM)
    assert bide.finished(process).code == 0


def test_dev_starts_again_when_the_code_changes(bide: Bide) -> None:
    process = bide.process("dev", "shop.py", "--port", "0", "--json")
    first = ready(process)
    shop = Path(bide.folder / "shop.py")
    save(shop, shop.read_text().replace('"echo"', '"shout"'))

    second = ready(process)

    key = {"Authorization": f"Bearer {second['key']}"}
    assert (second["pid"], second["key"], second["url"]) == (first["pid"], first["key"], first["url"])
    names = [one["name"] for one in get(f"{second['url']}/v1/definitions", headers=key).json()["items"]]
    assert "shout" in names
    process.send_signal(signal.SIGTERM)
    assert bide.finished(process).code == 0


@pytest.mark.parametrize("lost", ["with the memory", "with the file", "by being revoked"])
def test_dev_prints_a_key_that_is_good_after_it_has_started_again(bide: Bide, lost: str) -> None:
    """§11: also where the store that knew the first one is gone, or knows better."""
    store = "memory://" if lost == "with the memory" else "sqlite:///dev.db"
    process = bide.process("dev", "shop.py", "--port", "0", "--json", BIDE_STORE=store)
    first = ready(process)
    assert get(f"{first['url']}/v1/runs", headers={"Authorization": f"Bearer {first['key']}"}).status_code == 200
    if lost == "by being revoked":
        [key] = bide("keys", "list", "--store", store, "--json").json["items"]
        assert bide("keys", "revoke", key["id"], "--store", store).code == 0
    if lost == "with the file":
        for file in bide.folder.glob("dev.db*"):
            file.unlink()
    save(bide.folder / "shop.py", f"{(bide.folder / 'shop.py').read_text()}\n# saved again\n")
    again = ready(process)

    assert again["key"] != first["key"]
    assert get(f"{again['url']}/v1/runs", headers={"Authorization": f"Bearer {again['key']}"}).status_code == 200
    assert again["key"] in again["curl"]
    process.send_signal(signal.SIGTERM)
    assert bide.finished(process).code == 0


@pytest.mark.parametrize("broken", ["def (", "import not_there_yet"])
def test_dev_goes_on_when_code_that_cannot_be_loaded_is_mended(bide: Bide, broken: str) -> None:
    """Whoever saves a file in the middle of a thought is not left without a server."""
    process = bide.process("dev", "shop.py", "--port", "0", "--json")
    first = ready(process)
    shop = Path(bide.folder / "shop.py")
    good = shop.read_text()
    save(shop, f"{good}\n{broken}\n")
    assert process.stderr is not None
    said = list(iter(process.stderr.readline, "waiting for the next change\n"))
    assert "shop.py changed: starting again\n" in said
    assert "could not be imported" in said[-1]
    if broken.startswith("import"):
        Path(bide.folder / "not_there_yet.py").write_text("")
    else:
        save(shop, good)

    second = ready(process)

    assert (second["pid"], second["key"], second["url"]) == (first["pid"], first["key"], first["url"])
    process.send_signal(signal.SIGTERM)
    assert bide.finished(process).code == 0


def test_dev_ends_where_code_cannot_be_loaded_at_the_first_start(bide: Bide) -> None:
    Path(bide.folder / "shop.py").write_text("def (")
    ended = bide.finished(bide.process("dev", "shop.py", "--port", "0"))
    assert (ended.code, "could not be imported" in ended.err) == (2, True)


@pytest.mark.parametrize("given", ["k1:short", "0123456789abcdef0123456789abcdef"])
@pytest.mark.parametrize("verb", ["dev", "serve", "worker", "doctor"])
def test_W4_secrets_that_cannot_be_used_are_noticed_at_the_start(bide: Bide, verb: str, given: str) -> None:
    """Not by the first run that makes a link, in a log that nobody reads."""
    where = ["--app", "shop.py"] if verb == "doctor" else ["shop.py"]
    ended = bide.finished(bide.process(verb, *where, BIDE_RESUME_SECRETS=given))
    assert ended.code == 1
    assert "setting resume_secrets cannot be used" in ended.out + ended.err
    assert "make one with: python -c" in ended.out.replace("\n", " ") + ended.err
    assert given.removeprefix("k1:") not in (ended.out + ended.err).replace("shorter", "")


def test_serve_runs_no_worker_and_answers_with_keys_of_the_store(bide: Bide) -> None:
    key = bide("keys", "create", "--json").json["key"]
    process = bide.process("serve", "shop.py", "--port", "0", "--json")
    url = ready(process)["url"]
    headers = {"Authorization": f"Bearer {key}"}

    echo = post(f"{url}/v1/runs", headers=headers, json={"definition": "echo"}).json()
    result = get(f"{url}/v1/runs/{echo['id']}/result", headers=headers)

    assert (result.status_code, result.json()["status"]) == (202, "ready")
    process.send_signal(signal.SIGTERM)
    assert bide.finished(process).code == 0


def test_a_port_that_is_taken_is_refused(bide: Bide) -> None:
    process = bide.process("serve", "shop.py", "--port", "0", "--json")
    port = ready(process)["url"].rpartition(":")[2]

    taken = bide.finished(bide.process("serve", "shop.py", "--port", port))

    assert (taken.code, "--port" in taken.err) == (1, True)


@pytest.mark.parametrize("verb", [["serve"], ["worker"], ["worker", "--processes", "2"]], ids=" ".join)
def test_W4_processes_on_a_shared_database_refuse_to_start_without_a_secret(bide: Bide, verb: list[str]) -> None:
    """W4: before the database is asked for anything; with one, it is the database that is missing here."""
    command = (*verb, "shop.py", "--store", "postgresql://nobody@127.0.0.1:1/x")

    without = bide.finished(bide.process(*command))

    assert (without.code, "BIDE_RESUME_SECRETS" in without.err) == (1, True)
    if "--processes" not in verb:  # children are started again until they find it
        given = bide.finished(bide.process(*command, BIDE_RESUME_SECRETS="s1:0123456789abcdef0123"))
        assert (given.code, "BIDE_RESUME_SECRETS" in given.err) == (1, False)


@pytest.mark.parametrize("verb", ["serve", "worker"])
@pytest.mark.parametrize(
    ("url", "more", "says"),
    [
        ("http://shop.example", {}, "BIDE_ALLOW_HTTP"),
        ("http://shop.example", {"BIDE_ALLOW_HTTP": "true"}, None),
        ("http://localhost:8000", {}, None),
        ("https://shop.example/flows", {}, None),
        ("shop.example", {}, "https://host"),
        ("ftp://shop.example", {"BIDE_ALLOW_HTTP": "true"}, "https://host"),
    ],
)
def test_links_that_could_be_read_on_their_way_are_refused_at_the_start(
    bide: Bide, monkeypatch: pytest.MonkeyPatch, verb: str, url: str, more: dict[str, str], says: str | None
) -> None:
    """T15: before the database is asked for anything; without objection, it is the database that is missing here."""
    for name, value in {"BIDE_RESUME_SECRETS": "s1:0123456789abcdef0123", "BIDE_PUBLIC_URL": url, **more}.items():
        monkeypatch.setenv(name, value)

    said = bide(verb, "shop.py", "--store", "postgresql://nobody@127.0.0.1:1/x")

    assert said.code == 1
    assert says in said.err if says else "public_url" not in said.err
    assert "Traceback" not in said.err


def test_serve_answers_to_its_public_name_alone(bide: Bide) -> None:
    """T14, T15: a real server behind a proxy that lets every Host through."""
    key = bide("keys", "create", "--json").json["key"]
    process = bide.process("serve", "shop.py", "--port", "0", "--json", BIDE_PUBLIC_URL="https://flows.shop.example")
    url = ready(process)["url"]
    headers = {"Authorization": f"Bearer {key}"}

    def status(host: str, path: str = "/v1/runs") -> int:
        return get(f"{url}{path}", headers={**headers, "Host": host}).status_code

    assert [status(host) for host in ("flows.shop.example", "evil.example")] == [200, 421]
    assert status("10.0.0.7:8000", "/readyz") == 200
    direct = get(f"{url}/v1/runs", headers=headers)
    assert (direct.status_code, direct.headers["strict-transport-security"]) == (200, "max-age=31536000")
    process.send_signal(signal.SIGTERM)
    assert bide.finished(process).code == 0


def test_slow_clients_do_not_hold_the_server(bide: Bide) -> None:
    """T42, T43: heads that trickle are turned away, and meanwhile others are answered."""
    process = bide.process("dev", "shop.py", "--port", "0", "--json", "--no-reload")
    said = ready(process)
    host, port = said["url"].removeprefix("http://").split(":")

    async def trickle(n: int) -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"a" * n)
        await writer.drain()
        answer = await reader.read(200)
        writer.close()
        return answer

    async def main() -> list[bytes]:
        slow = [asyncio.create_task(trickle(n)) for n in range(100)]
        await asyncio.sleep(0)
        headers = {"Authorization": f"Bearer {said['key']}"}
        async with httpx.AsyncClient(headers=headers, timeout=PATIENCE_SECONDS) as http:
            for _ in range(20):
                assert (await http.get(f"{said['url']}/v1/runs")).status_code == 200
        return await asyncio.gather(*slow)

    assert all(answer.startswith(b"HTTP/1.1 408") for answer in asyncio.run(main()))


def test_an_address_has_so_many_connections_and_others_are_answered_meanwhile(bide: Bide) -> None:
    """T42: who holds connections open keeps nobody else out, and gets in again after closing one."""
    process = bide.process("dev", "shop.py", "--port", "0", "--json", "--no-reload", BIDE_CONNECTIONS_PER_ADDRESS="20")
    host, port = ready(process)["url"].removeprefix("http://").split(":")
    ask = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

    async def asked(address: str) -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port), local_addr=(address, 0))
        writer.write(ask)
        answer = b""
        with contextlib.suppress(ConnectionError):  # it may be closed before all was sent
            answer = await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
        writer.close()
        return answer

    async def main() -> None:
        held = [await asyncio.open_connection(host, int(port), local_addr=("127.0.0.1", 0)) for _ in range(20)]
        refused = await asked("127.0.0.1")
        assert refused.startswith(b"HTTP/1.1 429 ") or not refused
        assert (await asked("127.0.0.2")).startswith(b"HTTP/1.1 200 ")
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        while not (await asked("127.0.0.1")).startswith(b"HTTP/1.1 200 "):
            pass

    asyncio.run(main())
