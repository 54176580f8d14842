"""The filesystem toolbox: what it reads, finds and writes below its root, and that nothing leads out of there."""

import contextlib
import itertools
import os
import shutil
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loopwright import ConfigError, ReActEngine, Runtime, Tool, ToolError
from loopwright.plugins import build_tools
from loopwright.testing import ScriptedProvider, call
from loopwright.toolboxes.filesystem import filesystem
from loopwright.toolboxes.sandbox_root import SandboxRoot

SECRET = "the secret of the neighbours"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with two files, and a file with a secret beside it."""
    made = tmp_path / "root"
    (made / "notes").mkdir(parents=True)
    (made / "notes" / "today.md").write_text("milk\nbread\n")
    (made / "plan.txt").write_text("buy bread\nbake\n")
    (tmp_path / "secret.txt").write_text(SECRET)
    return made


def box(root: Path, **options: object) -> dict[str, Tool]:
    return {tool.name: tool for tool in filesystem(root, **options)}  # type: ignore[arg-type]


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(ToolError) as raised:
        act()
    return str(raised.value)


# --- what the tools are ---


def test_only_reading_is_given_unless_writing_is_asked_for(root: Path) -> None:
    assert {name: (tool.effect, tool.trusted) for name, tool in box(root).items()} == {
        "read_file": ("read", False),
        "list_files": ("read", False),
        "search_files": ("read", False),
    }
    assert {name: tool.effect for name, tool in box(root, write=True).items()} == {
        "read_file": "read",
        "list_files": "read",
        "search_files": "read",
        "write_file": "write",
        "edit_file": "write",
        "delete_file": "destructive",
    }


def test_by_name_it_reads_and_does_not_write(root: Path) -> None:
    made = build_tools(f"filesystem:{root}")

    assert [tool.name for tool in made] == ["read_file", "list_files", "search_files"]
    assert made[0](path="plan.txt") == "buy bread\nbake"
    with pytest.raises(ConfigError, match="may want an argument"):
        build_tools("filesystem")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("/", "the whole file system"),
        ("missing", "is not a directory"),
        ("", "name a directory"),
        ("a\0b", "name a"),
    ],
)
def test_a_root_that_cannot_be_one_is_refused_at_set_up(
    name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match=f"root: .*{says}"):
        filesystem(name)


@pytest.mark.parametrize("limit", ["max_bytes", "max_results", "max_visits"])
def test_a_limit_below_one_is_refused_at_set_up(limit: str, root: Path) -> None:
    with pytest.raises(ConfigError, match=f"{limit}: must be 1 or more, got 0"):
        box(root, **{limit: 0})


# --- reading ---


def test_a_long_file_is_read_in_parts(root: Path) -> None:
    (root / "long.txt").write_text(
        "".join(f"line {number}\n" for number in range(1, 8))
    )
    read = box(root)["read_file"]

    assert (
        read("long.txt", limit=3)
        == "line 1\nline 2\nline 3\n[lines 1 to 3 of 7; continue with offset=3]"
    )
    assert read("long.txt", offset=6) == "line 7\n[lines 7 to 7 of 7]"
    assert (
        refusal(lambda: read("long.txt", offset=7))
        == "The file has 7 lines: offset 7 is past its end."
    )


def test_what_a_file_is_is_told(root: Path) -> None:
    (root / "empty").touch()
    (root / "picture.png").write_bytes(b"\x89PNG\0")
    (root / "old.txt").write_bytes("Käse".encode("latin-1"))
    (root / "dos.txt").write_bytes(b"a\r\nb")
    read = box(root)["read_file"]

    assert read("empty") == "[the file is empty]"
    assert read("dos.txt") == "a\r\nb"
    assert (
        refusal(lambda: read("picture.png"))
        == "'picture.png' is not text in UTF-8 but a binary file of 5 bytes"
    )
    assert (
        refusal(lambda: read("old.txt"))
        == "'old.txt' is not text in UTF-8 but a binary file of 4 bytes"
    )


def test_a_file_over_the_limit_is_not_read(root: Path) -> None:
    (root / "ten").write_text("1234567890")

    assert box(root, max_bytes=10)["read_file"]("ten") == "1234567890"
    assert (
        refusal(lambda: box(root, max_bytes=9)["read_file"]("ten"))
        == "'ten' is too large: 10 bytes; at most 9 are read"
    )


@pytest.mark.skipif(
    not os.path.exists("/proc/self/maps"), reason="the system has no such files"
)
def test_a_file_that_says_it_has_no_size_is_read_no_further_than_the_limit() -> None:
    assert (
        refusal(lambda: SandboxRoot("/proc/self").read("maps", 10))
        == "'maps' is too large: 11 bytes; at most 10 are read"
    )


# --- finding ---


def test_a_listing_shows_files_and_folders_by_name(root: Path) -> None:
    listed = box(root)["list_files"]

    assert listed() == "notes/\nplan.txt"
    assert listed("notes") == "notes/today.md"
    assert listed(glob="**/*.md") == "notes/today.md"
    assert listed(glob="**") == "notes/\nnotes/today.md\nplan.txt"
    assert listed(glob="n*/**/*.md") == "notes/today.md"
    assert listed(glob="*.py") == "[nothing there matches]"
    assert refusal(lambda: listed("plan.txt")) == "'plan.txt' is not a folder"
    assert (
        refusal(lambda: listed("nothing"))
        == "'nothing' does not exist: list the folder to see what is there"
    )


def test_many_stars_in_a_glob_cost_no_more_time(root: Path) -> None:
    (root / ("a" * 200)).touch()

    assert (
        box(root)["list_files"](glob="/".join(["**"] * 30) + "/" + "*a" * 60 + "b")
        == "[nothing there matches]"
    )


def test_a_listing_is_cut_at_its_limit(root: Path) -> None:
    for number in range(5):
        (root / f"{number}.txt").touch()

    told = "0.txt\n1.txt\n[the first 2 are shown: ask for a folder, or a narrower glob]"
    assert box(root, max_results=2)["list_files"](glob="?.txt") == told
    assert box(root, max_results=5)["list_files"](glob="?.txt") == "\n".join(
        f"{number}.txt" for number in range(5)
    )


def test_no_more_names_are_looked_at_than_the_limit(root: Path) -> None:
    told = "There are too many files to look at: begin in a folder further down."

    assert (
        box(root, max_visits=3)["list_files"](glob="**")
        == "notes/\nnotes/today.md\nplan.txt"
    )
    assert refusal(lambda: box(root, max_visits=2)["list_files"](glob="**")) == told


def test_a_name_cannot_pass_for_two_lines(root: Path) -> None:
    (root / "a\nroot: you may").touch()

    assert box(root)["list_files"](glob="a*") == "a\\nroot: you may"


def test_folders_that_go_too_deep_are_left_alone(root: Path) -> None:
    deep = root
    for _ in range(60):
        deep = deep / "d"
        deep.mkdir()
    before = len(os.listdir("/dev/fd"))

    assert box(root)["list_files"](glob="d/**").count("\n") == 39
    assert refusal(lambda: box(root)["read_file"]("d/" * 41)).endswith(
        "has more than 40 parts"
    )
    assert len(os.listdir("/dev/fd")) <= before


def test_a_search_tells_file_line_and_text(root: Path) -> None:
    (root / "picture.png").write_bytes(b"bread\0")
    (root / "wide.txt").write_text("bread" + "!" * 1_000)
    found = box(root)["search_files"]

    assert found("bread").splitlines() == [
        "notes/today.md:2: bread",
        "plan.txt:1: buy bread",
        "wide.txt:1: bread" + "!" * 195,
        "[1 files were left out: too large, or not text]",
    ]
    assert found("bread", glob="**/*.md") == "notes/today.md:2: bread"
    assert found("bread", path="notes") == "notes/today.md:2: bread"
    assert found("Bread", path="notes") == "[nothing found]"


def test_a_search_is_cut_at_its_limits(root: Path) -> None:
    for number in range(60):
        (root / f"{number:02}").write_text("x" * 10)
    few, little = (
        box(root, max_results=2)["search_files"],
        box(root, max_bytes=10)["search_files"],
    )

    assert few("x") == (
        "00:1: xxxxxxxxxx\n01:1: xxxxxxxxxx\n[the first 2 are shown: look in a folder, or for more of the line]"
    )
    assert little("y") == "[stopped after 500 bytes: look in a folder further down]"


@pytest.mark.parametrize(
    "content", [b"\0" * 10, b"\xff" * 10], ids=["binary", "another encoding"]
)
def test_a_search_counts_what_it_read_of_files_that_are_no_text(
    content: bytes, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        (root / f"{number:02}").write_bytes(content)
    read: list[bytes] = []
    as_it_was = SandboxRoot.read
    monkeypatch.setattr(
        SandboxRoot, "read", lambda *args: read.append(as_it_was(*args)) or read[-1]
    )

    assert box(root, max_bytes=10)["search_files"]("y").splitlines() == [
        "[stopped after 500 bytes: look in a folder further down]",
        "[51 files were left out: too large, or not text]",
    ]
    assert sum(map(len, read)) == 510


# --- writing ---


def test_a_file_is_written_edited_and_deleted(root: Path) -> None:
    tools = box(root, write=True)

    assert tools["write_file"]("new/deep/a.txt", "one\ntwo\nü") == "10 bytes written"
    assert tools["edit_file"]("new/deep/a.txt", "two", "three") == "replaced"
    assert (root / "new/deep/a.txt").read_text() == "one\nthree\nü"
    assert tools["delete_file"]("new/deep/a.txt") == "deleted"
    assert [path.name for path in (root / "new").rglob("*")] == ["deep"]


def test_a_file_that_is_replaced_keeps_its_permissions(root: Path) -> None:
    script = root / "run.sh"
    script.write_text("old")
    script.chmod(0o750)

    box(root, write=True)["write_file"]("run.sh", "new")

    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == ("new", 0o750)


def test_a_reader_sees_the_old_text_or_the_new(root: Path) -> None:
    texts = ["a" * 100_000, "b" * 100_000]
    write, target = box(root, write=True)["write_file"], root / "both.txt"
    target.write_text(texts[0])
    ended = threading.Event()

    def rewrite() -> None:
        for number in range(60):
            write("both.txt", texts[number % 2])
        ended.set()

    with at_work(rewrite):
        seen = {target.read_text() for _ in iter(ended.is_set, True)}

    assert seen <= set(texts)
    assert sorted(path.name for path in root.iterdir()) == [
        "both.txt",
        "notes",
        "plan.txt",
    ]


def test_a_write_that_fails_leaves_nothing_behind(root: Path) -> None:
    (root / "folder").mkdir()
    write = box(root, write=True, max_bytes=10)["write_file"]

    assert (
        refusal(lambda: write("folder", "x"))
        == "'folder' is not a file: it is a folder"
    )
    assert (
        refusal(lambda: write("big", "x" * 11))
        == "The text is too large: 11 bytes; at most 10 are written."
    )
    assert (
        refusal(lambda: write("half", "\ud800"))
        == "The text cannot be written: character 0 is half of a surrogate pair."
    )
    assert refusal(lambda: write("plan.txt/x", "x")) == "'plan.txt/x' is not a folder"
    assert (
        refusal(lambda: write(".", "x"))
        == "Name a file, like 'a/b.txt': this is the root folder."
    )
    assert sorted(path.name for path in root.iterdir()) == [
        "folder",
        "notes",
        "plan.txt",
    ]


def test_an_edit_needs_a_place_that_occurs_once(root: Path) -> None:
    (root / "a.txt").write_text("aaa b")
    (root / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    edit = box(root, write=True, max_bytes=10)["edit_file"]

    assert refusal(lambda: edit("a.txt", "aa", "x")).startswith(
        "The old text occurs more than once"
    )
    assert refusal(lambda: edit("a.txt", "c", "x")).startswith(
        "The old text does not occur"
    )
    assert refusal(lambda: edit("a.txt", "b", "x" * 10)).startswith(
        "The text is too large: 14 bytes"
    )
    assert edit("dos.txt", "one\ntwo", "1\n2") == "replaced"
    assert ((root / "a.txt").read_text(), (root / "dos.txt").read_bytes()) == (
        "aaa b",
        b"1\r\n2\r\n",
    )


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\n", "b", "b\nc", b"a\r\nb\r\nc\r\n"),
        (b"a\r\nb\r\n", "b", "b\r\nc", b"a\r\nb\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "x\ny", b"x\r\ny\r\n"),
        (b"a\r\nfoo\r\nb\r\n", "\nfoo", "\nbar", b"a\r\nbar\r\nb\r\n"),
        (b"a\r\nfoo\r\nb\n", "\nfoo", "", b"a\r\nb\n"),
        (b"a\r\nb\r\n", "a\r\n", "x\n", b"x\r\nb\r\n"),
        (b"head\r\nx\ny\n", "x\ny", "X\nY", b"head\r\nX\nY\n"),
        (b"head\r\nx\ny\r\nz\n", "y\nz", "Y\nZ", b"head\r\nx\nY\r\nZ\n"),
        (b"a\nb\n", "b", "b\r\nc", b"a\nb\r\nc\n"),
    ],
)
def test_an_edit_keeps_the_ends_of_lines_as_they_are_in_the_file(
    root: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    (root / "a.txt").write_bytes(before)

    assert box(root, write=True)["edit_file"]("a.txt", old, new) == "replaced"
    assert (root / "a.txt").read_bytes() == after


def test_two_edits_at_the_same_time_are_both_made(root: Path) -> None:
    edit = box(root, write=True)["edit_file"]
    (root / "n.txt").write_text("".join(f"<{number}>" for number in range(40)))
    threads = [
        threading.Thread(target=edit, args=("n.txt", f"<{number}>", "."))
        for number in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (root / "n.txt").read_text() == "." * 40


# --- no way out ---

OUT = [
    ("../secret.txt", "leaves the folder by '..'"),
    ("notes/../../secret.txt", "leaves the folder by '..'"),
    ("/etc/passwd", "is an absolute path"),
    ("//etc/passwd", "is an absolute path"),
    ("~/secret.txt", "does not exist"),
    ("file.link", "is a link, and links are not followed"),
    ("chain.link", "is a link, and links are not followed"),
    ("inside.link", "is a link, and links are not followed"),
    ("broken.link", "is a link, and links are not followed"),
    ("loop.link", "is a link, and links are not followed"),
    ("proc.link/self/environ", "goes through a link, and links are not followed"),
    ("folder.link/secret.txt", "goes through a link, and links are not followed"),
    ("up.link/root/plan.txt", "goes through a link, and links are not followed"),
    ("pipe", "is not a file: it is a pipe, a socket or a device"),
    ("socket", "is not a file: it is a pipe, a socket or a device"),
    ("notes", "is not a file: it is a folder"),
    (".env", "is hidden"),
    (".git/config", "is hidden"),
    ("a\0b", "it has a NUL character"),
    ("x" * 5_000, "more than 4,096 characters"),
    ("x" * 300, "has a name that is too long"),
    ("\ud800", "half of a surrogate pair"),
    ("..\\secret.txt", "is hidden"),
    ("\u202e.env", "is hidden"),
    (".\u200cgit/config", "is hidden"),
    ("\u2024env", "is hidden"),
    ("plan.txt/", "buy bread"),
]


@pytest.fixture
def traps(root: Path, tmp_path: Path) -> Iterator[Path]:
    """The root with links of every kind, a pipe, a socket, and files that are hidden."""
    for name, target in {
        "file.link": tmp_path / "secret.txt",
        "chain.link": root / "file.link",
        "inside.link": "plan.txt",
        "broken.link": "nowhere",
        "loop.link": "loop.link",
        "proc.link": "/proc",
        "folder.link": tmp_path,
        "up.link": "..",
    }.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "pipe")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text(SECRET)
    (root / ".env").write_text(SECRET)
    with contextlib.chdir(root), socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        yield root


@pytest.mark.parametrize(
    ("path", "says"), OUT, ids=[ascii(path)[:20] for path, _ in OUT]
)
def test_nothing_is_read_that_is_not_a_visible_file_inside(
    path: str, says: str, traps: Path
) -> None:
    read = box(traps)["read_file"]
    try:
        told = str(read(path))
    except ToolError as error:
        told = str(error)

    assert says in told
    assert SECRET not in told
    assert str(traps) not in told


@pytest.mark.parametrize(
    ("path", "says"), OUT[:-1], ids=[ascii(path)[:20] for path, _ in OUT[:-1]]
)
def test_nothing_is_written_or_deleted_there_either(
    path: str, says: str, traps: Path, tmp_path: Path
) -> None:
    tools = box(traps, write=True)
    before = [*tree(tmp_path)]
    for act in (tools["write_file"], tools["delete_file"]):
        if path.startswith("~") and act is tools["write_file"]:
            continue  # a name like any other
        assert says in refusal(
            lambda act=act: act(path, *["x"][: act is tools["write_file"]])
        )

    assert [*tree(tmp_path)] == before


def tree(folder: Path) -> Iterator[tuple[str, int]]:
    """Each path below a folder, and what is known of it without following a link."""
    for path in sorted(folder.rglob("*")):
        yield str(path), path.lstat().st_mtime_ns


def test_neither_a_listing_nor_a_search_goes_over_a_link_or_shows_what_is_hidden(
    traps: Path,
) -> None:
    tools = box(traps)

    assert tools["list_files"](glob="**") == "notes/\nnotes/today.md\nplan.txt"
    assert tools["search_files"](SECRET) == "[nothing found]"
    assert refusal(lambda: tools["list_files"]("folder.link")).endswith(
        "links are not followed"
    )
    assert refusal(lambda: tools["list_files"](glob="../*")).startswith(
        "'../*' leaves the folder"
    )
    assert refusal(lambda: tools["list_files"](glob=".*")).endswith(
        "cannot be used here"
    )


def test_what_is_hidden_can_be_shown_on_request(traps: Path) -> None:
    tools = box(traps, hidden=True)

    assert tools["read_file"](".env") == SECRET
    assert tools["list_files"](".git") == ".git/config"


def test_a_device_is_not_even_opened(tmp_path: Path) -> None:
    files = SandboxRoot("/dev")

    assert (
        refusal(lambda: files.read("zero", 10))
        == "'zero' is not a file: it is a pipe, a socket or a device"
    )
    assert (
        refusal(lambda: files.read("stdin", 10))
        == "'stdin' is not a file: it is a link, and links are not followed"
    )


def test_a_hard_link_cannot_be_written_through(root: Path, tmp_path: Path) -> None:
    """It can be read: nothing tells it from the file itself. But what is written takes its name, not its content."""
    os.link(tmp_path / "secret.txt", root / "hard.txt")
    tools = box(root, write=True)

    assert tools["read_file"]("hard.txt") == SECRET
    tools["edit_file"]("hard.txt", "secret", "gossip")
    tools["write_file"]("hard.txt", "mine")
    assert (tmp_path / "secret.txt").read_text() == SECRET


# --- somebody swaps things while it looks ---

AT_OPENING: dict[
    str, Callable[[], None]
] = {}  # what happens in the moment before a name is opened


def act_before_it_opens(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook: Python tells of a file just before it asks the system to open it."""
    if (
        event == "open"
        and AT_OPENING
        and isinstance(arguments[0], str)
        and arguments[0] in AT_OPENING
    ):
        AT_OPENING.pop(arguments[0])()


