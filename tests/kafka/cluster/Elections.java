// The elections of Kafka's own controller behind a pipe.
//
// In:  "<kind> <leader> <epoch> <isr> <replicas> <live> <ending> <target>", lists as 1,2,3 or -,
//      kind: offline, unclean, reassign, preferred, shutdown.
// Out: "<leader> <epoch> <isr> <recovering>", or "none".

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

import kafka.api.LeaderAndIsr;
import kafka.cluster.Broker;
import kafka.cluster.EndPoint;
import kafka.controller.ControllerContext;
import kafka.controller.Election;
import kafka.controller.ElectionResult;
import kafka.controller.ReplicaAssignment;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.metadata.LeaderRecoveryState;
import scala.Option;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

public class Elections {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(" ")));
        }
    }

    private static String answer(String[] words) {
        ControllerContext context = new ControllerContext();
        ReplicaAssignment assigned = ReplicaAssignment.apply(seq(words[4]));
        if (words[0].equals("reassign")) {
            // As when the new replicas have caught up: the target's come first.
            assigned = new ReplicaAssignment(
                seq(words[4]), none(), seq(without(words[4], words[7])));
        }
        context.updatePartitionFullReplicaAssignment(PARTITION, assigned);
        List<Tuple2<Broker, Object>> brokers = new ArrayList<>();
        for (Object one : list(words[5])) {
            Seq<EndPoint> nowhere = CollectionConverters.asScala(new ArrayList<EndPoint>()).toSeq();
            brokers.add(new Tuple2<>(Broker.apply((int) one, nowhere, Option.empty()), 1L));
        }
        context.setLiveBrokers(
            scala.collection.immutable.Map.from(CollectionConverters.asScala(brokers)));
        for (Object one : list(words[6])) {
            context.shuttingDownBrokerIds().add(one);
        }
        LeaderAndIsr now = LeaderAndIsr.apply(
            Integer.parseInt(words[1]), Integer.parseInt(words[2]), seq(words[3]).toList(),
            LeaderRecoveryState.RECOVERED, 0);
        return shown(elected(context, words[0], now));
    }

    private static Option<LeaderAndIsr> elected(
        ControllerContext context, String kind, LeaderAndIsr now) {
        scala.collection.Seq<ElectionResult> found;
        switch (kind) {
            case "offline":
            case "unclean":
                found = Election.leaderForOffline(context, true, one(
                    new Tuple3<>(PARTITION, Option.apply(now), (Object) kind.equals("unclean"))));
                break;
            case "reassign":
                found = Election.leaderForReassign(context, one(new Tuple2<>(PARTITION, now)));
                break;
            case "preferred":
                found = Election.leaderForPreferredReplica(
                    context, one(new Tuple2<>(PARTITION, now)));
                break;
            default:
                found = Election.leaderForControlledShutdown(
                    context, one(new Tuple2<>(PARTITION, now)));
        }
        return found.head().leaderAndIsr();
    }

    private static String shown(Option<LeaderAndIsr> found) {
        if (found.isEmpty()) {
            return "none";
        }
        LeaderAndIsr next = found.get();
        String isr = CollectionConverters.asJava(next.isr()).stream()
            .map(String::valueOf).collect(Collectors.joining(","));
        boolean recovering = next.leaderRecoveryState() == LeaderRecoveryState.RECOVERING;
        return next.leader() + " " + next.leaderEpoch() + " " + isr + " " + recovering;
    }

    private static <T> Seq<T> one(T what) {
        return CollectionConverters.asScala(List.of(what)).toSeq();
    }

    private static List<Object> list(String text) {
        List<Object> found = new ArrayList<>();
        for (String word : text.equals("-") ? new String[0] : text.split(",")) {
            found.add(Integer.valueOf(word));
        }
        return found;
    }

    private static String without(String text, String others) {
        List<Object> found = list(text);
        found.removeAll(list(others));
        return found.isEmpty() ? "-"
            : found.stream().map(String::valueOf).collect(Collectors.joining(","));
    }

    private static Seq<Object> seq(String text) {
        return CollectionConverters.asScala(list(text)).toSeq();
    }

    private static Seq<Object> none() {
        return seq("-");
    }
}
