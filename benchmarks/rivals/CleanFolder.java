import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's log cleaner on folders named on standard input, one per line.  Answers each with the
 * nanoseconds that the cleaning took: from the first byte read to the last segment swapped,
 * without the opening of the log.
 *
 * Everything is set up as a broker's cleaner thread does it with default settings; one thread.
 */
public class CleanFolder {
    static final int DEDUPE_BYTES = 128 << 20;
    static final int IO_BYTES = (512 << 10) / 2;
    static final double LOAD_FACTOR = 0.9;

    public static void main(String[] args) {
        try {
            cleanAll(args[0]);
        } catch (Exception problem) {
            problem.printStackTrace();
            System.exit(1);
        }
    }

    static void cleanAll(String segmentBytes) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        LogDirFailureChannel failures = new LogDirFailureChannel(10);
        BrokerTopicStats stats = new BrokerTopicStats();
        Properties properties = new Properties();
        properties.put("cleanup.policy", "compact");
        properties.put("segment.bytes", segmentBytes);
        LogConfig config = new LogConfig(properties);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(DEDUPE_BYTES), IO_BYTES,
                config.maxMessageSize(), LOAD_FACTOR,
                new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM),
                Time.SYSTEM, partition -> { });
        System.out.println("ready");
        BufferedReader folders = new BufferedReader(new InputStreamReader(System.in));
        for (String folder; (folder = folders.readLine()) != null;) {
            UnifiedLog log = UnifiedLog.create(new File(folder), config, 0, Long.MAX_VALUE,
                    scheduler, stats, Time.SYSTEM, 900_000,
                    new ProducerStateManagerConfig(86_400_000, false), 600_000, failures, true,
                    Optional.empty());
            log.updateHighWatermark(log.logEndOffset());
            LogToClean all = new LogToClean(log, 0, log.activeSegment().baseOffset(), false);
            long start = System.nanoTime();
            cleaner.clean(all);
            long elapsed = System.nanoTime() - start;
            log.close();
            System.out.println(elapsed);
        }
        scheduler.shutdown();
    }
}