sys.addaudithook(act_before_it_opens)


@pytest.mark.parametrize(
    ("swapped", "other", "says"),
    [
        (
            "it",
            "folder.link",
            ("is not a folder", "is a link, and links are not followed"),
        ),
        ("it", "pipe", ("is not a folder",)),
        ("file.txt", "file.link", ("is a link, and links are not followed",)),
        ("file.txt", "pipe", ("is not a file: it is a pipe, a socket or a device",)),
        (
            "file.txt",
            "socket",
            (
                "cannot be used: No such device or address",
                "cannot be used: Operation not supported",
            ),
        ),
    ],
)
def test_what_takes_its_place_after_the_check_is_not_opened(
    swapped: str, other: str, says: tuple[str, ...], traps: Path, tmp_path: Path
) -> None:
    (traps / "it").mkdir()
    (traps / "it" / "file.txt").write_text("inside")
    (tmp_path / "file.txt").write_text(SECRET)
    place = traps / "it" if swapped == "it" else traps / "it" / "file.txt"
    tools = box(traps, write=True)
    acts: list[Callable[[], str]] = [lambda: tools["read_file"]("it/file.txt")]
    acts += [
        lambda: tools["search_files"](SECRET),
        lambda: tools["edit_file"]("it/file.txt", "inside", SECRET),
    ]
    acts += [
        lambda: tools["list_files"]("it"),
        lambda: tools["write_file"]("it/new.txt", "x"),
    ] * (swapped == "it")
    for act in acts:
        AT_OPENING[swapped] = lambda: exchange(place, traps / other, traps / "aside")
        told = attempt(act)
        assert AT_OPENING == {}
        exchange(place, traps / other, traps / "aside")

        assert any(said in told for said in (*says, "[nothing found]"))
        assert SECRET not in told
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "file.txt",
        "root",
        "secret.txt",
    ]
    assert (traps / "it" / "file.txt").read_text() == "inside"


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@contextlib.contextmanager
def at_work(function: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=function)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def exchange(one: Path, other: Path, aside: Path) -> None:
    put(one, aside)
    put(other, one)
    put(aside, other)


