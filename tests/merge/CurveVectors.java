import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.sort.hilbert.HilbertIndexer;
import org.apache.paimon.sort.zorder.ZIndexer;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.RowType;

/**
 * Asks Paimon's own curves: {"types","text_bytes","rows"} a line in; out come the bytes of each row along the z-order and the Hilbert
 * curve ("" where Java fails). Made curve_vectors.jsonl.gz (whose lines are its input, too) with Paimon 1.4.2. Needs
 * PaimonPeer.class on the class path, for the text form of values.
 */
public class CurveVectors {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        Method type = PaimonPeer.class.getDeclaredMethod("type", JsonNode.class);
        Method decode = PaimonPeer.class.getDeclaredMethod("decode", JsonNode.class, DataType.class);
        type.setAccessible(true);
        decode.setAccessible(true);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        java.io.PrintStream out = new java.io.PrintStream(System.out, true, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode asked = (ObjectNode) json.readTree(line);
            List<DataType> types = new ArrayList<>();
            List<String> names = new ArrayList<>();
            for (JsonNode one : asked.get("types")) {
                types.add((DataType) type.invoke(null, one));
                names.add("c" + names.size());
            }
            RowType rowType = RowType.of(types.toArray(new DataType[0]), names.toArray(new String[0]));
            ZIndexer zorder = new ZIndexer(rowType, names, asked.get("text_bytes").asInt());
            zorder.open();
            HilbertIndexer hilbert = names.size() > 1 ? new HilbertIndexer(rowType, names) : null;
            ArrayNode zvalues = asked.putArray("zorder");
            ArrayNode hvalues = asked.putArray("hilbert");
            for (JsonNode row : asked.get("rows")) {
                GenericRow values = new GenericRow(types.size());
                for (int i = 0; i < types.size(); i++) {
                    values.setField(i, row.get(i).isNull() ? null : decode.invoke(null, row.get(i), types.get(i)));
                }
                zvalues.add(hex(zorder.index(values)));
                try {
                    hvalues.add(hilbert == null ? "" : hex(hilbert.index(values)));
                } catch (Throwable e) {
                    hvalues.add("");
                }
            }
            out.println(json.writeValueAsString(asked));
        }
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte b : bytes) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }
}
