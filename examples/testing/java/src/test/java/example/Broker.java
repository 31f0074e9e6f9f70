package example;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.Writer;
import java.util.ArrayList;
import java.util.List;

/** `kafkalog test-broker`: it ends with this process, however that ends. */
final class Broker implements AutoCloseable {
    final String address;
    private final Process process;
    private final BufferedReader out;
    private final Writer in;

    /** KAFKALOG in the environment names the command, if it is not in PATH. */
    Broker(String... arguments) throws IOException {
        List<String> words = new ArrayList<>(
            List.of(System.getenv().getOrDefault("KAFKALOG", "kafkalog").split(" ")));
        words.add("test-broker");
        words.addAll(List.of(arguments));
        process = new ProcessBuilder(words).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        out = process.inputReader();
        in = process.outputWriter();
        address = out.readLine();
    }

    /** Gives a command, such as "fail Produce NOT_LEADER_OR_FOLLOWER 2". */
    void say(String command) throws IOException {
        in.write(command + "\n");
        in.flush();
        String answer = out.readLine();
        if (!"ok".equals(answer)) throw new IllegalArgumentException(command + ": " + answer);
    }

    @Override
    public void close() throws IOException, InterruptedException {
        in.close();
        process.waitFor();
    }
}
