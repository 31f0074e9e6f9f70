"""The options of a write.  Pure, imports nothing heavy.

Names and meanings are those of Spark's Kafka sink; ours are `path`, `sinkId`, `batchId` and
`stagingDir`.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from urllib.parse import unquote, urlsplit

from ..errors import BadOption
from ..option_table import BATCH, CLIENT_CONFIG_FILE, Option
from .settings import producer_settings

OURS = {
    "path": Option("this or the next", "A data directory that no broker has open; it is "
                                       "created if it is missing. `save(path)` and "
                                       "`start(path)` give it, too."),
    "kafka.bootstrap.servers": Option("this or the last", "Brokers, of kafkalog or Apache "
                                                          "Kafka: `host:port,...`."),
    "topic": Option("", "Write to this topic, whatever the column `topic` says."),
    "includeHeaders": Option("true", "`false`: leave out the column `headers`."),
    "sinkId": Option("the query's id", "The writer's identity in the target: a transactional "
                                       "id, and the group `spark-sink-<sinkId>`. A batch of a "
                                       "stream that the target has from this writer is not "
                                       "written again; with a warning where another query, of "
                                       "another checkpoint, wrote it."),
    "batchId": Option("", "For a batch write, with `sinkId`: the number of this write. One that "
        "is not above the last of this `sinkId` in its topics is dropped; so `foreachBatch` writes "
        "once. Two writes with one number and `sinkId` must differ in their topics.", (BATCH,)),
    "stagingDir": Option("`<path>.staging`; else below the checkpoint's or the temporary folder",
        "Where tasks put their rows until the driver takes them, in a folder `kafkalog-staging` "
        "of their own: a place that all see. Below one where anybody may write, as /tmp, it is "
        "its owner's alone, and another user's is refused."),
    "clientConfigFile": Option("", CLIENT_CONFIG_FILE),
    "kafka.batch.size": Option("524288", "Bytes of a record batch that the driver sends."),
    "kafka.transaction.timeout.ms": Option("900000", "How long the driver may take for a batch."),
}  # fmt: skip
"""Every option that a write obeys by name, as documented; other `kafka.*` go to the producer."""

_BY_SPARK = frozenset(("checkpointlocation", "queryname", "partitionoverwritemode"))
"""Options that Spark adds itself."""
_TRUE_FALSE = {"true": True, "false": False}
_ID = re.compile(r"[a-zA-Z0-9._-]{1,200}")


@dataclass(frozen=True)
class WriteOptions:
    """The checked options of a write.  Plain values only: it travels to the executors."""

    path: str | None
    servers: str | None
    staging: str
    topic: str | None = None
    include_headers: bool = True
    sink_id: str | None = None
    checkpoint: str = ""
    """For a stream, if it is an option."""
    query_name: str = ""
    batch_id: int | None = None
    producer: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Settings of the producer, by Kafka's names; they may be secret."""
    ignored: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """For messages."""
        return self.path if self.path is not None else f"the brokers at {self.servers}"


def parse(options: Mapping[str, str], streaming: bool) -> WriteOptions:
    """Check the options of one write.

    Raises: BadOption, naming the option, what was found and what was wanted.
    """
    given = {name.lower(): value for name, value in options.items()}
    _check_names(given)
    path, servers = _path(given), given.get("kafka.bootstrap.servers", "").strip() or None
    if (path is None) == (servers is None):
        found = "both" if path else "neither"
        raise BadOption(
            f"where to write: found {found}, wanted either a path (a data directory) or "
            "kafka.bootstrap.servers"
        )
    sink_id, batch_id = _sink_id(given), _batch_id(given)
    if streaming and batch_id is not None:
        raise BadOption("option 'batchId' belongs to batch writes; a stream numbers its own")
    if not streaming and (sink_id is None) != (batch_id is None):
        raise BadOption("options 'sinkId' and 'batchId' of a batch write: found one, wanted both")
    producer, ignored = producer_settings(given)
    return WriteOptions(
        path=path,
        servers=servers,
        staging=_staging(given, path),
        topic=_topic(given),
        include_headers=_true_or_false(given, "includeHeaders", "true"),
        sink_id=sink_id,
        checkpoint=checkpoint_place(given.get("checkpointlocation", "")) if streaming else "",
        query_name=given.get("queryname", ""),
        batch_id=batch_id,
        producer=producer,
        ignored=ignored,
    )


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in OURS}
    for name in given:
        if name in known or name in _BY_SPARK or name.startswith("kafka."):
            continue
        near = get_close_matches(name, list(known), n=1, cutoff=0.6)
        hint = f"did you mean {known[near[0]]!r}?" if near else f"known: {', '.join(OURS)}"
        raise BadOption(f"unknown option {name!r} for a write; {hint}")


def _path(given: Mapping[str, str]) -> str | None:
    text = given.get("path", "").strip()
    return local_path("path", text) if text else None


def local_path(option: str, text: str) -> str:
    """A path on this machine.  Raises: BadOption for another kind of place."""
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:/", text):
        url = urlsplit(text)
        if url.scheme.lower() != "file" or url.netloc not in ("", "localhost"):
            raise BadOption(f"option {option!r}: found {text!r}, wanted a local path or file:///")
        text = unquote(url.path)
    return os.path.abspath(os.path.expanduser(text))


def _staging(given: Mapping[str, str], path: str | None) -> str:
    text = given.get("stagingdir", "").strip()
    if text:  # not itself: old folders of others in it stay
        return os.path.join(local_path("stagingDir", text), "kafkalog-staging")
    if path is not None:  # next to it: Kafka does not start with an unknown folder in its data
        return f"{path}.staging"
    try:
        checkpoint = local_path("checkpointLocation", given.get("checkpointlocation", "").strip())
    except BadOption:
        checkpoint = ""
    if given.get("checkpointlocation") and checkpoint:
        return os.path.join(checkpoint, "kafkalog-staging")
    # All users of a machine share this one: each has his own below it.
    return os.path.join(tempfile.gettempdir(), f"kafkalog-staging-{os.getuid()}")


def checkpoint_place(text: str) -> str:
    """The same text for a place of this machine, however it was written."""
    text = text.strip()
    try:
        return os.path.realpath(local_path("checkpointLocation", text)) if text else ""
    except BadOption:
        return text.rstrip("/")


def _topic(given: Mapping[str, str]) -> str | None:
    if "topic" not in given:
        return None
    text = given["topic"].strip()
    if not text:
        raise BadOption("option 'topic': found nothing, wanted a topic's name")
    return text


def _sink_id(given: Mapping[str, str]) -> str | None:
    if "sinkid" not in given:
        return None
    text = given["sinkid"].strip()
    if not _ID.fullmatch(text) or text.strip(".") == "":
        raise BadOption(
            f"option 'sinkId': found {text!r}, wanted up to 200 letters, digits, '.', '_' and '-'"
        )
    return text


def _batch_id(given: Mapping[str, str]) -> int | None:
    if "batchid" not in given:
        return None
    text = given["batchid"].strip()
    if not re.fullmatch(r"\d{1,18}", text):
        raise BadOption(f"option 'batchId': found {text!r}, wanted a number from 0 on")
    return int(text)


def _true_or_false(given: Mapping[str, str], option: str, default: str) -> bool:
    text = given.get(option.lower(), default).strip().lower()
    if text not in _TRUE_FALSE:
        raise BadOption(f"option {option!r}: found {text!r}, wanted true or false")
    return _TRUE_FALSE[text]
