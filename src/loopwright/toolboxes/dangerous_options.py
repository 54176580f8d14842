"""Options by which known programs start other programs, load code or write files that no operand names.

Sources: the manuals of the programs, and GTFOBins (https://gtfobins.github.io).
"""

import functools
import re
from collections.abc import Mapping

from .._internal import dataclasses

# Programs that run whatever their operands say: another program, or code in a language of their own.
_RUNNERS = (
    "ash awk bash busybox chroot csh dash doas docker ed emacs env ex expect fish flock gawk "
    "gdb ionice ksh less lua make man mawk more nawk nice node nohup nsenter parallel perl "
    "php podman psql python ruby runuser sed setarch setpriv setsid sh sqlite3 ssh stdbuf "
    "strace su sudo systemd-run taskset tclsh time timeout tmux unshare vi view vim watch "
    "xargs zsh"
)


@dataclasses.dataclass(frozen=True)
class DangerousOptions:
    """The dangerous options of one program.

    Args:
        names: options with a name, between blanks: "--to-command", and "-exec" of programs with
            long names behind one dash.
        short: one-character options, which may stand together, as in `-xI`.
        bundled: whether the first argument may be such options without a dash, as tar takes them.
        prefixes: how other dangerous arguments begin: "ext::" of git.
        harmless: long options that are the beginning of a dangerous one and are none.
    """

    names: str = ""
    short: str = ""
    bundled: bool = False
    prefixes: tuple[str, ...] = ()
    harmless: str = ""

    @functools.cached_property
    def all_names(self) -> tuple[str, ...]:
        """Return the options with a name."""
        return tuple(self.names.split())

    def find(self, argument: str, position: int) -> str:
        """Return the dangerous option that an argument is or abbreviates; empty if it is harmless."""
        if argument.startswith(self.prefixes):
            return argument
        name = argument.partition("=")[0]
        if argument.startswith("--"):
            if name in self.harmless.split():
                return ""
            return next((o for o in self.all_names if _abbreviates(name, o)), "")
        if name in self.all_names:
            return name
        cluster = re.match("-?[A-Za-z]*", argument) if self.short else None
        is_option = argument.startswith("-") or (self.bundled and position == 0)
        if cluster is None or not is_option:
            return ""
        return next((f"-{one}" for one in cluster[0] if one in self.short), "")

    def is_named_by(self, pattern: str) -> bool:
        """Whether a pattern of arguments names a dangerous option itself, in full."""
        start = re.split(r"[*?\[]", pattern)[0]
        if start.partition("=")[0] in self.all_names or start.startswith(self.prefixes):
            return True
        return start[:1] == "-" and start[1:2] != "" and start[1] in self.short


def _abbreviates(name: str, option: str) -> bool:
    """Whether a long option is another one, or a beginning of it, as getopt takes it."""
    return len(name) > 2 and option.startswith(name)


_OPTIONS: Mapping[str, DangerousOptions] = {
    "tar": DangerousOptions(
        "--checkpoint-action --to-command --use-compress-program --info-script "
        "--new-volume-script --rsh-command --rmt-command --files-from --absolute-names "
        "--index-file --volno-file --directory",
        short="IFPC",
        bundled=True,
        harmless="--file --checkpoint",
    ),
    "find": DangerousOptions(
        "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from",
    ),
    "fd": DangerousOptions(
        "--exec --exec-batch",
        short="xX",
    ),
    "git": DangerousOptions(
        "--upload-pack --receive-pack --exec --exec-path --config --config-env --output "
        "--open-files-in-pager --ext-diff --textconv --template --git-dir --work-tree --extcmd "
        "--tool --editor --remote --no-index -c -C -u -x",
        prefixes=("ext::", "fd::", "-O"),
    ),
    "hg": DangerousOptions(
        "--config --ssh --remotecmd --debugger",
    ),
    "zip": DangerousOptions(
        "--test --unzip-command",
        short="T",
        prefixes=("-TT",),
    ),
    "rsync": DangerousOptions(
        "--rsh --rsync-path --files-from --log-file --write-batch --only-write-batch "
        "--include-from --exclude-from --password-file --early-input",
        short="e",
    ),
    "scp": DangerousOptions(
        "",
        short="FoSJ",
    ),
    "sftp": DangerousOptions(
        "",
        short="FoSbDJ",
    ),
    "curl": DangerousOptions(
        "--output --output-dir --remote-name --remote-name-all --config --upload-file "
        "--cookie-jar --dump-header --trace --trace-ascii --stderr --engine --data --data-binary "
        "--form --netrc-file --libcurl --hsts --alt-svc --etag-save --proxy --key --cert "
        "--unix-socket --data-urlencode --data-raw --json --preproxy",
        short="oOKTcDdFxE",
    ),
    "wget": DangerousOptions(
        "--output-document --output-file --append-output --use-askpass --config --execute "
        "--directory-prefix --post-file --body-file --input-file --post-data --body-data "
        "--save-cookies --load-cookies --hsts-file --warc-file --rejected-log",
        short="OoaeiP",
    ),
    "sort": DangerousOptions(
        "--compress-program --output --files0-from --temporary-directory",
        short="oT",
    ),
    "split": DangerousOptions(
        "--filter",
    ),
    "shuf": DangerousOptions(
        "--output",
        short="o",
    ),
    "grep": DangerousOptions(
        "--file",
        short="f",
    ),
    "rg": DangerousOptions(
        "--file --pre --hostname-bin --search-zip",
        short="fz",
    ),
    "diff": DangerousOptions(
        "--to-file --from-file --output",
        short="o",
    ),
    "date": DangerousOptions(
        "--set --file",
        short="sf",
    ),
    "file": DangerousOptions(
        "--files-from --magic-file --compile",
        short="fmC",
    ),
    "wc": DangerousOptions(
        "--files0-from",
    ),
    "du": DangerousOptions(
        "--files0-from --exclude-from",
        short="X",
    ),
    "cpio": DangerousOptions(
        "--rsh-command --to-stdout --file --no-absolute-filenames",
        short="FOE",
    ),
    "gcc": DangerousOptions(
        "-wrapper",
        prefixes=("@", "-fplugin", "-specs", "-B"),
    ),
    "tcpdump": DangerousOptions(
        "",
        short="zwWGCF",
    ),
    "pytest": DangerousOptions(
        "--rootdir --config-file --confcutdir --basetemp --override-ini",
        short="pco",
    ),
    "jq": DangerousOptions(
        "--from-file --rawfile --slurpfile --library-path",
        short="fL",
    ),
    "go": DangerousOptions(
        "-exec -toolexec -overlay",
    ),
}
"""The dangerous options of programs that are known."""


def _normalize(name: str) -> str:
    """Return the name by which a program is listed: `python3.11` is `python`, `bsdtar` is `tar`."""
    if name in ("gtar", "bsdtar", "star"):
        return "tar"
    if name in _OPTIONS or name in _RUNNERS.split():
        return name
    return re.sub(r"-?[0-9][0-9.]*\Z", "", name)


def is_runner(program: str) -> bool:
    """Whether a program runs whatever its operands say."""
    return _normalize(program) in _RUNNERS.split()


def options_of(program: str) -> DangerousOptions:
    """Return the dangerous options of a program, none for one that is not known."""
    return _OPTIONS.get(_normalize(program), DangerousOptions())
