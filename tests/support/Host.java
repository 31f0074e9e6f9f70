// Kafka's Java code in one JVM that stays up: main classes, one after another.
//
// In:  the number of words, each as a length and its bytes: a class, then its arguments; its
//      input, as a length and its bytes.
// Out: its exit status; what it wrote to its output and to its errors, each as a length and its bytes.
//
// All numbers are big-endian and have four bytes.

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;

import org.apache.kafka.common.utils.internals.Exit;

public class Host {
    /** Thrown instead of ending the process; some classes catch it and end with another status. */
    static class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    /** The first exit status of the present question, if any. */
    static volatile Integer ended;

    static void end(int status, String message) {
        if (message != null) System.err.println(message);
        if (ended == null) ended = status;
        throw new Ended();
    }

    /** Code that kept the stream of an earlier question writes to the present one. */
    static class Out extends OutputStream {
        private ByteArrayOutputStream kept = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int one) {
            kept.write(one);
        }

        @Override
        public synchronized void write(byte[] some, int from, int count) {
            kept.write(some, from, count);
        }

        synchronized byte[] taken() {
            byte[] found = kept.toByteArray();
            kept = new ByteArrayOutputStream();
            return found;
        }
    }

    /** The same for input. */
    static class In extends InputStream {
        volatile InputStream given = InputStream.nullInputStream();

        @Override
        public int read() throws IOException {
            return given.read();
        }

        @Override
        public int read(byte[] into, int from, int count) throws IOException {
            return given.read(into, from, count);
        }
    }

    static int run(String[] words) {
        String[] arguments = new String[words.length - 1];
        System.arraycopy(words, 1, arguments, 0, arguments.length);
        ended = null;
        try {
            var main = Class.forName(words[0]).getMethod("main", String[].class);
            main.setAccessible(true);
            main.invoke(null, (Object) arguments);
            return ended == null ? 0 : ended;
        } catch (InvocationTargetException wrapped) {
            if (wrapped.getCause() instanceof Ended) return ended;
            wrapped.getCause().printStackTrace();
        } catch (Exception problem) {
            problem.printStackTrace();
        }
        return 1;
    }

    static byte[] bytes(DataInputStream in) throws IOException {
        return in.readNBytes(in.readInt());
    }

    static void answer(DataOutputStream out, byte[] data) throws IOException {
        out.writeInt(data.length);
        out.write(data);
    }

    public static void main(String[] ignored) throws IOException {
        DataInputStream questions = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        In in = new In();
        Out out = new Out(), err = new Out();
        System.setIn(in);
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure(Host::end);
        Exit.setHaltProcedure(Host::end);
        try {
            while (true) {
                String[] words = new String[questions.readInt()];
                for (int i = 0; i < words.length; i++) {
                    words[i] = new String(bytes(questions), StandardCharsets.UTF_8);
                }
                in.given = new ByteArrayInputStream(bytes(questions));
                int status = run(words);
                System.out.flush();
                System.err.flush();
                answers.writeInt(status);
                answer(answers, out.taken());
                answer(answers, err.taken());
                answers.flush();
            }
        } catch (EOFException nobodyAsksAnyMore) {
            Runtime.getRuntime().halt(0);
        }
    }
}
