"""Broken files by the thousand: the parser, the checker, the formatter and the translator end, with a file or with
problems, and never with anything else (L6).

`BIDE_FUZZ_FILES=20400` tries more of them, `BIDE_FUZZ_SEED` others; `python -m tests.language.test_fuzz SECONDS [SEED]`
goes on for as long as one likes.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bide.authoring.language import words
from bide.authoring.language.checking import check_text
from bide.authoring.language.formatting import format_file
from bide.authoring.language.translating import translate
from bide.errors import LanguageError

EXAMPLES = Path(__file__).parents[2] / "examples"
SHARES = 6
FILES_PER_SHARE = int(os.environ.get("BIDE_FUZZ_FILES", "4800")) // SHARES
FIRST_SEED = int(os.environ.get("BIDE_FUZZ_SEED", "0"))
MOST_CHANGES = 6
MOST_SECONDS = 10.0  # of the processor, for one file; a virtual one may count what was stolen from it
PIECES = [
    *"\n\t \"'`{}[]():,.|=<>+-*/$#\\\0\ufeff\u2028é待つ等待기다리다",
    *("${", "//", "    ", '"""', "wait for", "flow(x)", "steps.a.b", "1e999", "-0", "null", "timeout:"),
]


def texts() -> list[str]:
    """The example files, in every language."""
    files = [file.read_text(encoding="utf-8") for file in sorted(EXAMPLES.glob("*.machine"))]
    return [translate(text, language) for text in files for language in words.LANGUAGES]


def broken(dice: random.Random, originals: list[str]) -> str:
    """A file with a few pieces cut out, put in, doubled, moved, or taken from another file."""
    text = dice.choice(originals)
    for _ in range(dice.randint(1, MOST_CHANGES)):
        at = dice.randrange(len(text) + 1)
        to = min(len(text), at + int(dice.expovariate(0.1)))
        piece = text[at:to]
        match dice.randrange(6):
            case 0:
                text = text[:at] + text[to:]
            case 1:
                text = text[:at] + dice.choice(PIECES) * dice.choice((1, 1, 1, 50)) + text[at:]
            case 2:
                text = text[:at] + piece + piece + text[to:]
            case 3:
                lines = text.split("\n")
                dice.shuffle(lines)
                text = "\n".join(lines) if dice.random() < 0.1 else text
            case 4:
                other = dice.choice(originals)
                start = dice.randrange(len(other))
                text = text[:at] + other[start : start + 80] + text[to:]
            case _:
                text = text[:at] + chr(dice.randrange(1, 0xD7FF)) + text[to:]
    return text


class TookTooLong(BaseException):
    """Nothing that is tried out may swallow it."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """What takes longer of the processor's time, however busy the machine is, fails."""

    def stop(*_: object) -> None:
        raise TookTooLong(f"more than {seconds} s of the processor's time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def try_out(text: str) -> None:
    with limited(MOST_SECONDS):
        problems = check_text(text)
        assert all(problem.message and problem.line >= 1 for problem in problems)
        for change in (format_file, lambda text: translate(text, "ja")):
            with suppress(LanguageError):
                change(text)


def test_a_file_that_takes_forever_is_a_failure() -> None:
    with pytest.raises(TookTooLong), limited(0.01):
        sum(_forever(0))


@pytest.mark.parametrize("share", range(SHARES))
def test_broken_files_are_answered_with_problems_and_nothing_else(share: int) -> None:
    originals = texts()
    first = FIRST_SEED + share * FILES_PER_SHARE
    for seed in range(first, first + FILES_PER_SHARE):
        text = broken(random.Random(seed), originals)
        try:
            try_out(text)
        except BaseException:
            print(f"seed {seed}:\n{text}")
            raise


def _forever(seed: int) -> Iterator[int]:
    while True:
        yield seed
        seed += 1


if __name__ == "__main__":
    until, originals, slowest, count = time.monotonic() + float(sys.argv[1]), texts(), 0.0, 0
    for seed in _forever(int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000):
        if time.monotonic() > until:
            break
        begun, text = time.process_time(), broken(random.Random(seed), originals)
        try:
            try_out(text)
        except BaseException as error:
            print(f"seed {seed} broke it: {error!r}\n{text}")
            raise
        count, slowest = count + 1, max(slowest, time.process_time() - begun)
    print(f"{count} broken files, none broke the tools; the slowest took {slowest * 1000:.0f} ms")
