"""Owners of runs: who may still be at work, and who is gone for certain."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright.journals.owner import ACTIVE_TOKENS, Owner, process_start
from loopwright.testing.contracts.entries import HOST
from users import another_user

NO_PROCESS = 2**22 + 1  # a number that no process can have


def test_an_owner_is_read_as_it_was_written() -> None:
    owner = Owner.of_this_process("token")

    assert (owner.pid, owner.token) == (os.getpid(), "token")
    assert Owner.parse(str(owner)) == owner


@pytest.mark.parametrize(
    "text", ["", "somebody", "host|1|2", "host|one|2|token", "host|1|2|token|more"]
)
def test_a_text_that_is_no_owner_is_not_taken_for_one(text: str) -> None:
    with pytest.raises(ValueError):
        Owner.parse(text)


def test_an_owner_is_in_sight_where_process_numbers_mean_the_same() -> None:
    name = socket.gethostname()
    hosts = [Owner.of_this_process("me").host, name, f"{name}/1", f"not-{name}"]

    assert [
        Owner(host, NO_PROCESS, "1", "token").has_comparable_pid for host in hosts
    ] == [
        True,
        True,
        False,
        False,
    ]


def test_an_owner_on_another_host_may_be_at_work() -> None:
    assert Owner(f"not-{HOST}", NO_PROCESS, "1", "token").is_alive


def test_this_process_is_at_work_on_the_runs_that_it_took_up_and_on_no_other() -> None:
    mine, forgotten = Owner.of_this_process("mine"), Owner.of_this_process("forgotten")
    ACTIVE_TOKENS.add("mine")
    try:
        assert (mine.is_alive, forgotten.is_alive) == (True, False)
    finally:
        ACTIVE_TOKENS.discard("mine")
    assert not mine.is_alive


def test_a_process_that_ended_is_not_at_work_nor_is_another_one_with_its_number() -> (
    None
):
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    ) as process:
        owner = Owner(HOST, process.pid, process_start(process.pid), "token")
        reused = Owner(HOST, process.pid, "1", "token")
        assert (owner.is_alive, reused.is_alive) == (True, False)
    assert not owner.is_alive


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
def test_a_process_that_was_killed_and_not_waited_for_is_not_at_work() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    ) as process:
        owner = Owner(HOST, process.pid, process_start(process.pid), "token")
        assert owner.is_alive

        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        assert not owner.is_alive


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
def test_a_process_whose_name_is_no_text_may_be_at_work() -> None:
    # The system keeps 15 bytes of a name, and so cuts through a character.
    rename = "ctypes.CDLL(None).prctl(15, 'überwachungsdämon'.encode())"
    program = f"import ctypes; print({rename}, flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=pipe, stdout=pipe
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        with pytest.raises(UnicodeDecodeError):
            Path(f"/proc/{process.pid}/comm").read_text(encoding="utf-8")
        owner = Owner(HOST, process.pid, process_start(process.pid), "token")
        assert owner.started
        assert owner.is_alive


@pytest.mark.skipif(os.getpid() == 1, reason="the first process is this one")
def test_a_process_of_another_user_may_be_at_work() -> None:
    with another_user():
        with pytest.raises(PermissionError):
            os.kill(1, 0)
        alive = Owner(HOST, 1, "unknown", "token").is_alive

    assert alive


@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(),
    reason="the system does not tell when a process started",
)
def test_the_start_of_a_process_is_its_own_and_empty_where_nobody_knows_it() -> None:
    assert process_start(os.getpid()) == process_start(os.getpid()) != ""
    assert process_start(NO_PROCESS) == ""
