"""The grammar for editors knows the keywords that the language has."""

from __future__ import annotations

import json
import re

import pytest

from bide.authoring.language import words
from editors import grammar


def test_the_grammar_is_written_from_the_table_of_keywords() -> None:
    assert grammar.PLACE.read_text(encoding="utf-8") == grammar.written(), "run `python editors/grammar.py`"


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_every_keyword_is_in_the_grammar(language: str) -> None:
    known = json.dumps(grammar.grammar(), ensure_ascii=False)
    for keyword, row in words.TABLE.items():
        assert re.search(rf"(?<![\w]){re.escape(row[language])}(?![\w])", known), keyword
