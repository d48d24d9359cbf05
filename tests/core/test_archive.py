"""Archives: what was exported can be proven, and any change of it is found (G2)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

from bide.core import archive, ledger
from bide.core.archive import Unproven
from bide.core.records import LedgerPage, Run
from tests.support.decisions import NOW, running

KEY = ("2030", "correct horse")
SECRETS = dict([KEY])


def a_record(entries: int = 9, per_page: int = 2) -> tuple[Run, list[LedgerPage]]:
    """An ended run with a ledger of its own."""
    head, stored = "", []
    for seq in range(1, entries + 1):
        name, to = ("run_completed", "completed") if seq == entries else ("step_committed", "running")
        entry = ledger.append(head, seq, NOW, name, "worker:w-1", {"to": to, "step": f"step {seq}"})
        head = entry.hash
        stored.append(entry)
    run = running(status="completed", ended_at=NOW, ledger_seq=entries, ledger_head=head)
    chunks = [stored[at : at + per_page] for at in range(0, entries, per_page)]
    return run, [LedgerPage(run_id=run.id, seq=c[0].seq, entries=ledger.encode_page(c)) for c in chunks]


def written(key: tuple[str, str] | None = KEY) -> list[str]:
    return list(archive.write(*a_record(), key))


def refusal(lines: Sequence[str]) -> str:
    with pytest.raises(Unproven) as caught:
        archive.read(lines, SECRETS)
    return str(caught.value)


def test_what_was_written_is_read_back() -> None:
    run, pages = a_record()
    found = archive.read(archive.write(run, pages, KEY), SECRETS)
    assert (found.run, found.signed_by) == (run, "2030")
    assert [entry.seq for entry in found.entries] == list(range(1, 10))
    assert ledger.verify([(1, ledger.encode_page(found.entries))], run.ledger_head, run.ledger_seq) is None


def test_what_a_run_hides_is_hidden_in_its_archive() -> None:
    """G4: and the archive holds."""
    run, pages = a_record()
    hiding = replace(run, redact="card", input='{"card":"canary","n":1}', state='[{"card":"canary"}]', result='"x"')
    lines = list(archive.write(hiding, pages, KEY))
    assert "canary" not in "".join(lines)
    found = archive.read(lines, SECRETS).run
    assert (found.input, found.result) == ('{"card":"[redacted]","n":1}', '"x"')


def test_an_older_secret_still_verifies_after_a_rotation() -> None:
    secrets = {"2031": "battery staple", **SECRETS}
    assert archive.read(written(), secrets).signed_by == "2030"


@pytest.mark.parametrize("cut", [1, 2, 3, 5, 6])
def test_a_tail_that_was_cut_off_is_found(cut: int) -> None:
    assert refusal(written()[:-cut])


def test_a_tail_that_was_cut_off_and_sealed_anew_without_the_secret_is_found() -> None:
    run, pages = a_record()
    last = ledger.decode_stored(pages[-2].entries)[-1]
    shorter = msgspec.structs.replace(run, ledger_seq=last.seq, ledger_head=last.hash, status="running")
    assert "only an ended run" in refusal(list(archive.write(shorter, pages[:-1], ("2030", "a guess"))))
    forged = msgspec.structs.replace(run, result='"another result"')
    assert "signature" in refusal(list(archive.write(forged, pages, ("2030", "a guess"))))


def test_a_signature_that_was_taken_off_is_found() -> None:
    assert "not signed" in refusal(written(key=None))


def test_an_unknown_secret_is_named() -> None:
    assert "'1999'" in refusal(written(key=("1999", "old")))


def test_an_unsigned_archive_is_read_where_no_secrets_are_configured() -> None:
    assert archive.read(written(key=None), {}).signed_by is None


def test_a_change_of_the_header_is_found_without_a_secret_too() -> None:
    """G2: the input, the state and the result of a run are in no entry of its chain."""
    header, *rest = written(key=None)
    for was, is_now in (('"result":null', '"result":"1"'), ('"priority":0', '"priority":1')):
        assert was in header
        with pytest.raises(Unproven, match="header was changed"):
            archive.read([header.replace(was, is_now), *rest], {})


def test_random_single_changes_of_a_ledger_are_all_found_and_the_first_bad_entry_named() -> None:
    """G2: 1,000 of 1,000."""
    dice = random.Random(7)
    run, pages = a_record(entries=20, per_page=3)
    for _ in range(1000):
        number = dice.randrange(len(pages))
        text = pages[number].entries
        changed, bad = _changed(dice, text)
        texts = [(page.seq, changed if at == number else page.entries) for at, page in enumerate(pages)]
        broken = ledger.verify(texts, run.ledger_head, run.ledger_seq)
        assert broken is not None, (text, changed)
        entries = ledger.decode_stored(text)
        assert entries[0].seq <= broken.seq <= entries[-1].seq, (text, changed)
        if bad is not None:
            assert broken.seq == bad, (text, changed, broken)


def _changed(dice: random.Random, text: str) -> tuple[str, int | None]:
    """A page with one character changed, and the number of the entry that it is in, where the page still reads."""
    while True:
        at = dice.randrange(len(text))
        changed = text[:at] + dice.choice('0123456789abcdefxyz {}[]",:') + text[at + 1 :]
        if changed == text:
            continue
        try:
            before, after = ledger.decode_stored(text), ledger.decode_stored(changed)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return changed, None
        bad = [old.seq for old, new in zip(before, after, strict=False) if old != new]
        return changed, bad[0] if bad else None


@pytest.mark.parametrize("lines", [[], ["{}"] * 3, ["\x00"] * 4, ["null", "1", "[]"]], ids=repr)
def test_what_is_no_archive_is_refused(lines: list[str]) -> None:
    assert refusal(lines)


@pytest.mark.parametrize("text", ["secret", ":x", "a:", "a:1,a:2"])
def test_secrets_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="id:secret"):
        archive.parse_secrets(text)
