"""Each C entry that takes bytes from outside, under libFuzzer and the sanitizers of clang.

The short form reads the corpora and tries a thousand inputs, the same each time; `make fuzz`
looks for new ones (tests/damage/fuzz/long.py).
"""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.damage.fuzz import corpus, engine, seeds
from tests.support import batches
from tests.support.effort import SECONDS, SEED, patience_s

EXECUTIONS = 1_000
CANARY_EXECUTIONS = 20_000_000
"""The bug is found long before this number, and ends the run."""

pytestmark = [pytest.mark.long, pytest.mark.explore, pytest.mark.timeout(patience_s(600))]


@pytest.fixture(scope="module")
def programs():
    """Every target's program."""
    if engine.compiler() is None:
        pytest.skip("no clang with libFuzzer (Debian: clang-14 and libclang-rt-14-dev)")
    return engine.build([*engine.TARGETS.values(), engine.CANARY])


@pytest.fixture(scope="module")
def results(programs, tmp_path_factory, request):
    """The results of all targets, run at once, as many as there are processors."""
    seconds = SECONDS * (os.cpu_count() or 1) / 4
    tmp_path_factory.getbasetemp()  # otherwise each thread would create it
    kept = corpus.unpacked(engine.BUILD)

    def run(target):
        new, real = (tmp_path_factory.mktemp(f"{target.name}-{kind}") for kind in ("new", "real"))
        seeds.write(target, real)
        corpora = [new, real, kept / target.name]
        corpora = [folder for folder in corpora if folder.is_dir()]
        return engine.run(target, programs[target.name], corpora, SEED, EXECUTIONS, seconds)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(engine.TARGETS, pool.map(run, engine.TARGETS.values()), strict=True))


@pytest.mark.parametrize("name", engine.TARGETS)
def test_nothing_is_found(results, name):
    result = results[name]
    if result.crash is not None:
        pytest.fail(f"{result.crash} ends target {name}:\n{result.report}", pytrace=False)
    assert result.executions > 100
    assert result.coverage > 50


def test_the_canary_is_found(programs, tmp_path):
    """A planted bug after the checksum; missing it would mean that nothing can be found."""
    plain = batches.batch([batches.Row(b"value", b"key", 5), batches.Row(b"another", None, 6)])
    (tmp_path / "plain").write_bytes(plain)
    program = programs[engine.CANARY.name]
    result = engine.run(engine.CANARY, program, [tmp_path], executions=CANARY_EXECUTIONS)
    assert result.crash is not None, "the planted bug was not found"
    assert "heap-buffer-overflow" in result.report
    assert "sum_headers" in result.report


def test_the_mended_input_alone_reaches_the_canary(programs, tmp_path):
    """Plain input does not reach the planted bug: the mutator and the coverage do."""
    plain = batches.batch([batches.Row(b"value", b"key", 5, [("name", b"value")])])
    (tmp_path / "plain").write_bytes(plain)
    result = engine.run(engine.CANARY, programs[engine.CANARY.name], [tmp_path])
    assert result.crash is None


def test_the_corpus_stays_small():
    assert corpus.ARCHIVE.stat().st_size <= 300_000
    assert {name.partition("/")[0] for name in corpus.inputs()} <= set(engine.TARGETS)
