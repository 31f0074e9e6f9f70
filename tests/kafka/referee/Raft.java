// A voter of Kafka's own KRaft, node 1 of the voters 1, 2 and 3, behind a pipe; time stands still.
//
// In:  one case a line: "<epoch> <leader> <voted> <epochs of the log's records> <step> <step> ...", -1 for
//      no leader and no vote, "-" for an empty log.  A step is
//        V,<epoch>,<candidate>,<last epoch>,<end>,<1 for a pre-vote>
//        B,<epoch>,<leader>            BeginQuorumEpoch
//        E,<epoch>,<leader>,<first successor>,<second>
//        F,<epoch>,<replica>,<offset>,<last epoch>
//        G,<voter>                     the voter grants the vote that node 1 asked for
// Out: for each step, "<error>,<epoch>,<leader>,<granted>" and for F "<error>,<epoch>,<leader>,<diverging
//      epoch>,<its end>"; for G "-" if it was not asked, else "+".

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ScheduledFuture;
import java.util.stream.Stream;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.feature.SupportedVersionRange;
import org.apache.kafka.common.message.BeginQuorumEpochRequestData;
import org.apache.kafka.common.message.BeginQuorumEpochResponseData;
import org.apache.kafka.common.message.EndQuorumEpochRequestData;
import org.apache.kafka.common.message.EndQuorumEpochResponseData;
import org.apache.kafka.common.message.FetchRequestData;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.VoteRequestData;
import org.apache.kafka.common.message.VoteResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.raft.ElectionState;
import org.apache.kafka.raft.Endpoints;
import org.apache.kafka.raft.ExpirationService;
import org.apache.kafka.raft.FileQuorumStateStore;
import org.apache.kafka.raft.KafkaRaftClient;
import org.apache.kafka.raft.MetadataLogConfig;
import org.apache.kafka.raft.NetworkChannel;
import org.apache.kafka.raft.QuorumConfig;
import org.apache.kafka.raft.RaftRequest;
import org.apache.kafka.raft.RaftResponse;
import org.apache.kafka.raft.ReplicaKey;
import org.apache.kafka.raft.internals.KafkaRaftLog;
import org.apache.kafka.raft.internals.StringSerde;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.util.Scheduler;

public class Raft {
    static final TopicPartition LOG = new TopicPartition("__cluster_metadata", 0);
    static final ListenerName LISTENER = new ListenerName("CONTROLLER");
    static final String CLUSTER = "abcdefghijklmnopqrstug";

    /** A clock that stands still. */
    static class Still implements Time {
        public long milliseconds() { return 1_000_000; }
        public long nanoseconds() { return 1_000_000_000_000L; }
        public void sleep(long ms) { }
    }

