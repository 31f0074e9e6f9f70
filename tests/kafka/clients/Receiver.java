import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** A broker's reporter that appends each push to a file: client, instance id, end, content type, data. */
public class Receiver implements MetricsReporter, ClientTelemetry {
    private Path file;

    @Override
    public void configure(Map<String, ?> configs) {
        file = Path.of(configs.get("receiver.file").toString());
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return this::received;
    }

    private synchronized void received(
            AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        ByteBuffer data = payload.data();
        byte[] bytes = new byte[data.remaining()];
        data.duplicate().get(bytes);
        String line = String.join(" ", context.clientId(), payload.clientInstanceId().toString(),
            String.valueOf(payload.isTerminating()), payload.contentType(),
            Base64.getEncoder().encodeToString(bytes)) + "\n";
        try {
            Files.write(file, line.getBytes(StandardCharsets.UTF_8), StandardOpenOption.CREATE,
                StandardOpenOption.APPEND);
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }
}
