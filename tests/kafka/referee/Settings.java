import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Properties;
import kafka.server.KafkaConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Whether Apache Kafka would start with a setting: a line `scope TAB name TAB value` in, a line
 * `ok` or Kafka's reason out; scope `node`: all settings, separated by `;`.  Without a value: Kafka's default, `null` for none, `unknown`. */
public class Settings {
    static Properties base() {
        Properties found = new Properties();
        found.put("process.roles", "broker,controller");
        found.put("node.id", "1");
        found.put("controller.quorum.voters", "1@localhost:9093");
        found.put("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093");
        found.put("advertised.listeners", "PLAINTEXT://localhost:9092");
        found.put("controller.listener.names", "CONTROLLER");
        found.put("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT");
        found.put("log.dirs", "/tmp/none");
        return found;
    }

    static String ask(String scope, String name, String value) {
        try {
            Properties given = scope.equals("node") ? new Properties() : base();
            if (scope.equals("node")) {
                given.put("log.dirs", "/tmp/none");
                for (String pair : value.split(";")) {
                    String[] parts = pair.split("=", 2);
                    given.put(parts[0], parts[1]);
                }
                new KafkaConfig(given, false);
                return "ok";
            }
            given.put(name, value);
            if (name.equals("node.id")) given.put("controller.quorum.voters", value + "@localhost:9093");
            if (scope.equals("broker")) {
                var logs = new KafkaConfig(given, false).extractLogConfigMap();
                LogConfig.validateBrokerLogConfigValues(logs, false);
                new LogConfig(logs);
            } else {
                var logs = new KafkaConfig(base(), false).extractLogConfigMap();
                LogConfig.validate(Map.of(), Map.of(name, value), logs, false);
            }
            return "ok";
        } catch (Throwable problem) {
            String why = String.valueOf(problem.getMessage()).replace('\n', ' ');
            return problem.getClass().getSimpleName() + ": " + why;
        }
    }

    static String byDefault(String scope, String name) {
        var broker = new KafkaConfig(base(), false);
        var logs = new LogConfig(broker.extractLogConfigMap());
        var values = scope.equals("broker") ? KafkaConfig.configDef().defaultValues() : logs.values();
        if (!values.containsKey(name)) return "unknown";
        Object found = values.get(name);
        return found instanceof java.util.List<?> list ? String.join(",", list.toArray(new String[0]))
                : String.valueOf(found);
    }

    public static void main(String[] ignored) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            System.out.println(parts.length == 2 ? byDefault(parts[0], parts[1]) : ask(parts[0], parts[1], parts[2]));
        }
    }
}