    static class Nothing implements Scheduler {
        public void startup() { }
        public void shutdown() { }
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return (ScheduledFuture<?>) Proxy.newProxyInstance(Raft.class.getClassLoader(),
                new Class<?>[] {ScheduledFuture.class}, (one, method, values) -> method.getName().equals("cancel"));
        }
        public void resizeThreadPool(int size) { }
    }

    static class Asked implements NetworkChannel {
        final Map<Integer, RaftRequest.Outbound> requests = new HashMap<>();
        final Map<Integer, CompletableFuture<RaftResponse.Inbound>> answers = new HashMap<>();
        int number;

        public int newCorrelationId() { return ++number; }
        public ListenerName listenerName() { return LISTENER; }
        public void close() { }

        public CompletionStage<RaftResponse.Inbound> send(RaftRequest.Outbound request) {
            CompletableFuture<RaftResponse.Inbound> answer = new CompletableFuture<>();
            requests.put(request.destination().id(), request);
            answers.put(request.destination().id(), answer);
            return answer;
        }
    }

    final Asked asked = new Asked();
    final KafkaRaftClient<String> client;
    final KafkaRaftLog log;

    Raft(Path folder, String[] words) throws Exception {
        int epoch = Integer.parseInt(words[0]), leader = Integer.parseInt(words[1]);
        int voted = Integer.parseInt(words[2]);
        Time time = new Still();
        Map<String, Object> settings = new HashMap<>();
        settings.put(QuorumConfig.QUORUM_ELECTION_TIMEOUT_MS_CONFIG, 100_000_000);
        settings.put(QuorumConfig.QUORUM_FETCH_TIMEOUT_MS_CONFIG, 100_000_000);
        settings.put(QuorumConfig.QUORUM_REQUEST_TIMEOUT_MS_CONFIG, 100_000_000);
        settings.put(QuorumConfig.QUORUM_LINGER_MS_CONFIG, 0);
        File directory = Files.createDirectory(folder.resolve("__cluster_metadata-0")).toFile();
        log = KafkaRaftLog.createLog(LOG, Uuid.METADATA_TOPIC_ID, directory, time, new Nothing(),
            new MetadataLogConfig(new AbstractConfig(MetadataLogConfig.CONFIG_DEF, Map.of(), false)), 1);
        if (!words[3].equals("-"))
            for (String one : words[3].split(",")) {
                int of = Integer.parseInt(one);
                log.appendAsFollower(MemoryRecords.withRecords(log.endOffset().offset(), Compression.NONE, of,
                    new SimpleRecord(new byte[1])), of);
            }
        log.flush(true);
        Map<Integer, InetSocketAddress> voters = new HashMap<>();
        for (int one = 1; one < 4; one++)
            voters.put(one, InetSocketAddress.createUnresolved("localhost", 9000 + one));
        FileQuorumStateStore store = new FileQuorumStateStore(folder.resolve("quorum-state").toFile());
        ElectionState state = leader >= 0
            ? ElectionState.withElectedLeader(epoch, leader, java.util.Optional.empty(), voters.keySet())
            : voted >= 0
                ? ElectionState.withVotedCandidate(epoch, ReplicaKey.of(voted, ReplicaKey.NO_DIRECTORY_ID), voters.keySet())
                : ElectionState.withUnknownLeader(epoch, voters.keySet());
        store.writeElectionState(state, KRaftVersion.KRAFT_VERSION_0);
        ExpirationService expires = new ExpirationService() {
            public <T> CompletableFuture<T> failAfter(long ms) { return new CompletableFuture<>(); }
        };
        client = new KafkaRaftClient<>(OptionalInt.of(1), Uuid.randomUuid(), new StringSerde(), asked, log, time,
            expires, new LogContext(), false, CLUSTER, List.of(),
            Endpoints.fromInetSocketAddresses(Map.of(LISTENER, voters.get(1))), new SupportedVersionRange((short) 0, (short) 1),
            new QuorumConfig(new AbstractConfig(QuorumConfig.CONFIG_DEF, settings, false)));
        client.initialize(voters, store, new Metrics(), ignored -> { });
        step("V,0,2,0,0,1".split(","));  // what the role does at once is done
    }

    ApiMessage handled(int version, ApiMessage request) throws Exception {
        CompletionStage<RaftResponse.Outbound> answer =
            client.handle(new RaftRequest.Inbound(LISTENER, asked.newCorrelationId(), (short) version, request, 1_000_000));
        client.poll();
        CompletableFuture<RaftResponse.Outbound> found = answer.toCompletableFuture();
        return found.isDone() ? found.get().data() : null;
    }

    String step(String[] words) throws Exception {
        int[] number = new int[6];
        for (int at = 1; at < words.length; at++) number[at] = Integer.parseInt(words[at]);
        switch (words[0]) {
            case "V": {
                VoteRequestData.PartitionData one = new VoteRequestData.PartitionData().setPartitionIndex(0)
                    .setReplicaEpoch(number[1]).setReplicaId(number[2]).setLastOffsetEpoch(number[3])
                    .setLastOffset(number[4]).setPreVote(number[5] == 1);
                ApiMessage found = handled(2, new VoteRequestData().setClusterId(CLUSTER).setVoterId(1).setTopics(List.of(
                    new VoteRequestData.TopicData().setTopicName(LOG.topic()).setPartitions(List.of(one)))));
                VoteResponseData.PartitionData answer = ((VoteResponseData) found).topics().get(0).partitions().get(0);
                return answer.errorCode() + "," + answer.leaderEpoch() + "," + answer.leaderId() + "," + (answer.voteGranted() ? 1 : 0);
            }
            case "B": {
                BeginQuorumEpochRequestData.PartitionData one = new BeginQuorumEpochRequestData.PartitionData()
                    .setPartitionIndex(0).setLeaderEpoch(number[1]).setLeaderId(number[2]);
                BeginQuorumEpochRequestData.LeaderEndpointCollection places = new BeginQuorumEpochRequestData.LeaderEndpointCollection();
                places.add(new BeginQuorumEpochRequestData.LeaderEndpoint().setName("CONTROLLER").setHost("localhost").setPort(9000 + number[2]));
                ApiMessage found = handled(1, new BeginQuorumEpochRequestData().setClusterId(CLUSTER).setVoterId(1)
                    .setLeaderEndpoints(places).setTopics(List.of(new BeginQuorumEpochRequestData.TopicData()
                        .setTopicName(LOG.topic()).setPartitions(List.of(one)))));
                BeginQuorumEpochResponseData.PartitionData answer = ((BeginQuorumEpochResponseData) found).topics().get(0).partitions().get(0);
                return answer.errorCode() + "," + answer.leaderEpoch() + "," + answer.leaderId() + ",0";
            }
            case "E": {
                EndQuorumEpochRequestData.PartitionData one = new EndQuorumEpochRequestData.PartitionData()
                    .setPartitionIndex(0).setLeaderEpoch(number[1]).setLeaderId(number[2]);
                List<EndQuorumEpochRequestData.ReplicaInfo> next = new ArrayList<>();
                for (int at = 3; at < words.length; at++)
                    next.add(new EndQuorumEpochRequestData.ReplicaInfo().setCandidateId(number[at]));
                one.setPreferredCandidates(next);
                EndQuorumEpochRequestData.LeaderEndpointCollection places = new EndQuorumEpochRequestData.LeaderEndpointCollection();
                places.add(new EndQuorumEpochRequestData.LeaderEndpoint().setName("CONTROLLER").setHost("localhost").setPort(9000 + number[2]));
                ApiMessage found = handled(1, new EndQuorumEpochRequestData().setClusterId(CLUSTER).setLeaderEndpoints(places)
                    .setTopics(List.of(new EndQuorumEpochRequestData.TopicData().setTopicName(LOG.topic()).setPartitions(List.of(one)))));
                EndQuorumEpochResponseData.PartitionData answer = ((EndQuorumEpochResponseData) found).topics().get(0).partitions().get(0);
                return answer.errorCode() + "," + answer.leaderEpoch() + "," + answer.leaderId() + ",0";
            }
            case "F": {
                FetchRequestData.FetchPartition one = new FetchRequestData.FetchPartition().setPartition(0)
                    .setCurrentLeaderEpoch(number[1]).setFetchOffset(number[3]).setLastFetchedEpoch(number[4]);
                ApiMessage found = handled(17, new FetchRequestData().setClusterId(CLUSTER).setMaxWaitMs(0)
                    .setReplicaState(new FetchRequestData.ReplicaState().setReplicaId(number[2]))
                    .setTopics(List.of(new FetchRequestData.FetchTopic().setTopic(LOG.topic()).setTopicId(Uuid.METADATA_TOPIC_ID).setPartitions(List.of(one)))));
                FetchResponseData.PartitionData answer = ((FetchResponseData) found).responses().get(0).partitions().get(0);
                return answer.errorCode() + "," + answer.currentLeader().leaderEpoch() + "," + answer.currentLeader().leaderId()
                    + "," + answer.divergingEpoch().epoch() + "," + answer.divergingEpoch().endOffset();
            }
            default: {
                RaftRequest.Outbound request = asked.requests.remove(number[1]);
                if (request == null || !(request.data() instanceof VoteRequestData)) return "-";
                VoteRequestData.PartitionData wanted = ((VoteRequestData) request.data()).topics().get(0).partitions().get(0);
                VoteResponseData.PartitionData granted = new VoteResponseData.PartitionData().setPartitionIndex(0)
                    .setLeaderEpoch(wanted.replicaEpoch()).setLeaderId(-1).setVoteGranted(true);
                asked.answers.get(number[1]).complete(new RaftResponse.Inbound(request.correlationId(),
                    new VoteResponseData().setTopics(List.of(new VoteResponseData.TopicData()
                        .setTopicName(LOG.topic()).setPartitions(List.of(granted)))), request.destination()));
                client.poll();
                step("V,0,2,0,0,1".split(","));  // what a new leader appends is in its log
                step("V,0,2,0,0,1".split(","));
                return "+";
            }
        }
    }

    static String answers(String line) throws Exception {
        Path folder = Files.createTempDirectory("raft");
        try {
            String[] words = line.split(" ");
            Raft raft = new Raft(folder, words);
            List<String> found = new ArrayList<>();
            for (int at = 4; at < words.length; at++) found.add(raft.step(words[at].split(",")));
            raft.log.close();
            return String.join(" ", found);
        } finally {
            try (Stream<Path> all = Files.walk(folder)) {
                all.sorted(Comparator.reverseOrder()).forEach(one -> one.toFile().delete());
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine())
            System.out.println(answers(line));
    }
}
