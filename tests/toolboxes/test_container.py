"""Programs of tools in containers, tried with a real client where one can make them, and what it is told where not."""

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from loopwright import ConfigError
from loopwright.errors import ToolError
from loopwright.testing.truncated_journal import NO_PROCESS
from loopwright.toolboxes import container
from loopwright.toolboxes.container import (
    ContainerLimits,
    ContainerSandbox,
    _name_container,
)
from loopwright.toolboxes.manifest import manifest
from loopwright.toolboxes.shell import Command, shell
from waiting import eventually

IMAGE = "localhost/loopwright-test:1"
PROGRAMS = ("sh", "cat", "id", "ls", "sleep", "touch", "head", "env", "true", "wc", "tr", "grep", "sort", "seq")  # fmt: skip
BUSYBOX = "/bin/busybox"
VARIABLES = os.environ.get("LOOPWRIGHT_CONTAINER_OPTIONS", "").split()
"""Options for `run` that a machine needs, such as `--runtime runc`."""


def find_client() -> str:
    """Return the client with which containers can be made, with an image of one static program."""
    client = shutil.which("podman") or shutil.which("docker")
    if client is None:
        pytest.skip("needs podman or docker")
    if not os.path.exists(BUSYBOX):
        pytest.skip(
            "needs a static /bin/busybox (package busybox-static), of which an image is made"
        )
    return client


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> str:
    client, folder = find_client(), tmp_path_factory.mktemp("image")
    archive = folder / "image.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("tmp", "proc", "dev", "sys", "etc"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(directory)
        tar.add(BUSYBOX, "bin/busybox")
        for name in PROGRAMS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    made = subprocess.run(
        [client, "import", str(archive), IMAGE], capture_output=True, text=True, check=False
    )  # fmt: skip
    if made.returncode != 0:
        pytest.skip(f"{client} cannot make an image: {made.stderr.strip()[-200:]}")
    return client


@pytest.fixture
def sandbox(client: str) -> ContainerSandbox:
    limits = ContainerLimits(memory=64 * 1024 * 1024, pids=16)
    try:
        return ContainerSandbox(IMAGE, limits=limits, options=VARIABLES)
    except ConfigError as error:
        pytest.skip(str(error))


async def run(
    program: str, work: Path, sandbox: ContainerSandbox, timeout: float = 30.0
) -> str:
    """Return what a model reads of a line of a shell in a container."""
    command = Command("sh", ("-c **",), name="it")
    [tool] = shell([command], cwd=work, sandbox=sandbox, timeout=timeout, env={"MARK": "m-1"})  # fmt: skip
    text: str = await tool.function(arguments=["-c", program])
    return text


