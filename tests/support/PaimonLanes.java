// Several drivers of the real Apache Paimon in one JVM: commands of one lane run in order, lanes run side by side.
// As PaimonPeer: one command object per line of stdin, one reply object per line of stdout; both carry the lane's number.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

public final class PaimonLanes {

    private static final ObjectMapper JSON = new ObjectMapper();

    private final PrintStream replies;
    private final Constructor<PaimonPeer> driver;
    private final Method command;
    private final PaimonCatalogs catalogs = new PaimonCatalogs();
    private final PaimonClustering clustering = new PaimonClustering();

    private PaimonLanes(PrintStream replies) throws ReflectiveOperationException {
        this.replies = replies;
        driver = PaimonPeer.class.getDeclaredConstructor(String.class);
        command = PaimonPeer.class.getDeclaredMethod("run", JsonNode.class);
        driver.setAccessible(true);
        command.setAccessible(true);
    }

    public static void main(String[] args) throws Exception {
        PaimonLanes peer = new PaimonLanes(new PrintStream(System.out, true, StandardCharsets.UTF_8));
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<Integer, Lane> lanes = new HashMap<>();
        String line;
        while ((line = in.readLine()) != null) {
            JsonNode asked = JSON.readTree(line);
            int number = asked.get("lane").asInt();
            if (!lanes.containsKey(number)) {
                lanes.put(number, peer.new Lane());
            }
            lanes.get(number).put(asked);
        }
        System.exit(0);
    }

    private final class Lane {
        private final PaimonPeer paimon;
        private final ExecutorService thread = Executors.newSingleThreadExecutor();

        Lane() throws ReflectiveOperationException, IOException {
            paimon = driver.newInstance(Files.createTempDirectory("paimon-lane").toString());
        }

        void put(JsonNode asked) {
            thread.execute(
                    () -> {
                        ObjectNode reply = answer(asked);
                        reply.put("lane", asked.get("lane").asInt());
                        String text = reply.toString();
                        synchronized (replies) {
                            replies.println(text);
                        }
                    });
        }

        private ObjectNode answer(JsonNode asked) {
            try {
                String op = asked.path("op").asText();
                ObjectNode reply =
                        op.startsWith("catalog_")
                                ? catalogs.answer(paimon, asked)
                                : op.startsWith("hive_")
                                        ? hive(paimon, asked)
                                        : op.equals("cluster")
                                                ? clustering.answer(asked)
                                                : (ObjectNode) command.invoke(paimon, asked);
                return reply.put("ok", true);
            } catch (InvocationTargetException thrown) {
                return failure(thrown.getCause());
            } catch (Throwable thrown) {
                return failure(thrown);
            }
        }
    }

    // Its class is only compiled for processes with Hive's jars.
    private static ObjectNode hive(Object driver, JsonNode asked) throws ReflectiveOperationException {
        Method answer = Class.forName("PaimonHive").getMethod("answer", Map.class, JsonNode.class);
        return (ObjectNode) answer.invoke(null, PaimonCatalogs.opened(driver), asked);
    }

    private static ObjectNode failure(Throwable thrown) {
        Set<Throwable> seen = Collections.newSetFromMap(new IdentityHashMap<>());
        StringBuilder text = new StringBuilder();
        Throwable root = thrown;
        for (Throwable cause = thrown; cause != null && seen.add(cause); cause = cause.getCause()) {
            text.append(seen.size() > 1 ? " <- " : "").append(cause.getMessage());
            root = cause;
        }
        return JSON.createObjectNode()
                .put("ok", false)
                .put("error", text.toString())
                .put("class", thrown.getClass().getName())
                .put("root_class", root.getClass().getName());
    }
}
