"""The events that a node logs: a stable name, and names for the arguments of each line.

A program that reads a node's log goes by the names: the words of a line may change.  A line is
found by its logger and its template; tests/house/test_events.py holds the table to the code, and
docs/logs.md is made from it.
"""

from typing import TYPE_CHECKING

from kafkalog.logs.event import ALL, FOREIGN, LEFT_OUT, OF_FIRST, VARIES, Event
from kafkalog.logs.event import event as _of

if TYPE_CHECKING:
    import logging

__all__ = ["EVENTS", "event_of", "fields_of"]

TP = "topic partition "
_OF_REQUEST = (
    "api version client principal peer listener correlation_id total_time_ms "
    "request_queue_time_ms local_time_ms remote_time_ms response_queue_time_ms send_time_ms "
    "throttle_time_ms"
)
"""The times are those of Kafka's request logger, and of its metrics."""

EVENTS: dict[str, tuple[Event, ...]] = {
    "cluster.node.joining": (_of("join_warning", "warning", "%s", "problem"),),
    "cluster.node.member": (
        _of("zookeeper_session_ended", "warning",
            "broker %d: its session with ZooKeeper ended; it registers again", "node"),
        _of("zookeeper_problem", "warning", "%s", "problem"),
        _of("broker_problem", "warning", "broker %d: %s", "node problem"),
        _of("topic_gone_from_zookeeper", "info",
            "broker %d: topic %s is not in ZooKeeper any more: it was deleted", "node topic"),
        _of("change_not_followed", "error", "broker %d: could not follow a change", "node"),
    ),
    "cluster.node.protection": (_of("protection_problem", "error", "%s", "problem"),),
    "cluster.node.session_watch": (
        _of("zookeeper_change_not_followed", VARIES,
            "could not follow a change in ZooKeeper: %s", "problem"),
        _of("zookeeper_problem", "warning", "%s", "problem"),
    ),
    "cluster.node.unsupported_watch": (
        _of("unsupported_feature", VARIES, "broker %d: %s", "node problem"),
        _of("zookeeper_problem", "warning", "%s", "problem"),
    ),
    "cluster.quorum.member": (
        _of("broker_fencing_changed", "warning", "broker %d: is %s", "node state"),
        _of("metadata_abandoned", "error", "broker %d: follows the metadata no more: it leads "
            "and follows nothing until it is restarted", "node"),
        _of("replica_stray", "warning", "%s-%d: the cluster has no such replica here: its folder "
            "is renamed to -stray, and kept", TP),
        _of("broker_registered", "info", "broker %d: registered in epoch %d", "node epoch"),
        _of("assign_replicas_refused", "info", "AssignReplicasToDirs: error %d", "error_code"),
        _of("change_not_followed", "error", "broker %d: could not follow a change", "node"),
        _of("heartbeat_failed", "error", "broker %d: a heartbeat failed", "node"),
        _of("registration_refused", "warning", "broker %d: its registration is refused: %s",
            "node problem"),
        _of("controller_unreachable", "info", "broker %d: %s", "node problem"),
    ),
    "console.server": (_of("console_failed", "error", "console: the server failed"),),
    "console.web": (
        _of("console_change", "info", "console: %r: %s, %s: %s",
            "principal change subject outcome", ALL),
        _of("console_change_failed", "info", "console: %r: %s, %s: failed: %s",
            "principal change subject problem", OF_FIRST),
        _of("console_request_failed", "error", "console: a request failed"),
        _of("console_sample_failed", "error", "console: a sample failed"),
        _of("console_login_failed", "warning", "console: a login as %r from %s failed",
            "principal peer"),
        _of("console_sample_missing", "debug", "console: no sample: %s", "problem"),
    ),
    "controller.answers": (
        _of("producer_ids_not_allocated", "error", "no block of producer ids can be written: %s",
            "problem"),
    ),
    "controller.core": (
        _of("controller_problem", "warning", "%s", "problem"),
        _of("controller_work_failed", "error", "the controller could not handle: %s", "work"),
        _of("controller_replaced", "warning",
            "another controller was elected; this one resigns"),
    ),
    "controller.deletion": (
        _of("replicas_not_dropped", "warning", "broker %d cannot drop %s-%d%s now: %s",
            "broker topic partition more error"),
        _of("topic_not_deleted", "warning", "topic %s cannot be deleted now: %s",
            "topic problem"),
    ),
    "controller.partitions": (
        _of("partition_undecided", "error", "%s-%d: the controller cannot decide about it", TP),
    ),
    "coordinator.consumer_groups.convert": (
        _of("group_upgraded", "info", "group %s: generation %d: its members may heartbeat "
            "(KIP-848) from now on", "group generation"),
        _of("group_downgraded", "info", "group %s: generation %d: its members are all of the "
            "classic protocol", "group generation"),
    ),
    "coordinator.consumer_groups.patterns": (
        _of("patterns_too_costly", "warning",
            "group %s: %d of %d patterns match nothing: found %d steps, and %d topics of the "
            "others, wanted at most %d and %d",
            "group left_out patterns steps topics steps_max topics_max"),
        _of("group_patterns_failed", "error", "group %s: the topics of its patterns", "group"),
    ),
    "coordinator.consumer_groups.turns": (
        _of("group_step_failed", "error", "group %s: an error of the coordinator", "group"),
    ),
    "coordinator.core": (
        _of("coordinator_failed", "error", "an error of the coordinator"),
    ),
    "coordinator.groups.loader": (
        _of("group_record_invalid", "warning", "__consumer_offsets-%d: offset %d: %s",
            "partition offset problem"),
        _of("group_record_unknown", "warning", "__consumer_offsets-%d: offset %d: records of kind "
            "%s are kept, but not read", "partition offset kind"),
    ),
    "coordinator.groups.rebalance": (
        _of("group_empty", "info", "group %s: generation %d: nobody is left", "group generation"),
        _of("group_stable", "info", "group %s: generation %d: %d members, protocol %s",
            "group generation members protocol"),
        _of("member_sync_timeout", "info",
            "group %s: %s did not ask for its assignment in time: removed", "group member"),
        _of("member_session_timeout", "info", "group %s: %s sent no heartbeat for %d ms: removed",
            "group member session_timeout_ms"),
        _of("group_record_not_encoded", "error", "group %s: its record cannot be encoded",
            "group"),
    ),
    "coordinator.listings": (
        _of("coordinator_failed", "error", "an error of the coordinator"),
    ),
    "coordinator.share_state.loader": (
        _of("share_record_invalid", "warning", "__share_group_state-%d: offset %d: %s",
            "partition offset problem"),
    ),
    "coordinator.thread": (
        _of("coordinator_partition_unreadable", VARIES, "%s: %s", "partition problem"),
        _of("coordinator_request_failed", "error", "%s v%d: an error of the coordinator",
            "api version"),
        _of("coordinator_failed", "error", "an error of the coordinator"),
        _of("coordinator_append_failed", "error", "an append failed"),
        _of("coordinator_partition_damaged", "error", "%s, and its contents are not served: %s; "
            "kafkalog verify shows all of it; with the broker stopped kafkalog repair keeps what "
            "is whole", "partition problem"),
        _of("coordinator_effect_failed", "error", "an effect of a step"),
        _of("coordinator_answer_failed", "error", "an answer failed"),
        _of("coordinator_partition_readable", "info",
            "%s coordinator: partition %d is readable again", "coordinator partition"),
        _of("coordinator_partition_failed", "error", "%s", "partition"),
    ),
    "coordinator.transactions.core": (
        _of("transaction_marker_impossible", "warning",
            "transactional id %s: its transaction gets no end in %s-%d: %s",
            "transactional_id topic partition problem"),
    ),
    "coordinator.transactions.loader": (
        _of("transaction_record_invalid", "warning", "__transaction_state-%d: offset %d: %s",
            "partition offset problem"),
    ),
    "directory.folders": (
        _of("folder_ignored", "debug", "%s: %s is not a partition and is ignored", "path folder"),
    ),
    "directory.jobs.cleaner": (
        _of("compaction_failed", "error",
            "compaction of %s-%d failed; it is skipped from now on", TP),
        _of("compaction_waits", "error", "compaction of %s-%d has to wait: %s", TP + "problem"),
    ),
    "directory.jobs.place": (
        _of("job_partition_failed", VARIES, "%s: %s: %s", "path partition problem"),
    ),
    "directory.jobs.removals": (
        _of("link_removed", "info", "%s: was a link, and is removed; its target stays: %s",
            "path target"),
    ),
    "directory.scheduler": (
        _of("job_failed_unexpectedly", "error", "%s", "job"),
        _of("job_failed", "error", "%s: %s", "job problem"),
        _of("job_recovered", "info", "job %s works again", "job"),
    ),
    "disk.checkpoint": (
        _of("clean_marker_missing", "warning",
            "%s: closed without its clean marker, the next open recovers: %s", "path problem"),
        _of("checkpoint_warning", "warning", "%s", "problem"),
    ),
    "disk.holds": (
        _of("hold_ignored", "warning", "%s: the hold is not obeyed: %s", "path problem"),
    ),
    "kraft.directory": (_of("partition_unreadable", "warning", "%s: %s", "path problem"),),
    "kraft.first_voter": (
        _of("voter_added", "info", "%s: node %d is the voter of its metadata log", "path node"),
    ),
    "kraft.following": (
        _of("change_not_applied", "error",
            "%s: a change was written, but not applied everywhere", "path"),
        _of("folder_problem", "error", "%s: %s", "path problem"),
    ),
    "kraft.kraftlog": (
        _of("metadata_problem", "warning", "%s", "problem"),
        _of("metadata_closed_early", "warning", "%s: closed without its last records: %s",
            "path problem"),
    ),
    "kraft.loading": (_of("metadata_problem", "warning", "%s", "problem"),),
    "kraft.snapshotting": (
        _of("snapshot_failed", "error", "%s: no snapshot: %s", "path problem"),
    ),
    "kraft.tail": (
        _of("metadata_disk_full", "warning",
            "%s: the disk is full, the first records have to wait: %s", "path problem"),
    ),
    "kraft.turns": (_of("metadata_request_failed", "error", "%s: %s", "path problem"),),
    "log.log": (
        _of("log_dropped", "error", "log %s, dropped without close: %s", "path problem"),
    ),
    "log.opening": (
        _of("log_cut", "warning", "%s: was not closed cleanly; %d bytes that were not flushed and "
            "are no whole batches, or lie behind such, were cut from byte %d of segment %d on, "
            "and are kept in %s", "path bytes pos segment kept_in"),
        _of("log_not_cut", "warning", "%s: was not closed cleanly, and there is no room to back "
            "up what must be cut from byte %d of %s on: it stays where it is; reads and retention "
            "go on, appends when there is room", "path pos file"),
    ),
    "log.removal": (
        _of("retention_held_by_timestamp", "warning", "%s: segment %d has a record with the "
            "timestamp %d ms, which is in the future: retention.ms keeps this segment and all "
            "later ones until it has passed since then. To free the space earlier, delete the "
            "records below %d; message.timestamp.after.max.ms refuses such records",
            "path segment timestamp_ms next_offset"),
    ),
    "metadata.settings": (
        _of("setting_ignored", "warning", "%s: setting %s is ignored: %s",
            "resource setting problem"),
    ),
    "metrics.endpoint": (
        _of("http_request_failed", "error", "http: a request failed"),
        _of("http_refused", "warning", "http: %s", "problem"),
    ),
    "quorum.replica.controller_thread": (
        _of("metadata_not_applied", "error", "%s: the committed metadata cannot be applied",
            "path"),
        _of("metadata_not_read", "error", "%s: committed metadata cannot be read now: %s",
            "path problem"),
        _of("controller_answer_failed", "error",
            "the controller of node %d could not answer", "node"),
        _of("controller_resigned", "error", "the controller of node %d resigns", "node"),
        _of("change_not_followed", "error", "node %d: could not follow a change", "node"),
    ),
    "quorum.replica.peers": (
        _of("quorum_request_failed", "error", "%s to %s failed", "api address"),
        _of("quorum_request_unanswered", "info", "%s to %s: %s", "api address problem"),
    ),
    "quorum.replica.raft_thread": (
        _of("quorum_leader_elected", "info", "node %d leads the quorum in epoch %d",
            "node epoch"),
        _of("quorum_leader_known", "info", "node %d at %s leads the quorum in epoch %d",
            "leader address epoch"),
        _of("quorum_epoch_not_saved", "error", "%s: the quorum's epoch is not saved: %s",
            "path problem"),
        _of("quorum_leadership_lost", "info", "node %d no longer leads the quorum", "node"),
        _of("metadata_truncated", "info", "%s: truncated to offset %d, as its leader's",
            "path to_offset"),
        _of("quorum_abandoned", "error", "%s: this node takes no part in the quorum%s: %s",
            "path duration problem"),
        _of("quorum_request_refused", "error", "%s: %s", "api problem"),
        _of("quorum_answer_failed", "error", "%s: could not be answered", "api"),
        _of("quorum_answer_invalid", "error", "the answer of a node of the quorum: %s",
            "problem"),
        _of("quorum_request_unreadable", "error", "%s: could not be read", "api"),
    ),
    "quorum.replica.replica": (
        _of("quorum_leader_not_followed", "error",
            "a change of the quorum's leader could not be followed"),
    ),
    "replication.fetcher": (
        _of("leader_not_followed", "error", "%s is not followed for now", "leader"),
        _of("partition_not_followed", "error", "%s-%d: is not followed for now", TP),
    ),
    "replication.follower_log": (
        _of("replica_truncated", VARIES,
            "%s-%d: %d offsets from %d up to %d are cut, as its leader lacks them: %s",
            TP + "count from_offset to_offset kept_in"),
        _of("replica_restarted", "info", "%s-%d: its leader starts at offset %d, beyond the end "
            "here at %d: the copy starts over there", TP + "leader_start end_offset"),
    ),
    "replication.inter_broker": (
        _of("node_refused", "error",
            "listener %s: this node and another do not accept each other: %s",
            "listener problem"),
        _of("node_accepted", "info", "listener %s: %s: they accept each other again",
            "listener address"),
        _of("node_keys_changed", "info",
            "listener %s: new connections to other nodes use the changed keys", "listener"),
        _of("node_keys_invalid", "error",
            "listener %s: connections to other nodes keep the old keys: %s",
            "listener problem"),
    ),
    "request.logger": (
        _of("request_completed", "debug", "%s v%s of %s, %s at %s, listener %s, correlation id %s: "
            "%s ms: queue %s, local %s, remote %s, response queue %s, send %s, throttle %s",
            _OF_REQUEST),
        _of("request_not_logged", "error", "a request was not logged"),
        _of("request_slow", "warning", "slow: %s v%s of %s, %s at %s, listener %s, correlation id "
            "%s: %s ms: queue %s, local %s, remote %s, response queue %s, send %s, throttle %s",
            _OF_REQUEST),
    ),
    "server": (
        _of("process_ends", "info", "%s: the %s ends", "signal kind"),
        _of("setting_without_effect", "warning", "%s: %s", "file problem"),
        _of("controller_not_restarted", "error",
            "%s: a controller alone does not restart at a signal", "path"),
        _of("restart_refused", "error", "%s: does not restart as asked: %s", "path problem"),
        _of("start_interrupted", "info", "%s: did not start: %s", "path problem"),
    ),
    "server.admission": (
        _of("acls_not_enforced", "warning", "the metadata hold %d ACLs, and nobody enforces them, "
            "as authorizer.class.name is not set: EVERY CLIENT MAY DO EVERYTHING", "acls"),
        _of("authorizer_missing", "warning", "super.users and allow.everyone.if.no.acl.found have "
            "no effect without authorizer.class.name: EVERY CLIENT MAY DO EVERYTHING"),
    ),
    "server.authentication": (
        _of("principal_refused", "warning", "%s: its principal is refused: %s", "host problem"),
        _of("authentication_failed", "warning", "%s (%s): authentication failed: %s",
            "host mechanism problem"),
        _of("request_failed", "error", "%r failed", "request"),
    ),
    "server.broker": (
        _of("broker_started", "info", "%s: node %d of cluster %s serves %s",
            "path node cluster address"),
        _of("broker_closed", "info", "%s: closed", "path"),
        _of("leaders_handed_over_late", "warning", "%s: hands over %d partitions, first %s-%d, "
            "before all replicas in sync have everything: what only acks=1 acknowledged may be "
            "lost", "path count topic partition"),
        _of("leaders_not_handed_over", "warning",
            "%s: stops while it leads partitions that nobody else can", "path"),
        _of("restart_taken_back", "warning", "%s: goes on with the settings that it had", "path"),
    ),
    "server.client_telemetry": (
        _of("client_metrics_subscription_ignored", "warning",
            "the subscription %s to clients' metrics is ignored: %s", "subscription problem"),
        _of("client_metrics_refused", "info", "%r is refused with %s: %s", "client error problem"),
    ),
    "server.connection_limits": (
        _of("connection_limit_ignored", "warning",
            "the limit of connections from %s is ignored: it has no address", "host"),
    ),
    "server.controller": (
        _of("controller_started", "info", "%s: controller %d of cluster %s serves %s",
            "path node cluster address"),
    ),
    "server.controller_apis.member": (
        _of("controller_command_failed", "error", "%r: %s", "request problem"),
    ),
    "server.controller_apis.topic_creation": (
        _of("internal_topic_waits", "error", "node %d: %s is not created yet: found %d nodes "
            "alive, wanted %d, its %s; its clients get COORDINATOR_NOT_AVAILABLE until then",
            "node topic living wanted setting"),
    ),
    "server.controller_server": (
        _of("controller_problem", "warning", "%s: %s", "controller problem"),
    ),
    "server.controllers.handlers": (
        _of("envelope_unreadable", "warning", "%r: it cannot be opened: %s", "request problem"),
    ),
    "server.controllers.registration": (
        _of("controller_registered", "info", "controller %d: registered", "node"),
        _of("controller_not_registered", "info", "controller %d: is not registered yet: %s",
            "node problem"),
        _of("controller_registration_failed", "error", "controller %d: its registration failed",
            "node"),
    ),
    "server.coordinators": (
        _of("share_records_not_deleted", "info", "%s-%d: records below %d are not deleted: %s",
            TP + "offset problem"),
    ),
    "server.dead_letters": (
        _of("dead_letter_not_written", "error", "%s: not written to the dead-letter topic: %s",
            "records problem"),
        _of("dead_letters_failed", "error", "%s", "records"),
        _of("dead_letter_without_content", "warning",
            "%s: dead letters without keys and values: %s", "records problem"),
    ),
    "server.denials": (
        _of("operation_denied", "warning", "denied: %r at %r, operation %s on %s %r: %s",
            "principal host operation resource_type resource problem"),
    ),
    "server.dispatch": (
        _of("request_refused", "info", "%r is refused: %s", "request problem"),
        _of("request_not_served", "warning", "%r is not served", "request"),
        _of("request_not_served", "warning", "%r is not served; its connection is closed",
            "request"),
        _of("request_unreadable", "info", "%r: %s; its connection is closed", "request problem"),
    ),
    "server.dynamic": (
        _of("setting_ignored", "warning", "a setting of the broker is ignored: %s", "problem"),
        _of("setting_not_applied", "error", "a setting of the broker is not applied"),
    ),
    "server.endings": (_of("close_failed", "error", "%s: %s", "path problem"),),
    "server.failures": (
        _of("unknown_server_error", "error", "answered UNKNOWN_SERVER_ERROR: %s: %s",
            "kind problem"),
        _of("request_error", "warning", "%r: %s: %s", "request kind problem"),
        _of("request_failed", "error", "%r failed", "request"),
    ),
    "server.faults": (
        _of("fault_injected", "info", "%r: %s", "request fault"),
        _of("request_failed", "error", "%r failed; its connection is closed", "request"),
    ),
    "server.group_topics": (
        _of("streams_topic_not_created", "warning", "streams group %s: topic %s: %s",
            "group topic problem"),
        _of("patterns_not_looked_up", "error", "group %s: its patterns were not looked up",
            "group"),
    ),
    "server.handlers.fetch": (
        _of("partition_not_opened", "error", "%s-%d cannot be opened", TP),
    ),
    "server.handlers.loggers": (
        _of("log_level_changed", "warning", "logger %s: its level is %s", "of level"),
    ),
    "server.jwks": (
        _of("token_keys_unreadable", "warning",
            "keys of tokens cannot be read, the old ones stay: %s", "problem"),
    ),
    "server.listener_keys": (
        _of("listener_keys_changed", "info", "listener %s: new connections use the changed keys",
            "listener"),
        _of("listener_keys_invalid", "error", "the old keys stay in use: %s", "problem"),
        _of("handshake_failed", "warning", "listener %s: the handshake of %s failed: %s",
            "listener peer problem"),
        _of("certificate_expires", "warning",
            "listener %s: its certificate %s: clients refuse one that has expired",
            "listener state"),
    ),
    "server.metrics.console": (
        _of("console_without_encryption", "warning",
            "kafkalog.console.enable: %s: passwords come without encryption; set "
            "kafkalog.http.ssl.keystore.location", "listener"),
        _of("console_open", "warning",
            "kafkalog.console.enable: %s: everyone who can connect has the rights of those who "
            "reach listener %s on this machine", "address listener"),
    ),
    "server.metrics.watch": (
        _of("metrics_exposed", "warning", "%s: %s: everyone who can connect reads the metrics, "
            "also names of topics and groups", "setting host"),
    ),
    "server.network.in_process": (
        _of("client_not_closed", "warning", "%s: closing a client failed: %s", "broker problem"),
    ),
    "server.network.listeners": (
        _of("host_name_unusable", "warning",
            "%s: %s; clients get 127.0.0.1: set advertised.listeners", "host problem"),
    ),
    "server.opening": (
        _of("directory_not_closed", "warning",
            "%s: was not closed in order; each log is recovered when it is first used", "path"),
        _of("super_users_incomplete", "error", "super.users: wanted %s in it, on every node: "
            "others know this node by that name, and refuse what it asks for and what it forwards "
            "for clients", "principals"),
        _of("metadata_cut", "warning", "%s: cut from the metadata: %s", "path record"),
        _of("setting_not_supported", "error", "%s; the next start of this broker refuses it",
            "problem"),
    ),
    "server.partitions": (
        _of("log_recovered", "warning",
            "%s-%d: recovered: cut %d bytes that were no whole batch; it ends at offset %d",
            TP + "bytes end_offset"),
        _of("partition_offline", "error", "%s", "problem"),
        _of("log_recovered", "info", "%s-%d: recovered whole, to offset %d", TP + "end_offset"),
        _of("topic_created", "info", "topic %s: created with %d partitions", "topic partitions"),
        _of("partition_not_served", "warning", "%s-%d: is not served: %s", TP + "problem"),
        _of("topic_deleted", "info", "topic %s: deleted", "topic"),
        _of("topic_not_followed", "error", "topic %s: does not follow the metadata", "topic"),
        _of("topic_grown", "info", "topic %s: has %d partitions", "topic partitions"),
        _of("setting_changed", "info", "%s: %s is %s", "resource setting value"),
        _of("partition_online", "info", "%s-%d: is open again", TP),
        _of("role_not_changed", "error", "%s-%d: keeps its previous role: %s", TP + "problem"),
    ),
    "server.replica_fetchers": (
        _of("replica_not_supported", "error", "%s-%d: is not replicated here: %s, which kafkalog "
            "does not read (%s); move this replica to one of the brokers of Kafka",
            TP + "reason problem"),
        _of("partition_not_followed", "info", "%s-%d: is not followed now: %s", TP + "problem"),
    ),
    "server.replica_manager": (
        _of("folder_stray", "warning", "%s-%d: its folder belongs to an earlier topic of that "
            "name (id %s): it is renamed to -stray, and kept; delete it unless you want its "
            "records", TP + "topic_id"),
        _of("partition_offline", "error",
            "%s-%d: is offline here until this node restarts: check the disk", TP),
        _of("replica_failed", "error", "%s-%d: %s", TP + "problem"),
    ),
    "server.request": (
        _of("answer_not_encoded", "error", "%r: its answer cannot be encoded", "request"),
    ),
    "server.share_effects": (
        _of("share_end_unknown", "info", "%s-%d: its end: %s", TP + "problem"),
        _of("share_ends_not_asked", "error",
            "broker %d is not asked for the ends of partitions", "broker"),
    ),
    "server.share_persister": (
        _of("share_state_callback_failed", "error", "a failure of what was to go on"),
        _of("share_coordinators_unknown", "error", "the coordinators of share partitions"),
        _of("share_state_topic_missing", "info", "%s: %s", "topic problem"),
        _of("share_state_not_sent", "error",
            "a request about share partitions was not passed on"),
    ),
    "server.threads.later": (_of("task_failed", "error", "a failure of what was to run"),),
    "server.threads.acknowledger": (
        _of("acknowledgement_failed", "error", "a wait for %s-%d failed", TP),
    ),
    "server.threads.deletions": (
        _of("deletion_answer_failed", "error", "no answer about the deleted records of %s",
            "partitions"),
    ),
    "server.threads.isr_maintenance": (
        _of("alter_partition_refused", "info", "AlterPartition: error %d", "error_code"),
        _of("isr_changed", "info", "%s-%d: in sync: %s", TP + "in_sync"),
        _of("isr_unchanged", "info", "the ISRs stay unchanged for now: %s", "problem"),
        _of("isr_maintenance_failed", "error", "the ISRs stay unchanged for now"),
    ),
    "server.threads.serial_executor": (
        _of("task_failed", "error", "a failure of what was to run"),
    ),
    "server.threads.workers": (
        _of("quotas_unknown", "error", "%r: its client's quotas are unknown; it is closed",
            "request"),
        _of("request_failed", "error", "%r failed; its connection is closed", "request"),
    ),
    "server.transactions.inter_broker_client": (
        _of("callback_failed", "error", "a failure of what was to go on"),
        _of("broker_unreachable", "info", "broker %d: %s: %s", "broker api problem"),
        _of("broker_answer_invalid", "info", "%s", "problem"),
    ),
    "server.transactions.markers": (
        _of("transaction_marker_written", "info", "%s-%d: transactions can be ended again", TP),
        _of("transaction_marker_refused", "debug", "%s-%d: %s", TP + "problem"),
        _of("transaction_marker_waits", "error", "%s-%d: a transaction is not ended yet: %s: %s",
            TP + "error problem"),
        _of("transaction_marker_failed", "error", "the request failed"),
    ),
    "shares.leader": (
        _of("share_sessions_unknown", "debug", "share sessions: %s", "problem"),
        _of("share_request_failed", "error", "share group %s: a member's request failed",
            "group"),
        _of("share_answer_failed", "error", "share groups: an answer or a write failed"),
        _of("share_turn_failed", "error", "share groups: a turn of their thread failed"),
    ),
    "zookeeper.driver": (
        _of("controller_session_ended", "warning", "the controller's node %d: its session ended",
            "node"),
        _of("controller_elected", "info", "node %d is the controller of epoch %d", "node epoch"),
        _of("controller_problem", "warning", "the controller's node %d: %s", "node problem"),
        _of("controller_resigned", "error", "the controller's node %d resigns", "node"),
        _of("controller_answer_failed", "error",
            "the controller's node %d could not answer", "node"),
        _of("broker_without_listener", "error", "broker %d has no listener %s",
            "broker listener"),
    ),
    "zookeeper.security": (
        _of("zookeeper_keys_invalid", "error", "ZooKeeper: the old keys stay in use: %s",
            "problem"),
    ),
    "zookeeper.sender": (
        _of("command_unanswered", "info", "broker %d: %s: %s", "broker api problem"),
        _of("command_failed", "error", "broker %d: %s", "broker problem"),
    ),
    "zookeeper.store": (_of("zookeeper_problem", "warning", "%s", "problem"),),
    "zookeeper.watches": (
        _of("reassignment_ignored", "warning", "%s-%d is not reassigned: %s", TP + "problem"),
    ),
}  # fmt: skip
"""By logger, without `kafkalog.`; a name stands for the same event in all of them."""

_by_template: dict[str, dict[str, Event]] = {}


def event_of(record: "logging.LogRecord") -> Event:
    """The event of a line; FOREIGN: it is not in the table."""
    area = record.name.removeprefix("kafkalog.")
    if area not in _by_template:
        if area not in EVENTS:
            return FOREIGN
        _by_template[area] = {one.template: one for one in (*EVENTS[area], LEFT_OUT)}
    return _by_template[area].get(record.msg, FOREIGN)


def fields_of(event: Event, record: "logging.LogRecord") -> dict[str, object]:
    """The arguments of a line by their names: numbers as they are, all else as text."""
    arguments = record.args if isinstance(record.args, tuple) else (record.args,)
    return {
        name: value if isinstance(value, (bool, int, float)) else str(value)
        for name, value in zip(event.fields, arguments, strict=False)
    }
