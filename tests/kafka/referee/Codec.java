// Apache Kafka's own codec behind a pipe: reads a message, writes it again and prints its content.
//
// In:  one message a line, "<what> <number> <version> <hex>" with what as in empty() below, or
//      "retriable <error code> -".
// Out: "<hex> <json>", "true" or "false", or "failed: <why>".

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.ConsumerProtocolAssignment;
import org.apache.kafka.common.message.ConsumerProtocolSubscription;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordType;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogKey;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValue;

public class Codec {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println(answer(line.split(" ", -1)));
            } catch (Exception error) {
                out.println("failed: " + error);
            }
        }
        out.flush();
    }

    private static String answer(String[] words) throws Exception {
        short number = Short.parseShort(words[1]);
        if (words[0].equals("retriable")) {
            Errors error = Errors.forCode(number);
            return error.name() + " " + (error.exception() instanceof RetriableException);
        }
        short version = Short.parseShort(words[2]);
        ApiMessage message = empty(words[0], number);
        ByteBuffer data = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
        message.read(new ByteBufferAccessor(data), version);
        if (data.hasRemaining()) {
            return "failed: " + data.remaining() + " bytes are left";
        }
        ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        Object json = Class.forName(message.getClass().getName() + "JsonConverter")
            .getMethod("write", message.getClass(), short.class)
            .invoke(null, message, version);
        return HexFormat.of().formatHex(bytes) + " " + json;
    }

    private static ApiMessage empty(String kind, short number) {
        switch (kind) {
            case "request":
                return ApiMessageType.fromApiKey(number).newRequest();
            case "response":
                return ApiMessageType.fromApiKey(number).newResponse();
            case "metadata":
                return MetadataRecordType.fromId(number).newMetadataRecord();
            case "key":
                return CoordinatorRecordType.fromId(number).newRecordKey();
            case "value":
                return CoordinatorRecordType.fromId(number).newRecordValue();
            case "transaction":
                return number == 0 ? new TransactionLogKey() : new TransactionLogValue();
            case "member":
                return number == 0
                    ? new ConsumerProtocolSubscription() : new ConsumerProtocolAssignment();
            default:
                return control(number);
        }
    }

    private static ApiMessage control(short number) {
        switch (number) {
            case 2:
                return new LeaderChangeMessage();
            case 3:
                return new SnapshotHeaderRecord();
            case 4:
                return new SnapshotFooterRecord();
            case 5:
                return new KRaftVersionRecord();
            default:
                return new VotersRecord();
        }
    }
}
