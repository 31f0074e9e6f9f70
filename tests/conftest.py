"""What all tests share: where data lies, the seed, and the test build of the C core."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import re
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.support import brokers, cases, messages, sharing
from tests.support.effort import SEED, examples
from tests.support.waiting import LIMIT_S, wait_for

ROOT = Path(__file__).resolve().parent.parent
ROOM = 4 << 30
"""So many bytes have to be free in memory for tests to lie there."""

# Where the test build exists, the whole run uses it: the same sources, with failpoints and
# an I/O table that can fail.  KAFKALOG_NATIVE=release asks for the other one.
if any((ROOT / "kafkalog" / "_native").glob("_kl_test*.so")):
    os.environ.setdefault("KAFKALOG_NATIVE", "test")

# Without a database, as an example that a run kept would make the next one another.
hypothesis.settings.register_profile(
    "kafkalog",
    max_examples=examples(50),
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("kafkalog")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """One seed for everything that is random, unless the caller gave Hypothesis its own.

    A shell starts what it puts into the background with SIGINT ignored, which every child
    inherits; tests of Ctrl-C need what a terminal gives.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = SEED


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """What `-n auto` is."""
    return sharing.processes()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of `--dist loadfile`."""
    return sharing.Scheduling(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    messages.take_apart(node)


def pytest_sessionstart(session: pytest.Session) -> None:
    messages.send_together(session.config)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """All that is collected lives as long as the run: Python shall not look through it for
    garbage, neither now nor in tests.  There it looks less often than by default, which took one
    twelfth of the processor time of tests that make many objects."""
    gc.disable()
    try:
        sharing.import_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What Hypothesis drives can always look for more.  Files that take long come first, Spark's
    and what is tried on Apache Kafka before them, so that all processes end at about the same time;
    the files of a folder are spread, as those that wait are next to each other."""
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.explore)
    long = {item.path for item in items if item.get_closest_marker("slow")}
    rank = sharing.spread({item.path for item in items})
    items.sort(
        key=lambda item: (
            not sharing.SPARK.search(str(item.path)),
            not sharing.KAFKA.match(item.nodeid),
            item.path not in long,
            rank[item.path],
        )
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """A test leaves Ctrl-C and SIGTERM as they were: a later one would fail for it.  PySpark does
    not."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    found = yield
    if [signal.getsignal(number) for number in numbers] != before and not (
        item.get_closest_marker("spark")
    ):
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        raise AssertionError("the test changed what SIGINT or SIGTERM does, and left it so")
    return found


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What one needs to run the same again."""
    return [
        f"seed: {SEED} (repeat with KAFKALOG_SEED={SEED})",
        f"what Kafka wrote: {cases.folder()}",
        f"C core: {os.environ.get('KAFKALOG_NATIVE', 'release')} build",
    ]


@pytest.fixture(scope="session")
def kafka_cases() -> Path:
    """The data directories that Kafka wrote, a folder each; not to be written to."""
    return cases.folder()


@contextlib.contextmanager
def _served(request: pytest.FixtureRequest, wait_until: Callable[..., None]) -> Iterator[Any]:
    """A broker of the fixture's side."""
    if request.param == "kafka":
        yield request.getfixturevalue("apache_kafka")
        return
    with (
        _folder(request.getfixturevalue("memory")) as folder,
        brokers.running(request.param, folder / "log") as found,
    ):
        wait_until(lambda: answers(found), "the broker takes connections")
        yield found


@pytest.fixture(scope="session")
def apache_kafka(
    tmp_path_factory: pytest.TempPathFactory, wait_until: Callable[..., None]
) -> Iterator[Any]:
    """`host:port` of an Apache Kafka for all tests of this process: to start one takes seconds."""
    with brokers.running("kafka", tmp_path_factory.mktemp("apache") / "log") as found:
        wait_until(lambda: answers(found), "the broker takes connections")
        yield found


@pytest.fixture(scope="module", params=brokers.SIDES)
def servers(request: pytest.FixtureRequest, wait_until: Callable[..., None]) -> Iterator[str]:
    """`host:port` of a broker, Apache Kafka's and then ours.

    Ours is one for all tests of a file and no longer, as it lives in this process, whose disk
    other tests let fail.  Each test has topics and groups of its own there.
    """
    with _served(request, wait_until) as found:
        yield found


@pytest.fixture(scope="module", params=brokers.PLACES)
def where(request: pytest.FixtureRequest, wait_until: Callable[..., None]) -> Iterator[Any]:
    """As `servers`, and then ours without a port: what a client is told of where to go."""
    with _served(request, wait_until) as found:
        yield found


def answers(where: Any) -> bool:
    """Whether a broker answers a client."""
    from kafkalog.client.calls.topics import list_topics
    from kafkalog.client.link.cluster import Cluster
    from kafkalog.errors import KafkalogError

    with contextlib.suppress(KafkalogError), Cluster(where) as cluster:
        list_topics(cluster)
        return True
    return False


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A name for a topic or group that no other test uses."""
    return f"{re.sub('[^a-z0-9]+', '-', request.node.name.lower())}-{secrets.token_hex(3)}"


@pytest.fixture(scope="session")
def root() -> Path:
    """The top folder of this checkout."""
    return ROOT


@pytest.fixture(scope="session")
def memory() -> Iterator[Path]:
    """A folder in memory where there is one: a process that dies needs no disk to lose data."""
    shm = Path("/dev/shm")
    roomy = os.access(shm, os.W_OK) and shutil.disk_usage(shm).free >= ROOM
    with _folder(shm if roomy else None) as folder:
        yield folder


@pytest.fixture(scope="session")
def folders_on_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The paths of new folders for tests whose disk matters."""
    above = tmp_path_factory.mktemp("disk")
    return (above / str(number) for number in itertools.count())


@contextlib.contextmanager
def _folder(where: Path | None) -> Iterator[Path]:
    """A new folder there, until the block ends."""
    with tempfile.TemporaryDirectory(dir=where, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """On disk for tests of what lies there; in memory for tests of what uses a log.

    Pytest's own looks through the folders of all tests before.  On disk they are kept, as there:
    ext4 gives no inode out again for five seconds, and searches long for others.
    """
    if sharing.IN_MEMORY.match(request.node.nodeid):
        with _folder(request.getfixturevalue("memory")) as folder:
            yield folder
    else:
        folder = next(request.getfixturevalue("folders_on_disk"))
        folder.mkdir()
        yield folder


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Where a test's own log may lie; not made yet."""
    return tmp_path / "topic-0"


@pytest.fixture
def rng() -> random.Random:
    """A random generator of the run's seed, the same for each test."""
    return random.Random(SEED)


@pytest.fixture(scope="session")
def native_test() -> tuple[Any, Any]:
    """`(ffi, lib)` of the test build, with failpoints and I/O faults; reset by the caller."""
    from kafkalog import _native

    if not hasattr(_native.lib, "kl_failpoint_set"):
        pytest.skip("the C core was loaded without its test build (KAFKALOG_TEST_EXTENSION=1)")
    return _native.ffi, _native.lib


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., None]:
    """`wait_until(condition, what, timeout_s=LIMIT_S)`: return when `condition()` is true."""

    def wait(condition: Callable[[], object], what: str, timeout_s: float = LIMIT_S) -> None:
        wait_for(condition, what, timeout_s)

    return wait
