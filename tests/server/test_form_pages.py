"""The HTML of forms, whatever their schemas and those who fill them in write into it (W5, T20)."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

import bide
from bide.testing import world
from bide.testing.world import World

SENT: dict[str, str] = {}
app = bide.App("asking", store="memory://")


@app.workflow("ask")
async def ask(step: bide.Step, asked: Any) -> Any:
    callback = await step.callback(
        "form", timeout="1d", returns=asked["schema"], title=asked["title"], description=asked["title"]
    )
    await step.run("tell", SENT.__setitem__, asked["title"], urlsplit(callback.url).path)
    return await callback


async def opened(w: World, schema: dict[str, Any], title: str = "Please decide") -> tuple[httpx.AsyncClient, str]:
    """Somebody without a key, and the link of a form that was just asked for."""
    await w.start("ask", {"schema": schema, "title": title})
    http = w.http()
    del http.headers["Authorization"]
    return http, SENT[title]


class Seen(HTMLParser):
    """What a page is made of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.attributes if each == name]

    def shows(self, text: str) -> int:
        """How often a text is there, as one, for people to read or in a field."""
        return sum(text in each for each in (*self.texts, *self.values("value")))


OUR_TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "p", "div", "span", "form", "fieldset", "legend",
    "label", "input", "textarea", "select", "option", "button",
}  # fmt: skip
OUR_ATTRIBUTES = {
    "aria-describedby", "aria-invalid", "accept-charset", "autocomplete", "charset", "checked", "class", "content",
    "for", "id", "lang", "maxlength", "method", "minlength", "name", "required", "role", "selected", "step", "type",
    "value",
}  # fmt: skip

INJECTED = [
    "<script>alert(1)</script>",
    '"><script>alert(1)</script>',
    "</textarea><script>alert(1)</script>",
    "</title></style></select></option><svg onload=alert(1)>",
    '" onfocus="alert(1)" autofocus="',
    "' onmouseover='alert(1)",
    "x onerror=alert(1) src=x",
    '<a href="javascript:alert(1)">click</a>',
    "javascript:alert(1)",
    "<!--<img src=x onerror=alert(1)>-->",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "{{ 7 * 7 }}{% raw %}",
]


def injected(text: str) -> dict[str, Any]:
    """A schema with that text wherever a text may be."""
    said = {"title": text, "description": text}
    inner = {**said, "type": "object", "properties": {text: {"type": "string", "default": text}, "in": said}}
    return {
        "type": "object",
        "required": ["choice"],
        "properties": {
            text: {**said, "type": "string", "default": text},
            "long": {**said, "type": "string", "maxLength": 2000, "default": text},
            "lines": {**said, "type": "array", "items": {"type": "string"}, "default": [text]},
            "any": {**said, "default": {text: text}},
            "choice": {**said, "enum": [text, "other"]},
            "many": {**said, "enum": [text, *range(6)]},
            "boxes": {**said, "type": "array", "items": {"enum": [text, "other"]}},
            "sure": {**said, "type": "boolean"},
            "amount": {**said, "type": "integer"},
            "code": {**said, "type": "string", "pattern": "^[0-9]$", "examples": [text]},
            "group": inner,
        },
    }


@pytest.mark.parametrize("text", INJECTED)
async def test_T20_what_anybody_writes_is_shown_as_text(text: str) -> None:
    """T20: title, description, labels, names, options, defaults, examples; and what was filled in, after a 422."""
    async with world(app) as w:
        http, path = await opened(w, injected(text), title=text)
        page = await http.get(path)
        shown = Seen(page.text)
        filled = {name: text for name in shown.values("name") if name.startswith("data.")}
        again = await http.post(path, data={**filled, "form": _nonce(page.text)})
        wrong = Seen(again.text)

        assert (page.status_code, again.status_code) == (200, 422)
        for seen in (shown, wrong):
            assert seen.tags <= OUR_TAGS
            assert {name for name, _ in seen.attributes} <= OUR_ATTRIBUTES
            assert seen.shows(text) >= 30
        assert wrong.shows(f"Please write it like {text}.") == 1
        assert "script" not in again.headers["content-security-policy"]

        done = await http.post(path, data={"data.choice": _json(text), "data.code": "1", "form": _nonce(page.text)})
        gone = await http.get(path)
        assert (done.status_code, gone.status_code) == (200, 410)
        for last in (done, gone):
            assert Seen(last.text).tags <= OUR_TAGS
            assert Seen(last.text).shows(text) == 2  # as title and heading


ODD_NAMES: dict[str, Any] = {
    "type": "object",
    "required": ["full name", "a.b"],
    "properties": {
        "full name": {"type": "integer", "description": "As in the passport"},
        "a": {
            "type": "object",
            "description": "A group",
            "properties": {"b": {"type": "string", "description": "In a group"}, "help": {"type": "string"}},
        },
        "a.b": {"type": "string", "description": "In no group"},
        "a-help": {"type": "string", "description": "Named as an id could be"},
        "a:help": {"description": "Named as an id is"},
        "tab\tand\nline": {"type": "boolean", "description": "Of two lines"},
    },
}