def list_containers(client: str) -> list[str]:
    listed = subprocess.run(
        [client, "ps", "--all", "--filter", "name=loopwright-", "--format", "{{.Names}}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return listed.stdout.split()


async def test_a_program_in_a_container_is_confined_as_it_is_promised(
    work: Path, sandbox: ContainerSandbox, client: str
) -> None:
    said = await run(
        f"cat {work.parent}/secret; touch /x {work}/made; echo $MARK; grep Cap /proc/self/status; "
        "grep NoNewPrivs /proc/self/status; ls /sys/class/net; ls /proc | grep -c '^[0-9]'; touch /tmp/t && echo tmp",
        work, sandbox,
    )  # fmt: skip

    assert "swordfish" not in said
    assert "/x: Read-only file system" in said
    assert (work / "made").stat().st_uid == os.getuid()
    assert "\nm-1\n" in said
    assert said.count("0000000000000000") == 5, "no capability in any set"
    assert "NoNewPrivs:\t1" in said
    assert "\nlo\n" in said
    assert "eth" not in said
    assert "\ntmp" in said
    assert list_containers(client) == []


async def test_a_program_in_a_container_stays_within_its_limits(
    work: Path, sandbox: ContainerSandbox, client: str
) -> None:
    memory = await run("head -c 200m /dev/zero | tr '\\0' x | sort", work, sandbox)
    forked = await run("for i in $(seq 40); do sleep 2 & done; wait; echo all", work, sandbox)  # fmt: skip

    assert "[exit code 137]" in memory, "killed for its memory"
    assert "an't fork" in forked
    assert list_containers(client) == []


async def test_a_container_is_removed_when_its_time_is_over_or_its_call_cancelled(
    work: Path, sandbox: ContainerSandbox, client: str
) -> None:
    begun = (work / "begun").exists
    for seconds in (1.5, 20.0):  # a busy machine may take long to make a container
        late = re.escape(f"did not end within {seconds:g} s and was killed")
        with pytest.raises(ToolError, match=late):
            await run("touch begun; sleep 60", work, sandbox, timeout=seconds)
        assert list_containers(client) == []
        if begun():
            break
    assert begun()

    task = asyncio.create_task(run("touch more; sleep 60", work, sandbox))
    await eventually((work / "more").exists)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await eventually(lambda: not list_containers(client))


@pytest.mark.faults
def test_the_container_of_a_killed_process_is_removed_with_the_next_sandbox(
    work: Path, sandbox: ContainerSandbox, client: str
) -> None:
    program = textwrap.dedent(
        f"""
        import asyncio
        from loopwright.toolboxes.container import ContainerSandbox
        from loopwright.toolboxes.shell import Command, shell
        sandbox = ContainerSandbox({IMAGE!r}, options={VARIABLES!r})
        [tool] = shell([Command("sh", ("-c **",))], cwd={str(work)!r}, sandbox=sandbox, timeout=600)
        asyncio.run(tool.function(arguments=["-c", "touch begun; sleep 600"]))
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    while not (work / "begun").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()

    assert len(list_containers(client)) == 1
    ContainerSandbox(IMAGE, options=VARIABLES)
    assert list_containers(client) == []


async def test_a_manifest_runs_programs_of_the_image_and_writes_nothing(
    work: Path, sandbox: ContainerSandbox
) -> None:
    file = work / "tools.toml"
    program = work / "greet.sh"
    program.write_text("#!/bin/sh\necho hello; echo '#' >> tools.toml\n")
    program.chmod(0o755)
    file.write_text(
        '[[tool]]\nname = "who"\ndescription = "Who."\nargv = ["id", "-u"]\n'
        '[[tool]]\nname = "greet"\ndescription = "Greet."\nargv = ["./greet.sh"]\n'
    )
    before = file.read_text()
    who, greet = manifest(file, sandbox=sandbox)

    assert await who.function() == str(os.getuid())
    with pytest.raises(ToolError, match="Read-only file system"):
        await greet.function()
    assert file.read_text() == before


def test_a_client_or_an_image_that_is_not_there_is_an_error_when_made(
    work: Path,
) -> None:
    with pytest.raises(ConfigError, match="needs one of the programs nerdctl"):
        ContainerSandbox("busybox", client="nerdctl")
    with pytest.raises(ConfigError, match="image: must be the name of an image"):
        ContainerSandbox("--privileged", client="true")
    with pytest.raises(ConfigError, match="limits: pids must be greater than 0"):
        ContainerLimits(pids=0)
    refusing = work / "refusing"
    for code in (125, 126):
        refusing.write_text(f"#!/bin/sh\n[ $1 = ps ] || {{ echo no image >&2; exit {code}; }}\n")  # fmt: skip
        refusing.chmod(0o755)
        with pytest.raises(ConfigError, match="cannot make a container of 'x' here: no image; start"):  # fmt: skip
            ContainerSandbox("x", client=str(refusing))


def test_what_a_client_is_told_keeps_what_is_promised(work: Path) -> None:
    told = work / "told"
    client = work / "podman"
    client.write_text(f'#!/bin/sh\necho "$@" >> {told}\n')
    client.chmod(0o755)
    sandbox = ContainerSandbox("image@sha256:1", client=str(client), write_cwd=False)
    made = sandbox.confine(
        ["cat", "a b"], cwd=work, env={"PATH": "/x", "TOKEN": "swordfish"}
    )
    options = " ".join(made.argv)

    assert told.read_text().startswith("ps --all --filter name=loopwright-")
    for wanted in (
        "run --rm", "--pull never", "--network none", "--read-only", "--cap-drop ALL",
        "--security-opt no-new-privileges", "--memory 536870912 --memory-swap 536870912", "--pids-limit 128", "--cpus 1",
        f"--mount type=bind,source={work},target={work},readonly", f"--workdir {work}", "--env TOKEN",
        "--entrypoint cat image@sha256:1 a b",
    ):  # fmt: skip
        assert wanted in options
    assert "swordfish" not in options
    assert made.env["TOKEN"] == "swordfish"
    assert made.env["PATH"] == os.environ["PATH"]
    assert made.cleanup == (str(client), "rm", "--force", made.argv[made.argv.index("--name") + 1])  # fmt: skip
    with pytest.raises(ConfigError, match="cwd '/etc' cannot be confined"):
        sandbox.confine(["cat"], cwd=Path("/etc"), env={})
    (work / "a,b").mkdir()
    with pytest.raises(ConfigError, match="has a comma or a quote"):
        sandbox.confine(["cat"], cwd=work / "a,b", env={})


async def test_a_program_of_the_directory_is_not_looked_up_in_the_image(
    work: Path,
) -> None:
    told, client = work / "told", work / "podman"
    client.write_text(f'#!/bin/sh\n[ $1 = ps ] || echo "$@" > {told}\n')
    client.chmod(0o755)
    sandbox = ContainerSandbox("image", client=str(client))
    [tool] = shell(["./check *"], cwd=work, sandbox=sandbox)
    await tool.function(arguments=["x"])

    assert f"--entrypoint {work}/check image x" in told.read_text()


def write_client(work: Path, removes_after: int) -> Path:
    """Write a client as docker is: another process is removing the container, which is gone at the n-th removal."""
    own = _name_container().split("-")
    name = "-".join([own[0], str(NO_PROCESS), *own[2:]])
    client, removals = work / "docker", work / "removals"
    client.write_text(
        f"#!/bin/sh\nn=$(cat {removals} 2>/dev/null | wc -l)\ncase $1 in\n"
        f"ps) [ $n -ge {removes_after} ] || echo {name} ;;\n"
        f'rm) echo $3 >> {removals}; echo "removal of container $3 is already in progress" >&2; exit 1 ;;\nesac\n'
    )
    client.chmod(0o755)
    return client


def test_abandoned_containers_that_another_process_removes_are_no_error(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "REMOVAL_PAUSE", 0.0)
    client = write_client(work, 2)
    ContainerSandbox("image", client=str(client))

    assert len((work / "removals").read_text().splitlines()) == 2


def test_abandoned_containers_that_cannot_be_removed_are_an_error(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "REMOVAL_PAUSE", 0.0)
    client = write_client(work, 100)

    with pytest.raises(ConfigError, match="is already in progress"):
        ContainerSandbox("image", client=str(client))


def test_a_client_that_hangs_as_it_removes_is_waited_for_once(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, run = write_client(work, 100), subprocess.run
    removals = list[str]()

    def hang(command: list[str], **options: Any) -> Any:
        if command[1] == "rm":
            removals.append(command[-1])
            raise subprocess.TimeoutExpired(command, container.SECONDS)
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", hang)
    monkeypatch.setattr(container, "REMOVAL_PAUSE", 0.0)
    with pytest.raises(ConfigError, match=r"timed out after 60\.0 seconds"):
        ContainerSandbox("image", client=str(client))

    assert len(removals) == 1
