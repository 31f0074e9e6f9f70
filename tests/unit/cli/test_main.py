"""The command line as a whole: help, mistakes, speed, documents."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog.cli import COMMANDS, EXIT_CODES, cluster, main, parser_of
from kafkalog.cli.common import CODECS, parse_moment, parse_time, preview, show_bytes, show_time
from kafkalog.cli.documents import render_markdown
from kafkalog.cli.inputs import timestamp_parser
from kafkalog.directory.manager import Manager
from kafkalog.log.log import Log
from tests.support.waiting import LIMIT_S
from tests.unit.cli.conftest import Command

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_has_an_example_and_the_exit_codes(kafkalog: Command, command: str) -> None:
    """`--help` of each command has an example and the exit codes."""
    ran = kafkalog(command, "--help")
    assert ran.status == 0
    assert "example:\n" in ran.out and f"kafkalog {command}" in ran.out
    assert all(text in ran.out for text in EXIT_CODES.values())


def examples() -> list[str]:
    """Every example line of every command."""
    import importlib

    found = []
    for command in COMMANDS:
        text = importlib.import_module(f"kafkalog.cli.{command.replace('-', '_')}").EXAMPLES
        found += text.replace("\\\n", " ").splitlines()[1:]
    return [line.strip() for line in found if line.strip()]


@pytest.mark.parametrize("line", examples())
def test_examples_are_taken_by_their_parsers(line: str) -> None:
    """Newcomers copy them, so none may be refused."""
    import shlex

    words = shlex.split(line.split(" | ")[0], comments=True)
    words = [word for word in words if not word.startswith("KAFKALOG_")]
    assert words[0] == "kafkalog"
    parser_of(words[1]).parse_args(words[2:])


def test_help_of_all_names_every_command(kafkalog: Command) -> None:
    """Also with no arguments at all."""
    for words in ([], ["--help"]):
        ran = kafkalog(*words)
        assert ran.status == 0
        assert all(f"  {name} " in ran.out for name in COMMANDS)
    assert kafkalog("--version").out.startswith("kafkalog")


def test_help_names_each_command_and_action_in_a_line_of_its_own(kafkalog: Command) -> None:
    """With what it does, in 80 columns."""
    for words, texts in ((["--help"], COMMANDS), (["cluster", "--help"], cluster.ACTIONS)):
        lines = kafkalog(*words).out.splitlines()
        shown = {line.split()[0]: line for line in lines if re.match(r"  [a-z]", line)}
        for name, text in texts.items():
            assert shown[name].split(maxsplit=1) == [name, text]
            assert len(shown[name]) <= 80
    assert "\nactions (each has --help):\n  list " in kafkalog("groups", "--help").out
    assert "unregister" not in kafkalog("cluster", "status", "--help").out


@pytest.mark.parametrize("command", ["topics", "groups", "consume", "cluster", "offsets"])
def test_an_address_of_another_protocol_is_refused_with_the_reason(
    kafkalog: Command, command: str
) -> None:
    words = ["--topic", "orders"] if command == "consume" else []
    ran = kafkalog(command, *words, "--bootstrap-server", "SASL_SSL://host:9093")
    assert (ran.status, ran.err) == (
        2,
        "kafkalog: server 'SASL_SSL://host:9093': found SASL_SSL, but security.protocol is "
        "PLAINTEXT\n",
    )


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("SSL", "listener SSL: ssl.keystore.location: found none, wanted the key and certificate"),
        ("SASL_SSL", "sasl.enabled.mechanisms: found GSSAPI, which is not supported; wanted PLAIN"),
    ],
)
def test_a_secured_listener_without_settings_is_refused_with_the_reason(
    tmp_path: Path, protocol: str, said: str
) -> None:
    status, told = served(tmp_path, f"{protocol}://127.0.0.1:0")
    assert status == 2 and said in told


def test_an_unknown_option_is_named_with_the_nearest(kafkalog: Command) -> None:
    for words, said in (
        (["verify", "d", "--zzz"], "verify: no option --zzz; see"),
        (["test-broker", "--prot", "1"], "no option --prot (did you mean --port?); see"),
        (["holds", "--dir", "d", "x", "y"], "unexpected argument"),
        (["cluster", "try", "--port", "65533"], "found 65533, wanted at most 65530: 5 follow it"),
    ):
        ran = kafkalog(*words)
        assert (ran.status, ran.out) == (2, "") and said in ran.err


def test_mistakes_are_one_line_and_status_2(kafkalog: Command) -> None:
    """An unknown command gets the nearest known one as a hint; argparse names the options."""
    ran = kafkalog("consme")
    assert (ran.status, ran.err) == (2, "kafkalog: no command 'consme'; did you mean consume?\n")
    ran = kafkalog("consume", "--dir")
    assert (ran.status, "--dir" in ran.err) == (2, True)
    for words in (["--nonsense"], ["topics"], ["consume", "--dir", "d", "--order", "x"],
                  ["verify", "--nonsense"]):  # fmt: skip
        ran = kafkalog(*words)
        assert (ran.status, ran.out) == (2, "")
        assert ran.err.startswith("kafkalog: ") and ran.err.count("\n") == 1
        assert ran.err.endswith(" --help\n")


def test_help_imports_nothing_heavy() -> None:
    """Neither the C core nor numpy: --help takes only as long as Python's own start."""
    code = (
        "import sys; from kafkalog.cli import main; main(['--help']); main(['ingest', '--help']);"
        "bad = [m for m in ('numpy', 'pyarrow', 'cffi', 'kafkalog._native', 'zstandard')"
        " if m in sys.modules]; sys.exit(str(bad) if bad else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                         check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stderr


def test_python_dash_m(tmp_path: Path) -> None:
    """`python -m kafkalog` runs the command and returns its exit status."""
    ran = subprocess.run(
        [sys.executable, "-m", "kafkalog", "verify", str(tmp_path / "none")], cwd=ROOT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("shell", "status", "told"),
    [
        (
            "consume --dir d --topic t >&-",
            1,
            "kafkalog: Bad file descriptor; the output was closed",
        ),
        ("topics --dir d >&-", 1, "kafkalog: Bad file descriptor; the output was closed"),
        ("topics --dir d >&- 2>&-", 1, ""),
        ("topics --dir nope 2>&-", 2, ""),
        ("consume --dir d --topic t > /dev/full", 1, "kafkalog: No space left on device"),
        ("ingest - --dir e --topic t <&-", 2, "kafkalog: -: the standard input is closed"),
        ("verify d <&-", 0, ""),
        ("ingest t.txt --dir e --topic t <&-", 0, ""),
    ],
)
def test_streams_that_are_closed_or_full(
    tmp_path: Path, shell: str, status: int, told: str
) -> None:
    """At most one line on stderr; the output never ends up in a data file."""
    with Log(tmp_path / "d" / "t-0") as log:
        log.append(b"x" * 100_000)
    (tmp_path / "t.txt").write_text("a\n")
    before = (tmp_path / "d" / "t-0" / f"{0:020}.log").read_bytes()
    command = f"{sys.executable} -m kafkalog {shell}"
    ran = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60)  # fmt: skip
    assert ran.returncode == status, ran
    said = ran.stderr.strip()
    assert said.startswith(told) and (bool(said) is bool(told)) and "\n" not in said
    assert (tmp_path / "d" / "t-0" / f"{0:020}.log").read_bytes() == before