async def test_W5_every_field_is_told_apart_and_described_whatever_it_is_called() -> None:
    """W5: `aria-describedby` is a list of ids: a space in one would make it two, of which neither is there."""
    async with world(app) as w:
        http, path = await opened(w, ODD_NAMES)
        page = await http.get(path)
        wrong = await http.post(path, data={"form": _nonce(page.text), "data.full%20name": "Ann"})
        for response, described in ((page, 8), (wrong, 10)):
            seen = Seen(response.text)
            ids = Counter(seen.values("id"))
            referred = [id for value in (*seen.values("aria-describedby"), *seen.values("for")) for id in value.split()]
            assert set(ids.values()) == {1}
            assert set(referred) <= set(ids)
            assert len([id for value in seen.values("aria-describedby") for id in value.split()]) == described
            assert all(len(value.split()) == 1 for value in seen.values("for"))
        assert wrong.status_code == 422
        assert 'aria-describedby="data.full%20name:help data.full%20name:error"' in wrong.text

        names = dict.fromkeys(name for name in Seen(page.text).values("name") if name.startswith("data."))
        answers = dict(zip(names, ("7", "in", "h", "out", "-", ":", "true"), strict=True))
        assert (await http.post(path, data={"form": _nonce(page.text), **answers})).status_code == 200
        [run] = await w.runs()
        assert await w.result(run.id) == {
            "full name": 7,
            "a": {"b": "in", "help": "h"},
            "a.b": "out",
            "a-help": "-",
            "a:help": ":",
            "tab\tand\nline": True,
        }


class Expense(msgspec.Struct):
    who: str
    kind: Literal["travel", "food"] = "food"
    size: Literal["xs", "s", "m", "l", "xl", "xxl"] = "m"
    ok: bool = True
    no: bool = False
    boxes: list[Literal["a", "b"]] = msgspec.field(default_factory=lambda: ["b"])


async def test_W5_a_choice_with_a_default_is_chosen_beforehand_and_may_be_left_out(store_url: str) -> None:
    """W5: the schema does not ask for it, so the form does not either; and the default counts, as for a text."""
    spends, sent = bide.App("spends", store="memory://"), list[str]()

    @spends.workflow("spend")
    async def spend(step: bide.Step, input: Any) -> Any:
        callback = await step.callback("form", timeout="1d", returns=Expense)
        await step.run("tell", sent.append, urlsplit(callback.url).path)
        return await callback

    async with world(spends, store_url) as w:
        http, results = w.http(), []
        for chosen in ({}, {"data.kind": '"travel"', "data.size": '"xl"', "data.ok": "false", "data.boxes": '"a"'}):
            run = await w.start("spend")
            page = (await http.get(sent[-1])).text
            answered = await http.post(sent[-1], data={"form": _nonce(page), "data.who": "ann", **chosen})
            assert answered.status_code == 200, answered.text
            results.append(await w.result(run.id))

        chosen_before = re.findall(r'name="data.(\w+)" value="([^"]*)" checked', page)
        assert chosen_before == [("kind", "&#34;food&#34;"), ("ok", "true"), ("no", "false")]
        assert '<option value="&#34;m&#34;" selected>m</option>' in page
        assert page.count(" required") == 1
        assert results == [
            {"who": "ann", "kind": "food", "size": "m", "ok": True, "no": False, "boxes": ["b"]},
            {"who": "ann", "kind": "travel", "size": "xl", "ok": False, "no": False, "boxes": ["a"]},
        ]


def many(count: int, required: int) -> dict[str, Any]:
    """A schema of texts, the last of which are required."""
    names = [f"f{n}" for n in range(count)]
    return {
        "type": "object",
        "required": names[count - required :],
        "properties": {name: {"type": "string"} for name in names},
    }


async def test_W5_a_form_without_room_for_all_its_fields_says_so_and_how_to_give_the_rest() -> None:
    """W5: what must be filled in is there, so the form can be sent."""
    async with world(app) as w:
        http, path = await opened(w, many(120, 2))
        page = await http.get(path)
        assert "20 more fields" in page.text
        assert "Content-Type: application/json" in page.text
        filled = {"data.f118": "a", "data.f119": "b", "form": _nonce(page.text)}
        assert (await http.post(path, data=filled)).status_code == 200
        [run] = await w.runs()
        assert await w.result(run.id) == {"f118": "a", "f119": "b"}


async def test_W5_where_a_form_has_no_room_for_what_must_be_given_the_page_says_how_to_answer() -> None:
    """W5: there is no form that nobody could send, and JSON goes to the same address."""
    async with world(app) as w:
        http, path = await opened(w, many(120, 101))
        page = await http.get(path)
        assert page.status_code == 200
        assert "form" not in Seen(page.text).tags
        assert "Content-Type: application/json" in page.text
        answer = {f"f{n}": "x" for n in range(19, 120)}
        assert (await http.post(path, json=answer)).status_code == 200
        [run] = await w.runs()
        assert await w.result(run.id) == answer


async def test_W5_an_empty_group_and_an_empty_list_are_sent_by_a_form_that_is_left_empty() -> None:
    """W5: what must be there and may be empty needs nothing typed; no browser stands in the way."""
    text = {"type": "string"}
    schema = {
        "type": "object",
        "required": ["ok", "inner", "tags"],
        "properties": {
            "ok": {"type": "boolean"},
            "inner": {"type": "object", "properties": {"note": text}},
            "tags": {"type": "array", "items": text},
        },
    }
    async with world(app) as w:
        http, path = await opened(w, schema)
        page = (await http.get(path)).text
        assert page.count(" required") == 2, "the two of yes and no"
        filled = {"data.ok": "true", "data.inner.note": "", "data.tags": "", "form": _nonce(page)}
        assert (await http.post(path, data=filled)).status_code == 200
        [run] = await w.runs()
        assert await w.result(run.id) == {"ok": True, "inner": {}, "tags": []}


def _nonce(page: str) -> str:
    [nonce] = re.findall(r'name="form" value="(\w+)"', page)
    return str(nonce)


def _json(text: str) -> str:
    return msgspec.json.encode(text).decode()
