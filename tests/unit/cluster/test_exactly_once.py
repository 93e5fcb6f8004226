"""The judge of ``scripts/show-exactly-once``: it finds each kind of difference, and no other."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import trio

from tests.e2e.exactly_once.clients import compiled
from tests.e2e.exactly_once.copying import Course, Read, slices_of
from tests.e2e.exactly_once.cursus import Cursus, carried_out
from tests.e2e.exactly_once.journal import Attempt, Journal, Told, read
from tests.e2e.exactly_once.judge import Copy, Expected, decode, encode, judge
from tests.integration.faults.cursus_bookkeeper import Refused

ENDS = {0: 4, 1: 2}
ATTEMPTS = {
    1: Attempt(1, {0: (0, 2), 1: (0, 1)}, Told.COMMITTED),
    2: Attempt(2, {0: (2, 4)}, Told.ABORTED),
    3: Attempt(3, {0: (2, 4)}, Told.UNKNOWN),
    4: Attempt(4, {0: (2, 4)}, Told.UNKNOWN),
    5: Attempt(5, {1: (1, 2)}, Told.COMMITTED),
}
SOUND = {0: [Copy(1, 0, 0), Copy(1, 1, 0), Copy(4, 0, 2)], 1: [Copy(1, 0, 1), Copy(4, 0, 3)]}
SOUND[1].append(Copy(5, 1, 1))


def found(
    seen: Mapping[int, Sequence[Copy]], committed: Mapping[int, int] = ENDS
) -> dict[str, list[str]]:
    differences = vars(judge(Expected(ENDS, ATTEMPTS), seen, committed))
    return {name: each for name, each in differences.items() if each}


def without(*copies: Copy) -> dict[int, list[Copy]]:
    return {at: [each for each in seen if each not in copies] for at, seen in SOUND.items()}


def behind(at: int, *copies: Copy) -> dict[int, list[Copy]]:
    return {**SOUND, at: [*SOUND[at], *copies]}


def test_nothing_is_found_where_all_is_as_told() -> None:
    assert found(SOUND) == {}


def test_a_committed_transaction_that_is_not_there() -> None:
    assert found(without(Copy(5, 1, 1))) == {
        "missing": [
            "input 1/1 was not copied",
            "transaction 5 was told committed, nothing of it is there",
        ]
    }


def test_a_transaction_that_is_there_in_part() -> None:
    assert found(without(Copy(4, 0, 3))) == {
        "missing": ["input 0/3 was not copied"],
        "in_part": ["transaction 4 (unknown): 1 of 2 records"],
    }


def test_a_transaction_that_wrote_what_it_did_not_read() -> None:
    assert found({**SOUND, 0: [*SOUND[0][:2], Copy(5, 0, 2)], 1: SOUND[1]})["in_part"] == [
        "transaction 4 (unknown): 1 of 2 records",
        "transaction 5 (committed): 1 of 1 records",
    ]


def test_an_aborted_transaction_that_is_seen() -> None:
    differences = found(behind(0, Copy(2, 0, 3)))
    assert differences["aborted_seen"] == ["transaction 2: 1 of 2 records"]
    assert differences["twice"] == ["input 0/3 was copied by transactions [2, 4]"]


def test_a_record_twice_by_one_transaction() -> None:
    assert found(behind(1, Copy(5, 1, 1))) == {
        "twice": ["input 1/1 was copied by transactions [5, 5]"]
    }


def test_what_nobody_wrote() -> None:
    assert found(behind(1, Copy(9, 1, 7))) == {
        "foreign": ["there is no input 1/7", "nobody has begun transaction 9"]
    }


def test_order() -> None:
    turned = [Copy(4, 0, 3), Copy(1, 0, 1), Copy(5, 1, 1)]
    assert found({**SOUND, 1: turned}) == {"disordered": ["output 1 has input 0/1 behind 3"]}


@pytest.mark.parametrize("offsets", [{0: 4}, {0: 4, 1: 1}, {0: 4, 1: 3}])
def test_offsets_of_the_group(offsets: dict[int, int]) -> None:
    assert list(found(SOUND, offsets)) == ["offsets"]


def test_values_say_where_they_come_from() -> None:
    assert decode(encode(Copy(3, 1, 70))) == Copy(3, 1, 70)
    with pytest.raises(ValueError, match="not enough"):
        decode(b"3/1")


def test_slices_have_no_gaps() -> None:
    assert slices_of([Read(0, 5), Read(1, 2), Read(0, 6)]) == {0: (5, 7), 1: (2, 3)}
    for wrong in (3, 4, 6):
        with pytest.raises(ValueError, match=f"0/{wrong} was read where 5 was expected"):
            slices_of([Read(0, 4), Read(0, wrong)])


def test_a_journal_goes_on_where_a_killed_copier_left_it(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = Journal(path)
    first.end(first.begin({0: (0, 3)}), Told.COMMITTED)
    assert first.begin({0: (3, 6)}) == 2
    with path.open("a", encoding="utf-8") as file:
        file.write('{"attempt": 2, "to')
    second = Journal(path)
    second.stopped("Lost: it")
    number = second.begin({0: (3, 6)})
    second.end(number, Told.ABORTED, "Failed: why")
    book = read(path)
    assert number == 3
    assert book.stops == ["Lost: it"]
    assert book.attempts == {
        1: Attempt(1, {0: (0, 3)}, Told.COMMITTED),
        2: Attempt(2, {0: (3, 6)}),
        3: Attempt(3, {0: (3, 6)}, Told.ABORTED, "Failed: why"),
    }


def test_who_has_copied_its_own_in_cursus_leaves_when_all_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member that died keeps its partitions for a while, and the next one in its place may be
    given what is copied."""
    course = Course(["h:1"], "g", 0, 2, "in", "out", [5, 5], 2, 7, "journal")
    committed = {0: 5, 1: 3}
    copier = Cursus(course)
    copier.own = [0]

    async def offset(at: int) -> int:
        return committed[at]

    monkeypatch.setattr(copier, "committed", offset)
    assert not course.is_done(trio.run(copier.rewind))
    committed[1] = 5
    assert course.is_done(trio.run(copier.rewind))
    committed[0] = 4
    assert not course.is_done(trio.run(copier.rewind))


