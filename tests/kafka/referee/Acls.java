import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Decisions of Apache Kafka's StandardAuthorizer.
 *
 * Lines of fields between tabs: `set super-users default` begins with no ACL; `acl kind name pattern
 * principal host operation permission`; `one principal host operation kind name` and `any principal
 * host operation kind` print 1 or 0, or the class of the exception. */
public class Acls {
    private record Caller(KafkaPrincipal principal, InetAddress clientAddress)
        implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 9; }
        public String clientId() { return "client"; }
        public int correlationId() { return 1; }
    }

    private static byte code(String text) { return Byte.parseByte(text); }

    private static Caller caller(String principal, String host) throws Exception {
        String[] parts = principal.split(":", 2);
        return new Caller(new KafkaPrincipal(parts[0], parts[1]), InetAddress.getByName(host));
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        StandardAuthorizer authorizer = null;
        Metrics metrics = new Metrics();
        int n = 0;
        StringBuilder out = new StringBuilder();
        for (String line; (line = in.readLine()) != null;) {
            String[] f = line.split("\t", -1);
            switch (f[0]) {
                case "set" -> {
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(Map.of(
                        "super.users", f[1], "allow.everyone.if.no.acl.found", f[2]));
                    authorizer.withPluginMetrics(new PluginMetricsImpl(metrics, Map.of("n", "" + n++)));
                    authorizer.completeInitialLoad();
                }
                case "acl" -> authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.fromCode(code(f[1])), f[2], PatternType.fromCode(code(f[3])),
                    f[4], f[5], AclOperation.fromCode(code(f[6])),
                    AclPermissionType.fromCode(code(f[7]))));
                default -> out.append(answer(authorizer, f)).append('\n');
            }
        }
        System.out.print(out);
    }

    private static String answer(StandardAuthorizer authorizer, String[] f) {
        try {
            Caller caller = caller(f[1], f[2]);
            AclOperation operation = AclOperation.fromCode(code(f[3]));
            ResourceType kind = ResourceType.fromCode(code(f[4]));
            AuthorizationResult found = f[0].equals("any")
                ? authorizer.authorizeByResourceType(caller, operation, kind)
                : authorizer.authorize(caller, List.of(new Action(operation,
                    new ResourcePattern(kind, f[5], PatternType.LITERAL), 1, false, false))).get(0);
            return found == AuthorizationResult.ALLOWED ? "1" : "0";
        } catch (Exception problem) {
            return problem.toString().replace(" ", "_");
        }
    }
}