def test_frequent_failures_suggest_a_remedy(kafkalog: Command, tmp_path: Path) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
        refused = kafkalog("topics", "--bootstrap-server", f"127.0.0.1:{port}")
        assert refused.status == 1
        assert refused.err.endswith("nothing listens there; kafkalog serve starts a broker\n")
        one.listen()
        status, told = served(tmp_path, f"127.0.0.1:{port}")
        assert status == 1 and "another port" in told
    with Manager(tmp_path / "d"):
        status, told = served(tmp_path, "127.0.0.1:0")
        assert status == 1 and "--bootstrap-server" in told


def served(folder: Path, listen: str) -> tuple[int, str]:
    """Status and stderr of `kafkalog serve`, run as a process because it configures logging."""
    command = [sys.executable, "-m", "kafkalog", "serve", "--dir", "d", "--listen", listen]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S,
                         env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    return ran.returncode, ran.stderr


def test_debug_shows_the_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKALOG_DEBUG=1 raises the exception itself."""
    monkeypatch.setenv("KAFKALOG_DEBUG", "1")
    with pytest.raises(FileNotFoundError):
        main(["verify", str(tmp_path / "none")])


def test_the_help_of_an_action_has_its_own_options(kafkalog: Command) -> None:
    """For an action as a word or as Kafka's option; other actions' options are refused by name."""
    for words in (["topics", "create"], ["topics", "--create"]):
        shown = kafkalog(*words, "--help").out
        assert "usage: kafkalog topics create" in shown
        assert "Create topics." in shown
        assert "--replication-factor" in shown and "--bootstrap-server" in shown
        assert "--draw" not in shown and "--if-exists" not in shown
    shown = kafkalog("groups", "reset-offsets", "--help").out
    assert "--shift-by" in shown and "--members" not in shown
    assert "--shift-by" not in kafkalog("groups", "list", "--help").out
    assert "--add-config" not in kafkalog("configs", "describe", "-h").out
    ran = kafkalog("topics", "list", "--partitions", 3, "--bootstrap-server", "localhost:1")
    assert ran.status == 2
    assert "topics list: --partitions is an option of create and alter" in ran.err


def test_the_environment_names_the_broker(
    kafkalog: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """--bootstrap-server and --dir override KAFKALOG_BOOTSTRAP_SERVERS."""
    words = ["topics", "list", "--request-timeout-ms", 200]
    assert "--bootstrap-server" in kafkalog(*words).err
    monkeypatch.setenv("KAFKALOG_BOOTSTRAP_SERVERS", "localhost:1")
    ran = kafkalog(*words)
    assert (ran.status, "localhost:1" in ran.err) == (1, True)
    ran = kafkalog(*words, "--bootstrap-server", "localhost:2")
    assert (ran.status, "localhost:2" in ran.err) == (1, True)
    assert kafkalog(*words, "--dir", tmp_path) == (0, "", "")


def test_failpoints_are_not_for_users(kafkalog: Command) -> None:
    assert "failpoints" not in kafkalog("--help").out
    assert "failpoints" not in render_markdown()


def test_failpoints(kafkalog: Command) -> None:
    """The test build lists them; the normal build says how to get it."""
    from kafkalog._native import lib

    ran = kafkalog("failpoints")
    if hasattr(lib, "kl_failpoint_count"):
        assert ran.status == 0
        names = ran.out.split()
        assert len(names) == lib.kl_failpoint_count() > 10
        assert all("." in name for name in names)
    else:
        assert (ran.status, "KAFKALOG_NATIVE=test" in ran.err) == (2, True)


def test_the_document_is_fresh() -> None:
    """docs/cli.md is what the parsers render."""
    assert (ROOT / "docs" / "cli.md").read_text() == render_markdown()


def test_codecs_are_the_engines() -> None:
    """--compression offers the engine's codecs, in the order of their numbers."""
    from kafkalog.batch.codecs import codec_name

    assert [codec_name(i) for i in range(5)] == list(CODECS)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01", 0),
        ("2026-07-04T12:00:00Z", 1_783_166_400_000),
        ("2026-07-04 14:00:00,25+02:00", 1_783_166_400_250),
        ("2026-07-04T12:00:00.123456789Z", 1_783_166_400_123),
        ("1783166400", 1_783_166_400_000),
        ("1783166400000", 1_783_166_400_000),
        ("1783166400.5", 1_783_166_400_500),
    ],
)
def test_times_in(text: str, ms: int) -> None:
    """ISO 8601 in its usual spellings, and numbers of seconds or milliseconds."""
    assert parse_time(text) == ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("6000", 6000),
        ("86400000", 86_400_000),
        ("1783166400000", 1_783_166_400_000),
        ("1970-01-02", 86_400_000),
        ("1969-01-01", 0),
    ],
)
def test_a_number_that_an_option_gives_is_of_milliseconds(text: str, ms: int) -> None:
    """However small, as the help and Kafka's tools document it."""
    assert parse_moment(text) == ms


