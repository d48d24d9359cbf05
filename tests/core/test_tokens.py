"""Resume tokens (W4)."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.core.tokens import HOW_TO_MAKE_ONE, BadSecrets, Bound, Signer, callback_id, parse_secrets

SIGNER = Signer(parse_secrets("k2:0123456789abcdef,k1:fedcba9876543210"))


@given(st.text(max_size=50), st.text(max_size=50), st.text(max_size=50))
def test_W4_a_token_says_what_it_is_for_and_is_the_same_each_time(workspace: str, run: str, signal: str) -> None:
    token = SIGNER.mint(workspace, run, signal)
    assert SIGNER.read(token) == Bound(workspace, run, signal)
    assert token == SIGNER.mint(workspace, run, signal)


@given(st.text(max_size=300))
def test_W4_whatever_else_is_read_proves_nothing(text: str) -> None:
    assert SIGNER.read(text) is None


@given(st.data())
def test_W4_no_character_of_a_token_can_be_changed(data: st.DataObject) -> None:
    token = SIGNER.mint("default", "run_1", "callback:1")
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda c: c != token[at]))
    assert SIGNER.read(token[:at] + other + token[at + 1 :]) is None


@pytest.mark.parametrize("text", ["nokey", "k:short", "k 1:0123456789abcdef", "a:0123456789abcdef,a:0123456789abcdeg"])
def test_W4_secrets_that_cannot_be_used_are_refused_without_showing_them(text: str) -> None:
    with pytest.raises(BadSecrets) as refused:
        parse_secrets(text)
    assert "0123456789abcdef" not in str(refused.value)


def test_W4_the_line_that_makes_a_secret_makes_one_that_can_be_used() -> None:
    line = HOW_TO_MAKE_ONE.partition("python -c ")[2]
    made = subprocess.run([sys.executable, "-c", *shlex.split(line)], capture_output=True, text=True, check=True)
    [(id, secret)] = parse_secrets(made.stdout)
    assert (id, len(secret)) == ("k1", 64)


def test_W4_a_callback_of_another_life_has_another_id_and_that_of_the_first_stays_what_it_was() -> None:
    """W4, law 9: links of runs that never began anew were given away long ago."""
    assert callback_id("run_1", "kyc") == "callback:48c2c473016c3dbe50e86dfacf02dfac79a9781b"
    assert callback_id("run_1", "kyc", 0) == callback_id("run_1", "kyc")
    assert len({callback_id("run_1", key, life) for key in ("kyc", "kyc#2") for life in range(3)}) == 6
