"""Opens a broker's directory, and joins the cluster that its settings name."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kafkalog.config.served import check_served
from kafkalog.config.server import ServerConfig
from kafkalog.directory.identity import look, node_number
from kafkalog.directory.manager import Manager
from kafkalog.disk.layout import METADATA_TOPIC
from kafkalog.errors import ArgumentError, InvalidSetting
from kafkalog.inspect.lost import lost_metadata
from kafkalog.kraft.kraftlog import MetadataLog
from kafkalog.logs.limit import limited
from kafkalog.metadata.image import BROKER
from kafkalog.server.admission import check_stored_settings, super_users

if TYPE_CHECKING:  # a node that is alone needs nothing of a cluster's
    from kafkalog.clock import Clock
    from kafkalog.cluster.node.member import Member
    from kafkalog.cluster.quorum.joining import Entry
    from kafkalog.cluster.quorum.member import QuorumMember
    from kafkalog.disk.layout import MetaProperties
    from kafkalog.metadata.image import Change
    from kafkalog.metadata.source import Metadata
    from kafkalog.quorum.replica.replica import MetadataReplica
    from kafkalog.replication.membership import QuorumReplica
    from kafkalog.server.controller_server import ControllerServer, Quorum
    from kafkalog.zookeeper.driver import Driver

__all__ = ["Opened", "candidate"]

_logger = limited(__name__)
T = TypeVar("T")


class Opened:
    """An open directory, and the source of its metadata: one of `kraft`, `zookeeper`, `quorum`; of
    a controller alone only `controllers`."""

    kraft: MetadataLog | None = None
    """The metadata of a single node."""
    zookeeper: Member | None = None
    """The membership of a cluster on ZooKeeper."""
    quorum: QuorumMember | None = None
    """The membership of a cluster under KRaft controllers."""
    controllers: ControllerServer | None = None
    """The controllers' listener and the replica of the metadata log, if this is a controller, too;
    it serves already, as a broker cannot start without an active controller."""

    def __init__(
        self, path: str, config: ServerConfig, given: Mapping[str, object], clock: Clock,
        undo: list[Any], ends: threading.Event | None = None,
    ) -> None:  # fmt: skip
        """Whatever may be refused is checked first, as long as nothing is written.

        `given`: the settings as texts; `undo`: gets the ends of the parts, the directory's first;
        `ends`: set once the process is to end.

        Raises: as Broker; Closed: `ends` was set while the cluster was waited for.
        """
        self.config, self.given = config, given
        self._path, self._undo, self._ends = path, undo, ends or threading.Event()
        self._check_places()
        found = look(path)
        number = self._number(found.meta)
        if number != config.node_id:
            self._take({"node.id": number})
        entry: Entry | None = None
        if config.joins_quorum:
            from kafkalog.cluster.quorum.joining import enter as enter_quorum

            if config.controls:
                self._check_formatted(found.meta)
            check_served(self.config)  # with the number
            entry = enter_quorum(path, found, self.config, number, self._ends)
        elif config.clustered:
            from kafkalog.cluster.node.joining import enter

            self.zookeeper, taken = enter(path, found, self.config, number)
            undo.append(self.zookeeper.close)
            self._take(taken)
            check_stored_settings(self.zookeeper.image)
        if config.clustered:
            self._look_at_own_rights()
        self.manager = Manager(
            path, self.config, clock=clock, node_id=None, gather=not config.clustered
        )
        undo.insert(0, self.manager.close)  # last
        changed = config.clustered and look(path) != found
        if changed or self._number(self.manager.meta) != number:
            raise ArgumentError(f"{path}: another process changed it before it was locked")
        self._report_crash()
        if self.zookeeper is not None:
            from kafkalog.cluster.node.joining import join

            join(self.manager, self.zookeeper, found)
        elif entry is not None:
            if config.controls:
                self._control(entry)
            if config.serves_clients:
                self._join_quorum(entry)
        else:
            self._open_kraft(number)

    def _check_places(self) -> None:
        """Raises: InvalidSetting: a setting names another directory."""
        path, place = os.path.abspath(self._path), self.config.metadata_log_dir
        for named in self.config.cordoned_log_dirs:
            if named != "*" and os.path.abspath(named) != path:
                raise InvalidSetting(
                    f"cordoned.log.dirs: found {named!r}, wanted * or {self._path}"
                )
        if place and os.path.abspath(place) != path:
            raise InvalidSetting(
                f"metadata.log.dir: found {place}, wanted {self._path}: the metadata log is there"
            )

    def _report_crash(self) -> None:
        """Log that logs are recovered; a directory that was just formatted has none."""
        held = {one.topic for one in self.manager.partitions()}
        if self.config.controls:
            held.discard(METADATA_TOPIC)
        if held and not self.manager.state.clean:
            _logger.warning(
                "%s: was not closed in order; each log is recovered when it is first used",
                self._path,
            )

    def _look_at_own_rights(self) -> None:
        """Log an error if nodes cannot work under the login of this one."""
        from kafkalog.replication.inter_broker import own_principals

        if not self.config.authorizer_class_name:
            return
        given = super_users(self.config)
        missing = {str(one) for one in own_principals(self.config).values()}.difference(given)
        if missing:
            _logger.error(
                "super.users: wanted %s in it, on every node: others know this node by that name, "
                "and refuse what it asks for and what it forwards for clients",
                " and ".join(sorted(missing)),
            )

    @property
    def member(self) -> Member | QuorumMember | None:
        """The membership of a cluster; None: a single node."""
        return self.zookeeper or self.quorum

    @property
    def metadata(self) -> Metadata:
        """The source of the metadata."""
        source: Metadata | None = self.member or self.kraft
        assert source is not None
        return source

    def _take(self, settings: Mapping[str, object]) -> None:
        self.given = {**self.given, **settings}
        self.config = ServerConfig.of(self.given)

    def _number(self, meta: MetaProperties | None) -> int:
        """The id of this node, whose directory has `meta`."""
        config = self.config
        given = config.node_id if config.explicit("node.id") else None
        return node_number(self._path, meta, given, config.clustered)

    def _join_quorum(self, entry: Entry) -> None:
        from kafkalog.cluster.quorum.member import join_quorum

        follow = None if self.controllers is None else self._replica(self.controllers).follow
        self.quorum = self._or_abandon(
            partial(join_quorum, self.manager, self.config, entry, self._ends, follow)
        )
        self._undo.append(self.quorum.close)
        check_stored_settings(self.quorum.image)
        self.quorum.listen(_warn_of_stored_settings)

    def _check_formatted(self, meta: MetaProperties | None) -> None:
        """Raises: ArgumentError: nobody gave the directory to a node of a quorum."""
        if meta is None or meta.version == 0 or meta.directory_id is None:
            found = "no meta.properties" if meta is None else "a directory without an id"
            raise ArgumentError(
                f"{self._path}: found {found}, wanted the formatted directory of a controller: "
                "kafkalog storage format --cluster-id ID --config FILE; an ID for a new cluster: "
                "kafkalog storage random-uuid"
            )

    def _control(self, entry: Entry) -> None:
        """Become a controller: serve its listeners, and take part in the quorum."""
        from kafkalog.server.controller_server import ControllerServer

        manager = self.manager
        manager.state.copied = True
        parts = quorum_parts(manager, self.config, entry)
        self.controllers = self._or_abandon(
            partial(ControllerServer, self.config, self.given, manager, parts)
        )
        self._undo.append(self.controllers.stop)
        self.controllers.start()

    @staticmethod
    def _replica(controllers: ControllerServer) -> MetadataReplica:
        from kafkalog.quorum.replica.replica import MetadataReplica

        assert isinstance(controllers.replica, MetadataReplica)
        return controllers.replica

    def _open_kraft(self, number: int) -> None:
        self.kraft = self._or_abandon(
            partial(MetadataLog.open, self.manager, number=number, check=check_stored_settings)
        )
        self._undo.append(self.kraft.close)
        for line in lost_metadata(self.manager):
            _logger.warning("%s: cut from the metadata: %s", self._path, line)

    def _or_abandon(self, opened: Callable[[], T]) -> T:
        try:
            return opened()
        except BaseException:
            self.manager.abandon()  # an orderly end would write, too
            raise


def _warn_of_stored_settings(change: Change) -> None:
    """The controllers store settings that restrict access and take no effect here."""
    if any(kind == BROKER for kind, _ in change.resources):
        try:
            check_stored_settings(change.new)
        except InvalidSetting as problem:
            _logger.error("%s; the next start of this broker refuses it", problem)


def quorum_parts(manager: Manager, config: ServerConfig, entry: Entry) -> Quorum:
    """The parts of a controller."""
    from kafkalog.cluster.node.controller_connection import ControllerConnection
    from kafkalog.metadata.levels import supported_features
    from kafkalog.quorum.replica.replica import MetadataReplica
    from kafkalog.server.controller_server import Quorum

    def line(replica: QuorumReplica) -> ControllerConnection:
        assert isinstance(replica, MetadataReplica)
        made = ControllerConnection(
            entry.identity.node, replica.seen, entry.options, lambda: replica.epoch
        )
        replica.on_turn(made.turn)
        return made

    def replica(endpoints: Sequence[tuple[str, str, int]]) -> MetadataReplica:
        mine = entry.identity
        if not config.controller_quorum_voters:
            from kafkalog.kraft.first_voter import become_voter

            become_voter(manager, mine.node, mine.directory_id, endpoints)
        return MetadataReplica(manager, config, mine, endpoints, entry.options)

    return Quorum(entry.identity.node, replica, line, supported_features)


def candidate(member: Member, config: ServerConfig) -> Driver:
    """A node on ZooKeeper as a candidate for controller, not started yet."""
    from kafkalog.controller.events import Options
    from kafkalog.zookeeper.driver import Driver

    return Driver(
        config.zookeeper_connect, member.node, Options.of(config), member.timeouts,
        config.topic.unclean_leader_election_enable, member.connecting(to_controller=True),
        member.at_zookeeper,
    )  # fmt: skip
