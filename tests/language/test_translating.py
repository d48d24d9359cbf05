"""Seven languages: every keyword has a form, and a translation loses nothing (L5)."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from bide.authoring.language import words
from bide.authoring.language.parser import parse
from bide.authoring.language.source import Source, Span
from bide.authoring.language.translating import translate
from bide.errors import BadInput, LanguageError
from tests.support.machine_files import MADE, machine_files

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.machine"))
OTHERS = words.LANGUAGES[1:]


def test_the_words_for_waiting_are_those_of_the_contract() -> None:
    """L5."""
    assert words.TABLE["wait for"] == {
        "en": "wait for",
        "es": "espera",
        "fr": "attend",
        "de": "wartet auf",
        "ja": "待つ",
        "zh": "等待",
        "ko": "기다리다",
    }


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_no_two_keywords_that_can_stand_at_one_place_have_the_same_form(language: str) -> None:
    """L5."""
    places = (
        (*words.FILE, *words.SECTIONS),
        (*words.STEPS, *words.PARTS, "flow"),
        words.BRANCHES,
        (*words.MODIFIERS, *words.TYPES),
        (*words.HTTP_KEYS, "assuming", "on failure"),
        (*words.CALL_KEYS, *words.PARTS),
        (*words.MODEL_KEYS, *words.PARTS),
        (*words.WAIT_KEYS, "schema"),
        words.EMIT_KEYS,
        words.EXPRESSION,
        ("http", "call"),
        ("using", "from"),
    )
    for keywords in places:
        forms = [words.TABLE[keyword][language] for keyword in set(keywords)]
        assert len(set(forms)) == len(forms), sorted(forms)


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_every_form_is_made_of_words_that_can_be_read(language: str) -> None:
    for keyword, row in words.TABLE.items():
        assert row[language], keyword
        assert all(word.isidentifier() for word in row[language].split(" ")), row[language]


@pytest.mark.parametrize("language", OTHERS)
@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_comes_back_as_it_was(path: Path, language: str) -> None:
    """L5: en → x → en is byte-identical."""
    text = path.read_bytes().decode()
    there = translate(text, language)
    assert there != text
    assert parse(there).language == language
    assert translate(there, "en") == text


@MADE
@given(machine_files())
def test_any_file_comes_back_as_it_was(text: str) -> None:
    """L5, with comments, odd layout, and names that are keywords in some language."""
    for language in OTHERS:
        there = translate(text, language)
        assert parse(there).language == language, there
        assert translate(there, "en") == text, there
    chain = text
    for language in (*OTHERS, "en"):
        chain = translate(chain, language)
    assert chain == text


def bare(node: Any) -> Any:
    """A tree without the places of its parts, and without the language that it is written in."""
    match node:
        case Span() | Source() | None | bool() | int() | float() | str():
            return None if isinstance(node, (Span, Source)) else node
        case tuple() | list():
            return [bare(each) for each in node]
        case dict():
            return {key: bare(each) for key, each in node.items()}
        case _:
            names = getattr(node, "__struct_fields__", None) or [each.name for each in fields(node)]
            parts = {name: bare(getattr(node, name)) for name in names if name not in ("language", "marks", "source")}
            return type(node).__name__, parts


@MADE
@given(machine_files())
def test_a_translated_file_is_the_same_machine(text: str) -> None:
    """L5: not only the same words back, but the same tree in between."""
    tree = bare(parse(text).machines)
    for language in OTHERS:
        assert bare(parse(translate(text, language)).machines) == tree, language


@pytest.mark.parametrize("language", OTHERS)
def test_L5_a_task_may_have_a_colon_in_every_language(language: str) -> None:
    text = 'machine m\n    implements\n        ask a, using: "x:y"\n            with task: "Greet."\n'
    assert translate(translate(text, language), "en") == text


def test_a_name_that_is_a_keyword_there_is_written_in_backticks() -> None:
    """L5."""
    text = "machine m\n  implements\n    compute espera\n      {espera: 1, x: steps.espera}\n"
    there = translate(text, "es")
    assert "calcula `espera`" in there
    assert translate(there, "en") == text
    assert parse(there).machines[0].main.steps[0].name == "espera"


def test_a_keyword_is_no_keyword_in_backticks() -> None:
    text = "machine m\n  implements\n    for each `input` in [1]\n      compute a\n        `input` + 1\n"
    [loop] = parse(text).machines[0].main.steps
    assert loop.name == "input"
    assert translate(translate(text, "ko"), "en") == text


def test_backticks_that_are_not_needed_stay() -> None:
    text = "machine m\n  implements\n    compute `a`\n      1\n    compute ``espera``\n      2\n"
    there = translate(text, "es")
    assert "calcula `a`" in there
    assert "calcula ```espera```" in there
    assert translate(there, "en") == text


def test_keywords_inside_of_texts_are_translated_and_texts_are_not() -> None:
    text = 'machine m\n  implements\n    compute a\n      "wait for ${input.x and true} // no comment"\n'
    assert '"wait for ${entrada.x y verdadero} // no comment"' in translate(text, "es")


@pytest.mark.parametrize("said", ["language: es", "idioma: es"])
def test_a_file_can_name_its_language(said: str) -> None:
    """L5."""
    text = f"{said}\nmáquina m\n  implementa\n    calcula a\n      1\n"
    assert parse(text).language == "es"
    assert translate(text, "fr").startswith("langue: fr\nmachine m\n")


def test_a_file_is_in_one_language() -> None:
    """L5."""
    with pytest.raises(LanguageError) as caught:
        parse("language: es\nmachine m\n  implementa\n    calcula a\n      1\n")
    assert "`machine` is a word of another language; here it is `máquina`" in str(caught.value)


def test_a_language_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadInput, match="there is no language 'xx'; known are en, es, fr, de, ja, zh, ko"):
        translate("machine m\n", "xx")


def test_a_broken_file_is_not_translated() -> None:
    with pytest.raises(LanguageError):
        translate("machine m\n  implements\n    wait fro x\n", "es")
