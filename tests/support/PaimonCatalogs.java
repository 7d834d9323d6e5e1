// Commands about catalogs with options, which PaimonPeer does not have: a JDBC catalog takes the place of a warehouse's own.

import java.lang.reflect.Field;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.jdbc.JdbcCatalog;
import org.apache.paimon.jdbc.JdbcCatalogLock;
import org.apache.paimon.options.Options;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

final class PaimonCatalogs {

    private static final ObjectMapper JSON = new ObjectMapper();
    private CountDownLatch release = new CountDownLatch(0);

    @SuppressWarnings("unchecked")
    static Map<String, Catalog> opened(Object driver) throws ReflectiveOperationException {
        Field catalogs = driver.getClass().getDeclaredField("catalogs");
        catalogs.setAccessible(true);
        return (Map<String, Catalog>) catalogs.get(driver);
    }

    ObjectNode answer(Object driver, JsonNode asked) throws Exception {
        String warehouse = asked.get("warehouse").asText();
        if (asked.get("op").asText().equals("catalog_open")) {
            Options options = new Options();
            options.set("warehouse", warehouse);
            options.set("cache-enabled", "false");
            asked.get("options").fields().forEachRemaining(e -> options.set(e.getKey(), e.getValue().asText()));
            opened(driver).put(warehouse, CatalogFactory.createCatalog(CatalogContext.create(options)));
            return JSON.createObjectNode();
        }
        Catalog catalog = opened(driver).get(warehouse);
        switch (asked.get("op").asText()) {
            case "catalog_databases":
                return names(catalog.listDatabases());
            case "catalog_tables":
                return names(catalog.listTables(asked.get("database").asText()));
            case "catalog_create_database":
                Map<String, String> properties =
                        asked.has("location")
                                ? Collections.singletonMap("location", asked.get("location").asText())
                                : Collections.emptyMap();
                catalog.createDatabase(asked.get("database").asText(), false, properties);
                return JSON.createObjectNode();
            case "catalog_drop_database":
                catalog.dropDatabase(asked.get("database").asText(), false, true);
                return JSON.createObjectNode();
            case "catalog_rename":
                catalog.renameTable(
                        Identifier.fromString(asked.get("table").asText()),
                        Identifier.fromString(asked.get("to").asText()),
                        false);
                return JSON.createObjectNode();
            case "catalog_lock":
                return lock((JdbcCatalog) catalog, asked);
            case "catalog_unlock":
                release.countDown();
                return JSON.createObjectNode();
            case "catalog_close":
                opened(driver).remove(warehouse).close();
                return JSON.createObjectNode();
            default:
                throw new IllegalArgumentException(asked.get("op").asText());
        }
    }

    // Holds the lock of a table in a thread of its own until catalog_unlock; answers once it is held.
    private ObjectNode lock(JdbcCatalog catalog, JsonNode asked) throws Exception {
        Identifier table = Identifier.fromString(asked.get("table").asText());
        JdbcCatalogLock lock =
                new JdbcCatalogLock(
                        catalog.getConnections(),
                        asked.get("key").asText(),
                        50L,
                        asked.get("timeout").asLong());
        CountDownLatch until = new CountDownLatch(1);
        release = until;
        CountDownLatch held = new CountDownLatch(1);
        String[] failure = new String[1];
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
        ObjectNode reply = JSON.createObjectNode();
        return failure[0] == null ? reply.put("held", true) : reply.put("held", false).put("failure", failure[0]);
    }

    private static ObjectNode names(List<String> names) {
        ObjectNode reply = JSON.createObjectNode();
        ArrayNode listed = reply.putArray("names");
        names.stream().sorted().forEach(listed::add);
        return reply;
    }
}
