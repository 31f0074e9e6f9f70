import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The agent of Kafka's own Java client: a JSON object a line in, one a line out. */
public class Agent {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int LARGE = 4 << 20;
    static final long ANSWER_MS = 20_000;
    static String bootstrap;
    static final Map<String, Member> members = new HashMap<>();
    static Numbers numbers;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null;) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                handle(JSON.readTree(line), answer);
            } catch (Exception problem) {
                answer = JSON.createObjectNode().put("error", problem.toString());
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0);
    }

    static void handle(JsonNode request, ObjectNode answer) throws Exception {
        switch (request.get("do").asText()) {
            case "produce" -> produce(request, answer);
            case "consume" -> consume(request, answer);
            case "time" -> time(request, answer);
            case "committed" -> committed(request, answer);
            case "tour" -> tour(request.get("topic").asText(), answer);
            case "join" -> {
                Member member = new Member(request);
                members.put(request.get("member").asText(), member);
                member.start();
            }
            case "state" -> member(request).state(answer);
            case "commit" -> member(request).commitAndWait();
            case "leave" -> member(request).leave();
            case "stream" -> {
                numbers = new Numbers(request);
                numbers.start();
            }
            case "acked" -> numbers.state(answer);
            case "stop" -> {
                numbers.finish();
                numbers.state(answer);
            }
            case "transform" -> Transform.run(request, answer);
            default -> throw new IllegalArgumentException("unknown: " + request);
        }
    }

    static Member member(JsonNode request) {
        return members.get(request.get("member").asText());
    }

    static byte[] bytesIn(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String bytesOut(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    static KafkaProducer<byte[], byte[]> producer(JsonNode request) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", request.get("codec").asText());
        settings.put("acks", request.get("acks").asText());
        settings.put("enable.idempotence", request.get("idempotent").asText());
        settings.put("max.request.size", LARGE);
        settings.put("delivery.timeout.ms", 60_000);
        settings.put("request.timeout.ms", 10_000);
        settings.put("reconnect.backoff.max.ms", 500);
        return new KafkaProducer<>(
                settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Properties more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.partition.fetch.bytes", LARGE);
        settings.put("metadata.max.age.ms", 1000);
        settings.putAll(more);
        return new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void produce(JsonNode request, ObjectNode answer) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(request)) {
            for (JsonNode fields : request.get("records")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode pair : fields.get("headers")) {
                    headers.add(new RecordHeader(pair.get(0).asText(), bytesIn(pair.get(1))));
                }
                JsonNode time = fields.get("timestamp_ms");
                sent.add(producer.send(new ProducerRecord<>(
                        request.get("topic").asText(), request.get("partition").asInt(),
                        time.isNull() ? null : time.asLong(), bytesIn(fields.get("key")),
                        bytesIn(fields.get("value")), headers)));
            }
        }
        ArrayNode offsets = answer.putArray("offsets");
        for (Future<RecordMetadata> one : sent) {
            offsets.add(one.get().hasOffset() ? one.get().offset() : -1);
        }
    }

    static TopicPartition where(JsonNode request) {
        return new TopicPartition(
                request.get("topic").asText(), request.get("partition").asInt());
    }

    static void consume(JsonNode request, ObjectNode answer) {
        ArrayNode found = answer.putArray("records");
        int count = request.get("count").asInt();
        long end = System.currentTimeMillis() + ANSWER_MS;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(new Properties())) {
            consumer.assign(Set.of(where(request)));
            consumer.seek(where(request), request.get("offset").asLong());
            while (found.size() < count) {
                if (System.currentTimeMillis() > end) {
                    throw new IllegalStateException("not in time: " + found.size());
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    if (found.size() < count) {
                        put(record, found.addObject());
                    }
                }
            }
        }
    }

    static void put(ConsumerRecord<byte[], byte[]> record, ObjectNode into) {
        into.put("offset", record.offset()).put("timestamp_ms", record.timestamp());
        into.put("key", bytesOut(record.key())).put("value", bytesOut(record.value()));
        ArrayNode headers = into.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(bytesOut(header.value()));
        }
    }

    static void time(JsonNode request, ObjectNode answer) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(new Properties())) {
            TopicPartition where = where(request);
            OffsetAndTimestamp found = consumer.offsetsForTimes(
                    Map.of(where, request.get("timestamp_ms").asLong())).get(where);
            answer.put("offset", found != null
                    ? found.offset() : consumer.endOffsets(Set.of(where)).get(where));
        }
    }

    static void committed(JsonNode request, ObjectNode answer) throws Exception {
        try (Admin admin = admin()) {
            Map<TopicPartition, OffsetAndMetadata> found = admin.listConsumerGroupOffsets(
                    request.get("group").asText()).partitionsToOffsetAndMetadata().get();
            ArrayNode offsets = answer.putArray("offsets");
            for (JsonNode number : request.get("partitions")) {
                OffsetAndMetadata one = found.get(
                        new TopicPartition(request.get("topic").asText(), number.asInt()));
                offsets.add(one == null ? -1 : one.offset());
            }
        }
    }

    static Admin admin() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return Admin.create(settings);
    }

    static void tour(String topic, ObjectNode said) throws Exception {
        try (Admin admin = admin()) {
            NewTopic fresh = new NewTopic(topic, 3, (short) 1)
                    .configs(Map.of("retention.ms", "3600000"));
            admin.createTopics(Set.of(fresh)).all().get();
            said.put("partitions", partitions(admin, topic));
            said.put("retention", retention(admin, topic));
            try {
                admin.createTopics(Set.of(fresh)).all().get();
            } catch (ExecutionException error) {
                said.put("again", Errors.forException((ApiException) error.getCause()).code());
            }
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
            said.put("grown", partitions(admin, topic));
            AlterConfigOp change = new AlterConfigOp(
                    new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(
                    new ConfigResource(ConfigResource.Type.TOPIC, topic), Set.of(change)))
                    .all().get();
            said.put("altered", retention(admin, topic));
            admin.deleteTopics(Set.of(topic)).all().get();
        }
    }

    static int partitions(Admin admin, String topic) throws Exception {
        return admin.describeTopics(Set.of(topic)).allTopicNames().get()
                .get(topic).partitions().size();
    }

    static String retention(Admin admin, String topic) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return admin.describeConfigs(Set.of(resource)).all().get()
                .get(resource).get("retention.ms").value();
    }
}
