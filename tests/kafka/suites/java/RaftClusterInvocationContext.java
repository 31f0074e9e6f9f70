// Kafka's tests of requests start a Kafka in their own JVM.  This class stands in for the one of
// this name that does so, and starts our broker, a process, as `kafkalog.serve` says.

package org.apache.kafka.common.test.junit;

import java.io.File;
import java.io.IOException;
import java.io.PrintWriter;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import kafka.network.SocketServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import sun.misc.Unsafe;

public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;
    private final boolean combined;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean combined) {
        this.name = name;
        this.config = config;
        this.combined = combined;
    }

    @Override
    public String getDisplayName(int number) {
        return name + " " + number;
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        Ours ours = new Ours(config, combined);
        return List.of(
            (BeforeEachCallback) context -> {
                // What one process of ours can show; a combined node differs from it in nothing
                // that a request can see.
                Assumptions.assumeFalse(combined, "the same again with a combined node");
                Assumptions.assumeTrue(config.numBrokers() == 1, "several brokers");
                Assumptions.assumeTrue(
                    config.brokerSecurityProtocol() == SecurityProtocol.PLAINTEXT, "its own files");
                if (config.isAutoStart()) {
                    ours.start();
                }
            },
            (AfterEachCallback) context -> ours.close(),
            new ClusterInstanceParameterResolver(ours));
    }

    /** A broker of ours, as far as tests ask for Kafka's objects. */
    private static final class Ours implements ClusterInstance {
        private static final int NODE = 0;
        private static final int CONTROLLER = 3000;
        private static final long LIMIT_MS = 60_000;

        private final ClusterConfig config;
        private final boolean combined;
        private final int port = freePort();
        private Path folder;
        private Process process;

        Ours(ClusterConfig config, boolean combined) {
            this.config = config;
            this.combined = combined;
        }

        private static int freePort() {
            try (ServerSocket socket = new ServerSocket(0)) {
                return socket.getLocalPort();
            } catch (IOException problem) {
                throw new KafkaException(problem);
            }
        }

        private Map<String, String> settings() {
            String listener = config.brokerListenerName().value();
            Map<String, String> found = new HashMap<>(config.serverProperties());
            found.putAll(config.perServerOverrideProperties().getOrDefault(NODE, Map.of()));
            found.put("node.id", String.valueOf(NODE));
            found.put("listeners", listener + "://127.0.0.1:" + port);
            found.put("advertised.listeners", listener + "://127.0.0.1:" + port);
            found.put("listener.security.protocol.map", listener + ":PLAINTEXT");
            found.put("inter.broker.listener.name", listener);
            return found;
        }

        @Override
        public void start() {
            try {
                Path above = Path.of(System.getProperty("kafkalog.folder"));
                folder = Files.createTempDirectory(above, "t");
                try (PrintWriter file = new PrintWriter(folder.resolve("properties").toFile())) {
                    settings().forEach((key, value) -> file.println(key + "=" + value));
                }
                startBroker(NODE);
                setFeatures();
            } catch (Exception problem) {
                throw new KafkaException(problem);
            }
        }

        private void setFeatures() throws Exception {
            if (config.features().isEmpty()) {
                return;
            }
            Map<String, FeatureUpdate> updates = new HashMap<>();
            config.features().forEach((feature, level) -> updates.put(feature.featureName(),
                new FeatureUpdate(level, FeatureUpdate.UpgradeType.UNSAFE_DOWNGRADE)));
            try (Admin admin = admin()) {
                admin.updateFeatures(updates, new UpdateFeaturesOptions()).all().get();
            }
        }

        @Override
        public void startBroker(int id) {
            List<String> command = new ArrayList<>(
                List.of(System.getProperty("kafkalog.serve").split(" ")));
            command.addAll(List.of("--dir", folder.resolve("data").toString()));
            command.addAll(List.of("--config", folder.resolve("properties").toString()));
            File output = folder.resolve("output").toFile();
            try {
                process = new ProcessBuilder(command).redirectErrorStream(true)
                    .redirectOutput(ProcessBuilder.Redirect.appendTo(output)).start();
                waitForReadyBrokers();
            } catch (IOException | InterruptedException problem) {
                throw new KafkaException(problem);
            }
        }

        @Override
        public void waitForReadyBrokers() throws InterruptedException {
            try (Admin admin = admin()) {
                admin.describeCluster().nodes().get(LIMIT_MS, TimeUnit.MILLISECONDS);
            } catch (InterruptedException problem) {
                throw problem;
            } catch (Exception problem) {
                throw new KafkaException("the broker does not answer: " + output(), problem);
            }
        }

        private String output() {
            try {
                return Files.readString(folder.resolve("output"));
            } catch (IOException problem) {
                return problem.toString();
            }
        }

        @Override
        public void shutdownBroker(int id) {
            process.destroy();
            try {
                if (!process.waitFor(LIMIT_MS, TimeUnit.MILLISECONDS)) {
                    throw new KafkaException("the broker does not stop");
                }
            } catch (InterruptedException problem) {
                throw new KafkaException(problem);
            }
        }

        @Override
        public void stop() {
            if (process != null) {
                shutdownBroker(NODE);
            }
        }

        void close() throws IOException {
            stop();
            if (folder != null) {
                Utils.delete(folder.toFile());
            }
        }

        @Override
        public boolean started() {
            return process != null;
        }

        @Override
        public boolean stopped() {
            return process != null && !process.isAlive();
        }

        @Override
        public Type type() {
            return combined ? Type.CO_KRAFT : Type.KRAFT;
        }

        @Override
        public ClusterConfig config() {
            return config;
        }

        @Override
        public ListenerName clientListener() {
            return config.brokerListenerName();
        }

        @Override
        public ListenerName controllerListenerName() {
            return config.controllerListenerName();
        }

        @Override
        public String bootstrapServers() {
            return "127.0.0.1:" + port;
        }

        @Override
        public String bootstrapControllers() {
            throw new UnsupportedOperationException("the controllers' addresses");
        }

        @Override
        public List<Integer> brokerBoundPorts() {
            return List.of(port);
        }

        @Override
        public String clusterId() {
            try (Admin admin = admin()) {
                return admin.describeCluster().clusterId().get();
            } catch (Exception problem) {
                throw new KafkaException(problem);
            }
        }

        /** None to go through, as tests then wait for Kafka's objects; but one to get, of which
         *  they ask the ids of topics. */
        @Override
        public Map<Integer, ControllerServer> controllers() {
            return new AbstractMap<>() {
                @Override
                public Set<Map.Entry<Integer, ControllerServer>> entrySet() {
                    return Set.of();
                }

                @Override
                public ControllerServer get(Object id) {
                    return controller();
                }
            };
        }

        private ControllerServer controller() {
            Controller answers = answering(Controller.class, Map.of(
                "findAllTopicIds", given -> CompletableFuture.completedFuture(topicIds())));
            ControllerServer found = bare(ControllerServer.class);
            try {
                Field field = ControllerServer.class.getDeclaredField("controller");
                field.setAccessible(true);
                field.set(found, answers);
            } catch (ReflectiveOperationException problem) {
                throw new KafkaException(problem);
            }
            return found;
        }

        @Override
        public Set<Integer> controllerIds() {
            return Set.of(CONTROLLER);
        }

        @Override
        public Optional<FaultHandlerException> firstFatalException() {
            return Optional.empty();
        }

        @Override
        public Optional<FaultHandlerException> firstNonFatalException() {
            return Optional.empty();
        }

        @Override
        public void ensureConsistentMetadata() {}

        @Override
        public void ensureConsistentMetadata(
                Collection<KafkaBroker> brokers, Collection<ControllerServer> controllers) {}

        @Override
        public Map<Integer, KafkaBroker> brokers() {
            Properties properties = new Properties();
            properties.putAll(settings());
            properties.put("process.roles", "broker");
            properties.put("controller.quorum.bootstrap.servers", "127.0.0.1:1");
            properties.put("controller.listener.names", config.controllerListenerName().value());
            properties.put("listener.security.protocol.map",
                properties.get("listener.security.protocol.map")
                    + "," + config.controllerListenerName().value() + ":PLAINTEXT");
            KafkaConfig parsed = new KafkaConfig(properties, false);
            MetadataCache cache = answering(MetadataCache.class, Map.of(
                "numPartitions", given -> topic((String) given[0])
                    .map(one -> one.partitions().size()),
                "getLeaderAndIsr", given -> topic((String) given[0])
                    .map(one -> one.partitions().get((Integer) given[1])).map(Ours::leaderAndIsr)));
            GroupCoordinator groups = answering(GroupCoordinator.class, Map.of(
                "groupMetadataTopicConfigs", given -> new Properties()));
            Listening listening = bare(Listening.class);
            listening.port = port;
            return Map.of(NODE, answering(KafkaBroker.class, Map.of(
                "config", given -> parsed,
                "metadataCache", given -> cache,
                "groupCoordinator", given -> groups,
                "socketServer", given -> listening,
                "isShutdown", given -> stopped(),
                "boundPort", given -> port)));
        }

        private Map<String, Uuid> topicIds() {
            try (Admin admin = admin()) {
                return admin.listTopics(new ListTopicsOptions().listInternal(true)).listings().get()
                    .stream().collect(Collectors.toMap(TopicListing::name, TopicListing::topicId));
            } catch (InterruptedException | ExecutionException problem) {
                throw new KafkaException(problem);
            }
        }

        private Optional<TopicDescription> topic(String name) {
            try (Admin admin = admin()) {
                return Optional.of(
                    admin.describeTopics(List.of(name)).allTopicNames().get().get(name));
            } catch (Exception problem) {
                return Optional.empty();
            }
        }

        private static LeaderAndIsr leaderAndIsr(TopicPartitionInfo partition) {
            List<Integer> isr = partition.isr().stream().map(Node::id).collect(Collectors.toList());
            return new LeaderAndIsr(partition.leader().id(), isr);
        }

        /** An object of Kafka without its constructor, which would begin the work of a server. */
        private static <T> T bare(Class<T> kind) {
            try {
                Field unsafe = Unsafe.class.getDeclaredField("theUnsafe");
                unsafe.setAccessible(true);
                return kind.cast(((Unsafe) unsafe.get(null)).allocateInstance(kind));
            } catch (ReflectiveOperationException problem) {
                throw new KafkaException(problem);
            }
        }

        /** A server that only knows its port. */
        private static final class Listening extends SocketServer {
            private int port;

            private Listening() {
                super(null, null, null, null, null, null, null); // see `bare`
            }

            @Override
            public int boundPort(ListenerName listener) {
                return port;
            }
        }

        private interface Answer {
            Object to(Object[] given);
        }

        /** An object with some methods of an interface; the others say that they are missing. */
        private static <T> T answering(Class<T> kind, Map<String, Answer> answers) {
            InvocationHandler handler = (Object self, Method method, Object[] given) -> {
                Answer answer = answers.get(method.getName());
                if (answer == null) {
                    throw new UnsupportedOperationException("a broker's " + method.getName());
                }
                return answer.to(given);
            };
            return kind.cast(
                Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind}, handler));
        }
    }
}
