import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** A member of a group: one thread that polls until it has to leave. */
class Member extends Thread implements ConsumerRebalanceListener {
    final KafkaConsumer<byte[], byte[]> consumer;
    final Set<TopicPartition> assigned = new HashSet<>();
    final List<ConsumerRecord<byte[], byte[]>> seen = new ArrayList<>();
    final List<CompletableFuture<Void>> wanted = new ArrayList<>();
    int joins;
    String failed = "";
    volatile boolean left;

    Member(JsonNode request) {
        Properties settings = new Properties();
        settings.put("group.id", request.get("group").asText());
        settings.put("session.timeout.ms", request.get("session_ms").asText());
        settings.put("heartbeat.interval.ms", "300");
        settings.put("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.RangeAssignor");
        if (!request.get("instance").isNull()) {
            settings.put("group.instance.id", request.get("instance").asText());
        }
        consumer = Agent.consumer(settings);
        List<String> topics = new ArrayList<>();
        request.get("topics").forEach(topic -> topics.add(topic.asText()));
        consumer.subscribe(topics, this);
        setDaemon(true);
    }

    @Override
    public void run() {
        try {
            while (!left) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                    synchronized (this) {
                        seen.add(record);
                    }
                }
                commitWhatIsWanted();
            }
            consumer.close();
        } catch (RuntimeException problem) {
            synchronized (this) {
                failed = problem.toString();
            }
        }
    }

    void commitWhatIsWanted() {
        List<CompletableFuture<Void>> now;
        synchronized (this) {
            now = new ArrayList<>(wanted);
            wanted.clear();
        }
        for (CompletableFuture<Void> one : now) {
            try {
                consumer.commitSync();
                one.complete(null);
            } catch (RuntimeException problem) {
                one.completeExceptionally(problem);
            }
        }
    }

    void commitAndWait() throws Exception {
        CompletableFuture<Void> done = new CompletableFuture<>();
        synchronized (this) {
            wanted.add(done);
        }
        done.get(Agent.ANSWER_MS, TimeUnit.MILLISECONDS);
    }

    void leave() throws InterruptedException {
        left = true;
        join(Agent.ANSWER_MS);
        synchronized (this) {
            assigned.clear();
        }
    }

    synchronized void state(ObjectNode answer) {
        ArrayNode partitions = answer.putArray("assigned");
        assigned.forEach(one -> partitions.addArray().add(one.topic()).add(one.partition()));
        ArrayNode records = answer.putArray("seen");
        seen.forEach(one ->
                records.addArray().add(one.topic()).add(one.partition()).add(one.offset()));
        answer.put("joins", joins).put("failed", failed);
    }

    @Override
    public synchronized void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        assigned.addAll(partitions);
        joins++;
    }

    @Override
    public synchronized void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        assigned.removeAll(partitions);
    }
}
