"""Shared by all tests: where data lies, the seed, and the test build of the C core."""

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

from kafkalog.logs import limit
from tests.support import brokers, cases, messages, sharing
from tests.support.effort import SEED, examples
from tests.support.waiting import LIMIT_S, wait_for

ROOT = Path(__file__).resolve().parent.parent
ROOM = 4 << 30
"""Bytes that must be free in memory before tests put their folders there."""

# If the test build exists, the whole run uses it: the same sources, with failpoints and
# an I/O table that can fail.  KAFKALOG_NATIVE=release selects the release build instead.
if any((ROOT / "kafkalog" / "_native").glob("_kl_test*.so")):
    os.environ.setdefault("KAFKALOG_NATIVE", "test")

# Without a database: an example that one run saved would make the next run different.
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
    """Set one seed for everything random, unless the caller gave Hypothesis its own.

    A shell starts background jobs with SIGINT ignored, and every child inherits that; tests of
    Ctrl-C need the handler that a terminal gives.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    from tests.support.forms import use_the_built_form  # it loads the C core

    use_the_built_form()
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = SEED
    if hasattr(config, "workerinput"):  # otherwise the tests of a group may be far apart
        config.pluginmanager.register(sharing.Ends(sharing.SERVERS, sharing.group))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """The number of processes for `-n auto`."""
    return sharing.processes()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The scheduler for `--dist loadfile`."""
    return sharing.Scheduling(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    messages.take_apart(node)


def pytest_sessionstart(session: pytest.Session) -> None:
    messages.send_together(session.config)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collected objects live as long as the run, so Python's garbage collector must not look
    through them, neither now nor in tests.  In tests it runs less often than by default: collecting
    took one twelfth of the processor time of tests that make many objects."""
    gc.disable()
    try:
        sharing.import_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that Hypothesis drives: they can always look for more.  Slow files come first,
    and Spark's and those that use Apache Kafka before them, so that all processes end at about the
    same time.  The files of a folder are spread, as those that wait are next to each other."""
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
    """A test must restore the handlers of SIGINT and SIGTERM: otherwise a later test would fail.
    PySpark does not restore them."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    found = yield
    if [signal.getsignal(number) for number in numbers] != before and not (
        item.get_closest_marker("spark")
    ):
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        raise AssertionError("the test left a changed handler of SIGINT or SIGTERM behind")
    return found


def pytest_report_header(config: pytest.Config) -> list[str]:
    """The settings that repeat this run."""
    return [
        f"seed: {SEED} (repeat with KAFKALOG_SEED={SEED})",
        f"what Kafka wrote: {cases.folder()}",
        f"C core: {os.environ.get('KAFKALOG_NATIVE', 'release')} build",
    ]


@pytest.fixture(scope="session")
def kafka_cases() -> Path:
    """The data directories that Kafka wrote, one folder each; tests must not write to them."""
    return cases.folder()


@contextlib.contextmanager
def _served(request: pytest.FixtureRequest, wait_until: Callable[..., None]) -> Iterator[Any]:
    """The broker that the fixture's parameter names."""
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
    """`host:port` of one Apache Kafka for all tests of this process: starting one takes seconds."""
    with brokers.running("kafka", tmp_path_factory.mktemp("apache") / "log") as found:
        wait_until(lambda: answers(found), "the broker takes connections")
        yield found


@pytest.fixture(scope="module", params=brokers.SIDES)
def servers(request: pytest.FixtureRequest, wait_until: Callable[..., None]) -> Iterator[str]:
    """`host:port` of a broker: Apache Kafka's, then ours.

    Our broker is shared by the tests of one file only: it lives in this process, and other tests
    make this process's disk fail.  Each test uses its own topics and groups.
    """
    with _served(request, wait_until) as found:
        yield found


@pytest.fixture(scope="module", params=brokers.PLACES)
def where(request: pytest.FixtureRequest, wait_until: Callable[..., None]) -> Iterator[Any]:
    """As `servers`, and then our broker without a port: the address that a client is given."""
    with _served(request, wait_until) as found:
        yield found


def answers(where: Any) -> bool:
    """True if a broker answers a client."""
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
    """A folder in memory, if possible: data of a process that dies does not depend on a disk."""
    shm = Path("/dev/shm")
    roomy = os.access(shm, os.W_OK) and shutil.disk_usage(shm).free >= ROOM
    with _folder(shm if roomy else None) as folder:
        yield folder


@pytest.fixture(scope="session")
def folders_on_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths of new folders on disk, for tests whose disk matters."""
    above = tmp_path_factory.mktemp("disk")
    return (above / str(number) for number in itertools.count())


@contextlib.contextmanager
def _folder(where: Path | None) -> Iterator[Path]:
    """A new folder in `where`, removed when the block ends."""
    with tempfile.TemporaryDirectory(dir=where, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """On disk for tests of the files themselves; in memory for tests that only use a log.

    Pytest's own fixture looks through the folders of all earlier tests.  Folders on disk are kept,
    as pytest keeps them: ext4 reuses no inode for five seconds and then searches long for others.
    """
    if sharing.IN_MEMORY.match(request.node.nodeid):
        with _folder(request.getfixturevalue("memory")) as folder:
            yield folder
    else:
        folder = next(request.getfixturevalue("folders_on_disk"))
        folder.mkdir()
        yield folder


@pytest.fixture(autouse=True)
def _lines_of_this_test() -> None:
    """The lines of earlier tests do not count towards the limit of a node's log."""
    limit.reset()


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """The path for a test's own log; it does not exist yet."""
    return tmp_path / "topic-0"


@pytest.fixture
def rng() -> random.Random:
    """A random generator with the run's seed, the same for each test."""
    return random.Random(SEED)


@pytest.fixture(scope="session")
def native_test() -> tuple[Any, Any]:
    """`(ffi, lib)` of the test build, with failpoints and I/O faults; the caller resets them."""
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
