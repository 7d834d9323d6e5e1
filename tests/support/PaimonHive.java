// Commands about a Hive catalog: what its metastore stores of a table, what Java would store, and its locks.

import java.lang.reflect.Method;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.hadoop.hive.metastore.api.FieldSchema;
import org.apache.hadoop.hive.metastore.api.Partition;
import org.apache.hadoop.hive.metastore.api.Table;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogLock;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.fs.Path;
import org.apache.paimon.hive.HiveCatalog;
import org.apache.paimon.schema.TableSchema;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

public final class PaimonHive {

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, CountDownLatch> HELD = new ConcurrentHashMap<>();

    private PaimonHive() {}

    public static ObjectNode answer(Map<String, Catalog> catalogs, JsonNode asked) throws Exception {
        HiveCatalog catalog = (HiveCatalog) catalogs.get(asked.get("warehouse").asText());
        String name = asked.get("table").asText();
        Identifier table = Identifier.fromString(name);
        switch (asked.get("op").asText()) {
            case "hive_stored":
                return described(catalog.getHmsTable(table));
            case "hive_expected":
                return described(expected(catalog, table));
            case "hive_partitions":
                ObjectNode reply = JSON.createObjectNode();
                ArrayNode listed = reply.putArray("partitions");
                for (Partition partition : catalog.listPartitionsFromHms(table)) {
                    ObjectNode one = listed.addObject();
                    one.put("location", partition.getSd().getLocation());
                    partition.getValues().forEach(one.putArray("values")::add);
                    partition.getParameters().forEach(one.putObject("parameters")::put);
                    columns(one.putArray("columns"), partition.getSd().getCols());
                }
                return reply;
            case "hive_repair":
                catalog.repairTable(table);
                return JSON.createObjectNode();
            case "hive_lock":
                return lock(catalog, name, table);
            case "hive_unlock":
                HELD.remove(name).countDown();
                return JSON.createObjectNode();
            default:
                throw new IllegalArgumentException(asked.get("op").asText());
        }
    }

    // The metastore's table that Java would create for the newest schema.
    private static Table expected(HiveCatalog catalog, Identifier table) throws Exception {
        Method create =
                HiveCatalog.class.getDeclaredMethod(
                        "createHiveTable", Identifier.class, TableSchema.class, Path.class, boolean.class);
        create.setAccessible(true);
        boolean external = catalog.getHmsTable(table).getTableType().equals("EXTERNAL_TABLE");
        Path location = catalog.getTableLocation(table);
        return (Table) create.invoke(catalog, table, catalog.loadTableSchema(table), location, external);
    }

    private static ObjectNode described(Table table) {
        ObjectNode reply = JSON.createObjectNode();
        reply.put("type", table.getTableType());
        reply.put("owner", table.getOwner());
        reply.put("location", table.getSd().getLocation());
        reply.put("input", table.getSd().getInputFormat());
        reply.put("output", table.getSd().getOutputFormat());
        reply.put("serde", table.getSd().getSerdeInfo().getSerializationLib());
        new TreeMap<>(table.getSd().getSerdeInfo().getParameters()).forEach(reply.putObject("serde_parameters")::put);
        columns(reply.putArray("columns"), table.getSd().getCols());
        columns(reply.putArray("partition_columns"), table.getPartitionKeys());
        new TreeMap<>(table.getParameters()).forEach(reply.putObject("parameters")::put);
        return reply;
    }

    private static void columns(ArrayNode listed, List<FieldSchema> fields) {
        if (fields == null) {
            return;
        }
        for (FieldSchema field : fields) {
            listed.addArray().add(field.getName()).add(field.getType()).add(field.getComment());
        }
    }

    // Holds the lock of a table in a thread of its own until hive_unlock; answers once it is held.
    private static ObjectNode lock(HiveCatalog catalog, String name, Identifier table) throws Exception {
        CatalogLock lock = catalog.defaultLockFactory().get().createLock(catalog.lockContext().get());
        CountDownLatch until = new CountDownLatch(1);
        CountDownLatch held = new CountDownLatch(1);
        String[] failure = new String[1];
        HELD.put(name, until);
        Thread holder =
                new Thread(
                        () -> {
                            try {
                                lock.runWithLock(
                                        table.getDatabaseName(),
                                        table.getObjectName(),
                                        () -> {
                                            held.countDown();
                                            until.await();
                                            return null;
                                        });
                            } catch (Throwable thrown) {
                                failure[0] = thrown.toString();
                            } finally {
                                held.countDown();
                            }
                        });
        holder.setDaemon(true);
        holder.start();
        held.await();
        ObjectNode reply = JSON.createObjectNode().put("held", failure[0] == null);
        return failure[0] == null ? reply : reply.put("failure", failure[0]);
    }
}
