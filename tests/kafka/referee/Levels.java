import org.apache.kafka.server.common.MetadataVersion;

/** A line `from to` for each level of metadata.version and each lower one that Apache Kafka would
 * set it to. */
public class Levels {
    public static void main(String[] arguments) {
        for (MetadataVersion from : MetadataVersion.VERSIONS)
            for (MetadataVersion to : MetadataVersion.VERSIONS)
                if (to.isLessThan(from) && !MetadataVersion.checkIfMetadataChanged(from, to))
                    System.out.println(from.featureLevel() + " " + to.featureLevel());
    }
}