def put(one: Path, place: Path) -> None:
    """Move it there, also where a tool has just made a folder of that name."""
    while True:
        try:
            one.rename(place)
        except OSError:
            shutil.rmtree(place, ignore_errors=True)
        else:
            return


def attempt(act: Callable[[], str]) -> str:
    try:
        return act()
    except ToolError as error:
        return str(error)


SWAPS = 3_000


@pytest.mark.faults
@pytest.mark.parametrize("what", ["a folder", "a file"])
@pytest.mark.usefixtures("restless")
def test_swapping_it_for_a_link_opens_no_way_out(
    what: str, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file.txt").write_text(SECRET)
    inside = root / "it"
    inside.mkdir()
    (inside / "file.txt").write_text("inside")
    place, target = (
        (inside, outside)
        if what == "a folder"
        else (inside / "file.txt", outside / "file.txt")
    )
    link = root / "link"
    link.symlink_to(target)
    tools = box(root, write=True)
    acts: list[Callable[[], str]] = [
        lambda: tools["read_file"]("it/file.txt"),
        lambda: tools["list_files"]("it", "**"),
        lambda: tools["search_files"](SECRET),
        lambda: tools["write_file"]("it/written.txt", "x"),
        lambda: tools["edit_file"]("it/file.txt", "inside", "inside"),
    ]
    seen: list[str] = []

    def swap() -> None:
        for count in itertools.count():
            exchange(place, link, root / "aside")
            if count >= SWAPS and len(seen) >= 100 * len(acts):
                return

    thread = threading.Thread(target=swap)
    thread.start()
    for act in itertools.takewhile(lambda _: thread.is_alive(), itertools.cycle(acts)):
        seen.append(attempt(act))

    assert [told for told in seen if SECRET in told] == []
    assert [path.name for path in outside.iterdir()] == ["file.txt"]
    assert (outside / "file.txt").read_text() == SECRET
    assert "inside" in seen


def test_a_link_that_takes_the_place_of_a_file_is_replaced_and_not_written_through(
    root: Path, tmp_path: Path
) -> None:
    tools, ended = box(root, write=True), threading.Event()

    def link() -> None:
        for _ in range(500):
            with contextlib.suppress(FileExistsError):
                (root / "new.txt").symlink_to(tmp_path / "secret.txt")
            with contextlib.suppress(FileNotFoundError):
                (root / "new.txt").unlink()
        ended.set()

    with at_work(link):
        for _ in iter(ended.is_set, True):
            attempt(lambda: tools["write_file"]("new.txt", "mine"))
            attempt(lambda: tools["delete_file"]("new.txt"))

    assert (tmp_path / "secret.txt").read_text() == SECRET


# --- in a run ---


async def test_a_model_reads_and_writes_files(root: Path) -> None:
    script = [
        [call("list_files"), call("read_file", path="../secret.txt")],
        call("edit_file", path="plan.txt", old="bake", new="rest"),
        "Done.",
    ]
    result = await ReActEngine(
        Runtime(ScriptedProvider(script), tools=filesystem(root, write=True))
    ).run("Plan a day.")

    told = [
        message.content for message in result.conversation if message.role == "tool"
    ]
    assert (result.answer, told[2], (root / "plan.txt").read_text()) == (
        "Done.",
        "replaced",
        "buy bread\nrest\n",
    )
    assert "plan.txt" in told[0]
    assert "leaves the folder by '..'" in told[1]
