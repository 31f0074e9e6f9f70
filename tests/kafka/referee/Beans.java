import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** A line `domain type name` for each MBean of the JVM whose JMX port is given, and one
 * `domain type attribute` for each attribute. */
public class Beans {
    public static void main(String[] arguments) throws Exception {
        String url = "service:jmx:rmi:///jndi/rmi://127.0.0.1:" + arguments[0] + "/jmxrmi";
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(url))) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            for (ObjectName bean : server.queryNames(null, null)) {
                String head = bean.getDomain() + " " + bean.getKeyProperty("type") + " ";
                if (!head.startsWith("kafka"))
                    continue;
                System.out.println(head + bean.getKeyProperty("name"));
                for (MBeanAttributeInfo one : server.getMBeanInfo(bean).getAttributes())
                    System.out.println(head + one.getName());
            }
        }
    }
}
