package example;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class OrdersTest {
    private static void send(Broker broker, String value, String acks) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", broker.address, "acks", acks,
            "enable.idempotence", acks.equals("all"));
        try (var producer = new KafkaProducer<>(
                settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("orders", value)).get();
        }
    }

    private static List<String> read(Broker broker, int count) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", broker.address, "group.id", "readers",
            "auto.offset.reset", "earliest");
        List<String> values = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(
                settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            while (values.size() < count)
                consumer.poll(Duration.ofSeconds(1)).forEach(r -> values.add(r.value()));
        }
        return values;
    }

    @Test
    void aProducerSurvivesAMove() throws Exception {
        try (Broker broker = new Broker("--topic", "orders")) {
            broker.say("fail Produce NOT_LEADER_OR_FOLLOWER 2");
            send(broker, "one", "all");
            assertEquals(List.of("one"), read(broker, 1));
        }
    }

    @Test
    void aPowerCutLosesWhatNobodyWaitedFor() throws Exception {
        try (Broker broker = new Broker("--topic", "orders")) {
            send(broker, "kept", "all");
            send(broker, "lost", "1");
            broker.say("kill");
            broker.say("start");
            send(broker, "next", "all");
            assertEquals(List.of("kept", "next"), read(broker, 2));
        }
    }
}