@pytest.mark.parametrize("text", ["-1", "-6000", "1.5", "noon", ""])
def test_invalid_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"found|Invalid"):
        parse_moment(text)


def test_times_by_format() -> None:
    """A format without a year uses the given year, also for leap days."""
    from datetime import timezone
    from zoneinfo import ZoneInfo

    leap = timestamp_parser("%b %d %H:%M", timezone.utc, 2024)
    assert show_time(leap("Feb 29 12:30")) == "2024-02-29T12:30:00.000Z"
    berlin = timestamp_parser("%Y-%m-%d %H:%M", ZoneInfo("Europe/Berlin"), None)
    assert show_time(berlin("2026-07-04 12:00")) == "2026-07-04T10:00:00.000Z"
    with pytest.raises(ValueError, match="before 1970"):
        berlin("1960-01-01 00:00")
    with pytest.raises(ValueError, match="does not have the format '%b %d %H:%M'"):
        leap("Feb 30 12:30")


def test_numbers_out() -> None:
    """Sizes, times and byte strings as people read them."""
    assert [show_bytes(n) for n in (0, 1023, 1536, 3 << 20, 5 << 40)] == [
        "0 B", "1023 B", "1.5 KiB", "3.0 MiB", "5.0 TiB",
    ]  # fmt: skip
    assert show_time(-1) == "-"
    assert show_time(1 << 60).endswith(" ms")
    assert preview(None) == "null"
    assert preview(b"a\n\xff") == '"a\\n\\\\xff"'
    assert preview(b"x" * 100, 10) == '"xxxxxxxxxx"…'
