// Kafka's own assignors behind a pipe.
//
// In:  one case a line, "<assignor> <topic:count,...> <member> <member> ...", each member
//      "<id>;<instance>;<topic,...>;<topic:partition,...>;<generation>" with empty for none.
//      "data <assignor> <member>": the member's user data.
// Out: "<member>=<topic:partition,...> ..." in the order of ids; the data as hex digits.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class Assign {
    static final Node NODE = new Node(1, "localhost", 9092);

    static ConsumerPartitionAssignor named(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    static List<TopicPartition> partitions(String text) {
        List<TopicPartition> found = new ArrayList<>();
        for (String word : text.split(",")) {
            if (word.isEmpty()) continue;
            String[] parts = word.split(":");
            found.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
        }
        return found;
    }

    static String shown(List<TopicPartition> some) {
        return some.stream().map(tp -> tp.topic() + ":" + tp.partition())
            .collect(Collectors.joining(","));
    }

    static Subscription subscription(String assignor, String[] words) {
        List<String> topics = words[2].isEmpty() ? List.of() : Arrays.asList(words[2].split(","));
        List<TopicPartition> owned = partitions(words[3]);
        int generation = Integer.parseInt(words[4]);
        ConsumerPartitionAssignor one = named(assignor);
        if (generation >= 0) {
            one.onAssignment(new Assignment(owned),
                new ConsumerGroupMetadata("g", generation, words[0], Optional.empty()));
        }
        ByteBuffer data = one.subscriptionUserData(Set.copyOf(topics));
        List<TopicPartition> kept = assignor.startsWith("cooperative") ? owned : List.of();
        Subscription found =
            new Subscription(topics, data, kept, generation, Optional.empty());
        if (!words[1].isEmpty()) found.setGroupInstanceId(Optional.of(words[1]));
        return found;
    }

    static String answer(String line) {
        String[] words = line.split(" ", -1);
        List<PartitionInfo> known = new ArrayList<>();
        for (String word : words[1].split(",")) {
            if (word.isEmpty()) continue;
            String[] parts = word.split(":");
            for (int p = 0; p < Integer.parseInt(parts[1]); p++) {
                known.add(new PartitionInfo(parts[0], p, NODE, new Node[] {NODE}, new Node[] {NODE}));
            }
        }
        Cluster cluster = new Cluster("c", List.of(NODE), known, Set.of(), Set.of());
        Map<String, Subscription> members = new HashMap<>();
        for (int i = 2; i < words.length; i++) {
            String[] parts = words[i].split(";", -1);
            members.put(parts[0], subscription(words[0], parts));
        }
        Map<String, Assignment> found =
            named(words[0]).assign(cluster, new GroupSubscription(members)).groupAssignment();
        return new TreeMap<>(found).entrySet().stream()
            .map(each -> each.getKey() + "=" + shown(each.getValue().partitions()))
            .collect(Collectors.joining(" "));
    }

    static String userData(String line) {
        String[] words = line.split(" ", -1);
        ByteBuffer data = subscription(words[1], words[2].split(";", -1)).userData();
        StringBuilder found = new StringBuilder();
        while (data != null && data.hasRemaining()) found.append(String.format("%02x", data.get()));
        return found.toString();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(line.startsWith("data ") ? userData(line) : answer(line));
        }
    }
}
