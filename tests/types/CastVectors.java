import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import org.apache.paimon.casting.CastExecutor;
import org.apache.paimon.casting.CastExecutors;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeCasts;

/**
 * Asks Paimon's own cast rules: {"source","target","values"} a line in; out come whether the types may be cast, and what each value
 * becomes. Made cast_vectors.jsonl.gz (whose lines are its input, too) with Paimon 1.4.2, JDK 17 and -Duser.timezone=UTC. Needs
 * PaimonPeer.class on the class path, for the text form of values. The file keeps {"error":true} for any failure.
 */
public class CastVectors {
    @SuppressWarnings("unchecked")
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        Method type = PaimonPeer.class.getDeclaredMethod("type", JsonNode.class);
        Method decode = PaimonPeer.class.getDeclaredMethod("decode", JsonNode.class, DataType.class);
        Method encode = PaimonPeer.class.getDeclaredMethod("encode", Object.class, DataType.class);
        for (Method m : new Method[] {type, decode, encode}) {
            m.setAccessible(true);
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        java.io.PrintStream out = new java.io.PrintStream(System.out, true, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = json.readTree(line);
            DataType source = (DataType) type.invoke(null, asked.get("source"));
            DataType target = (DataType) type.invoke(null, asked.get("target"));
            ObjectNode answer = json.createObjectNode();
            answer.set("source", asked.get("source"));
            answer.set("target", asked.get("target"));
            answer.put("implicit", DataTypeCasts.supportsCast(source, target, false));
            answer.put("explicit", DataTypeCasts.supportsCast(source, target, true));
            CastExecutor<Object, Object> rule = null;
            String failure = null;
            try {
                rule = (CastExecutor<Object, Object>) CastExecutors.resolve(source, target);
            } catch (Throwable e) {
                failure = e.toString();
            }
            answer.put("rule", rule != null);
            if (failure != null) {
                answer.put("failure", failure);
            }
            ArrayNode values = answer.putArray("values");
            ArrayNode results = answer.putArray("results");
            if (rule != null) {
                for (JsonNode value : asked.get("values")) {
                    values.add(value);
                    try {
                        Object found = rule.cast(decode.invoke(null, value, source));
                        results.add((JsonNode) encode.invoke(null, found, target));
                    } catch (Throwable e) {
                        Throwable root = e;
                        while (root.getCause() != null) {
                            root = root.getCause();
                        }
                        results.addObject().put("error", root.getClass().getSimpleName() + ": " + root.getMessage());
                    }
                }
            }
            out.println(json.writeValueAsString(answer));
        }
    }
}
