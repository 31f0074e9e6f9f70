// Applications of Kafka Streams, configured by a properties file: `word-count` counts words, as
// every introduction does; `join` joins two streams.  Each line of the standard input is a question,
// which one line answers; the application closes when its input ends.

import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.Locale;
import java.util.Properties;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsMetadata;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.state.KeyValueStore;

public final class Application {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Consumed<String, String> TEXTS = Consumed.with(TEXT, TEXT);

    private Application() {}

    public static void main(String[] arguments) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        switch (arguments[0]) {
            case "word-count" -> words(builder);
            case "join" -> pairs(builder);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        Properties settings = new Properties();
        try (FileReader file = new FileReader(arguments[1])) {
            settings.load(file);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(problem -> {
            System.err.println(problem);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) {
            System.out.println(answer(streams, line));
        }
        streams.close(Duration.ofSeconds(10));
    }

    private static void words(StreamsBuilder builder) {
        builder.stream("lines", TEXTS)
            .flatMapValues(line -> Arrays.asList(line.toLowerCase(Locale.ROOT).split("\\W+")))
            .groupBy((key, word) -> word, Grouped.with(TEXT, TEXT))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counted"))
            .toStream()
            .to("counts", Produced.with(TEXT, Serdes.Long()));
    }

    /** Records of equal keys that are at most a second apart.  None is ever too late. */
    private static void pairs(StreamsBuilder builder) {
        JoinWindows near =
            JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(1), Duration.ofDays(1));
        builder.stream("left", TEXTS)
            .join(builder.stream("right", TEXTS), (left, right) -> left + ":" + right, near,
                StreamJoined.with(TEXT, TEXT, TEXT).withStoreName("near"))
            .to("pairs", Produced.with(TEXT, TEXT));
    }

    private static String answer(KafkaStreams streams, String question) {
        return switch (question) {
            case "state" -> streams.state().toString();
            case "active" -> tasks(streams, ThreadMetadata::activeTasks);
            case "standby" -> tasks(streams, ThreadMetadata::standbyTasks);
            case "hosts" -> hosts(streams, StreamsMetadata::topicPartitions);
            case "standby-hosts" -> hosts(streams, StreamsMetadata::standbyTopicPartitions);
            default -> throw new IllegalArgumentException(question);
        };
    }

    /** Its own tasks, such as "0_0 0_1". */
    private static String tasks(
            KafkaStreams streams, Function<ThreadMetadata, Collection<TaskMetadata>> which) {
        return sorted(streams.metadataForLocalThreads().stream()
            .flatMap(thread -> which.apply(thread).stream())
            .map(task -> task.taskId().toString()));
    }

    /** The partitions of each instance that this one knows, such as "localhost:1/left-0". */
    private static String hosts(
            KafkaStreams streams,
            Function<StreamsMetadata, Collection<?>> which) {
        return sorted(streams.metadataForAllStreamsClients().stream()
            .flatMap(one -> which.apply(one).stream()
                .map(partition -> one.host() + ":" + one.port() + "/" + partition)));
    }

    private static String sorted(Stream<String> words) {
        return words.sorted().collect(Collectors.joining(" "));
    }
}