OK, AGAIN, NEVER = "OK staged_messages=1", "ERROR: NOT_COORDINATOR host=h port=1", "ERROR: other"


@pytest.mark.parametrize(
    ("answers", "done"),
    [([], 0), ([OK], 1), ([OK, OK, OK], 3), ([OK, AGAIN], 1), ([AGAIN, AGAIN, AGAIN], 0)],
)
def test_what_cursus_answered_is_not_said_again(answers: list[str], done: int) -> None:
    assert carried_out(["a", "b", "c"], answers) == done


@pytest.fixture(scope="module")
def cursus_java(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """The copier of Cursus in Java: a command line's output."""
    if shutil.which("javac") is None:
        pytest.skip("no JDK is installed here")
    path = compiled("CursusCopier", "", tmp_path_factory.mktemp("java"))

    def run(*words: str) -> list[str]:
        command = ["java", "-cp", path, "CursusCopier", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(
            "\n"
        )

    return run


def test_a_frame_torn_by_a_nodes_death_is_no_answer(cursus_java: Callable[..., list[str]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"\0\0\0\x09OK co")

        dying = threading.Thread(target=answer, daemon=True)
        dying.start()
        assert cursus_java("ask", f"127.0.0.1:{server.getsockname()[1]}") == ["null", ""]
        dying.join()


def test_the_copier_of_cursus_in_java_judges_alike(cursus_java: Callable[..., list[str]]) -> None:
    answers = [[OK, OK, OK], [OK, AGAIN], [AGAIN, AGAIN], [OK, NEVER], [AGAIN, NEVER]]
    answers.append([OK, AGAIN, OK])
    words = ["|".join(each) for each in answers]
    lost = "b: ERROR: NOT_COORDINATOR host=h port=1, but not what was said after it"
    assert cursus_java("carried-out", *words) == [
        *("3", "1", "0"),
        *("Refused: b: ERROR: other", "Refused: b: ERROR: other", f"Refused: {lost}", ""),
    ]


@pytest.mark.parametrize("answers", [[OK, NEVER], [NEVER, AGAIN], [AGAIN, NEVER]])
def test_what_cursus_refuses_for_good(answers: list[str]) -> None:
    with pytest.raises(Refused, match=r": ERROR: other"):
        carried_out(["a", "b", "c"], answers)


def test_records_of_cursus_that_would_change_places() -> None:
    with pytest.raises(Refused, match=r"b: ERROR: NOT_COORDINATOR .* not what was said after it"):
        carried_out(["a", "b", "c"], [OK, AGAIN, OK])
