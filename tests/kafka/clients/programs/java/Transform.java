import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Reads, transforms and writes in transactions; each third one is aborted and repeated. */
class Transform {
    static final int STEP = 10;
    static final int ABORT = 3;

    static void run(JsonNode request, ObjectNode answer) {
        String group = request.get("group").asText();
        Properties reading = new Properties();
        reading.put("group.id", group);
        reading.put("isolation.level", "read_committed");
        reading.put("max.poll.records", STEP);
        Properties writing = new Properties();
        writing.put("bootstrap.servers", Agent.bootstrap);
        writing.put("transactional.id", group);
        TopicPartition where = new TopicPartition(request.get("source").asText(), 0);
        String target = request.get("target").asText();
        long end = System.currentTimeMillis() + Agent.ANSWER_MS;
        int tries = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = Agent.consumer(reading);
                KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                        writing, new ByteArraySerializer(), new ByteArraySerializer())) {
            consumer.subscribe(Set.of(where.topic()));
            producer.initTransactions();
            for (int done = 0; done < request.get("count").asInt();) {
                ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofMillis(200));
                if (System.currentTimeMillis() > end) {
                    throw new IllegalStateException("not in time: " + done);
                }
                if (batch.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                for (ConsumerRecord<byte[], byte[]> record : batch) {
                    producer.send(new ProducerRecord<>(target, 0, null, record.value()));
                }
                producer.sendOffsetsToTransaction(
                        Map.of(where, new OffsetAndMetadata(consumer.position(where))),
                        consumer.groupMetadata());
                tries++;
                if (tries % ABORT == 0) {
                    producer.flush(); // an abort drops unsent records
                    producer.abortTransaction();
                    consumer.seek(where, batch.iterator().next().offset());
                } else {
                    producer.commitTransaction();
                    done += batch.count();
                }
            }
        }
        answer.put("tries", tries);
    }
}
