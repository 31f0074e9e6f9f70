import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** A stream of numbered values, and its acknowledged numbers. */
class Numbers extends Thread {
    static final int IN_FLIGHT = 500;
    static final int BURST = 40;
    static final long PAUSE_MS = 10;
    final KafkaProducer<byte[], byte[]> producer;
    final String topic;
    final int partitions;
    final Semaphore room = new Semaphore(IN_FLIGHT);
    final List<long[]> acked = new ArrayList<>();
    final List<Object[]> failed = new ArrayList<>();
    long next;
    volatile boolean stopped;

    Numbers(JsonNode request) {
        producer = Agent.producer(request);
        topic = request.get("topic").asText();
        partitions = request.get("partitions").asInt();
        next = request.get("start").asLong();
        setDaemon(true);
    }

    @Override
    public void run() {
        while (!stopped) {
            rest();
            room.acquireUninterruptibly();
            long number = next++;
            int partition = (int) (number % partitions);
            byte[] value = (number + ":" + "v".repeat((int) (number * 7 % 300))).getBytes();
            producer.send(new ProducerRecord<>(topic, partition, "k".getBytes(), value),
                    (done, problem) -> note(number, partition, problem, problem == null
                            ? done.offset() : -1));
        }
    }

    /** Some thousands a second are load, and can all be checked. */
    void rest() {
        try {
            if (next % BURST == 0) {
                sleep(PAUSE_MS);
            }
        } catch (InterruptedException nobodyDoes) {
            stopped = true;
        }
    }

    synchronized void note(long number, int partition, Exception problem, long offset) {
        room.release();
        if (problem == null) {
            acked.add(new long[] {number, partition, offset});
        } else {
            failed.add(new Object[] {number, problem.toString()});
        }
    }

    void finish() throws InterruptedException {
        stopped = true;
        join();
        producer.close();
    }

    synchronized void state(ObjectNode answer) {
        ArrayNode done = answer.putArray("acked");
        acked.forEach(one -> done.addArray().add(one[0]).add(one[1]).add(one[2]));
        ArrayNode undone = answer.putArray("failed");
        failed.forEach(one -> undone.addArray().add((long) one[0]).add((String) one[1]));
    }
}
