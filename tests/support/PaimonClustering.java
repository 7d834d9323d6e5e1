// Incremental clustering, which PaimonPeer does not have: the files that Paimon's planner picks, and a commit of its units.
// Spark and Flink sort the rows of a unit; here they are written in the order of the files, which changes no metadata.

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.paimon.append.cluster.IncrementalClusterManager;
import org.apache.paimon.compact.CompactUnit;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.partition.PartitionPredicate;
import org.apache.paimon.reader.RecordReaderIterator;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.utils.Pair;

final class PaimonClustering {

    private static final ObjectMapper JSON = new ObjectMapper();

    ObjectNode answer(JsonNode asked) throws Exception {
        FileStoreTable table =
                FileStoreTableFactory.create(LocalFileIO.create(), new Path(asked.get("path").asText()));
        IncrementalClusterManager manager = new IncrementalClusterManager(table, chosen(table, asked));
        Map<BinaryRow, CompactUnit> units = manager.createCompactUnits(asked.path("full").asBoolean());
        ObjectNode reply = JSON.createObjectNode();
        ArrayNode listed = reply.putArray("units");
        units.forEach(
                (partition, unit) -> {
                    ObjectNode shown = listed.addObject();
                    shown.put("partition", table.store().pathFactory().getPartitionString(partition));
                    shown.put("level", unit.outputLevel());
                    ArrayNode files = shown.putArray("files");
                    unit.files().forEach(file -> files.add(file.fileName()));
                });
        if (asked.path("commit").asBoolean()) {
            commit(table, manager, units);
        }
        return reply;
    }

    private static PartitionPredicate chosen(FileStoreTable table, JsonNode asked) {
        if (!asked.hasNonNull("partition")) {
            return null;
        }
        Map<String, String> values = new HashMap<>();
        asked.get("partition").fields().forEachRemaining(e -> values.put(e.getKey(), e.getValue().asText()));
        return PartitionPredicate.fromMap(
                table.schema().logicalPartitionType(), values, table.coreOptions().partitionDefaultName());
    }

    private static void commit(
            FileStoreTable table, IncrementalClusterManager manager, Map<BinaryRow, CompactUnit> units)
            throws Exception {
        FileStoreTable writeOnly = table.copy(Collections.singletonMap("write-only", "true"));
        BatchWriteBuilder builder = writeOnly.newBatchWriteBuilder();
        List<CommitMessage> messages = new ArrayList<>();
        for (Map.Entry<BinaryRow, Pair<List<DataSplit>, CommitMessage>> of :
                manager.toSplitsAndRewriteDvFiles(units).entrySet()) {
            CompactUnit unit = units.get(of.getKey());
            List<DataFileMeta> after = new ArrayList<>();
            try (BatchTableWrite write = builder.newWrite()) {
                for (DataSplit split : of.getValue().getKey()) {
                    try (RecordReaderIterator<InternalRow> rows =
                            new RecordReaderIterator<>(table.newRead().createReader(split))) {
                        while (rows.hasNext()) {
                            write.write(rows.next());
                        }
                    }
                }
                for (CommitMessage written : write.prepareCommit()) {
                    after.addAll(((CommitMessageImpl) written).newFilesIncrement().newFiles());
                }
            }
            CommitMessageImpl vectors = (CommitMessageImpl) of.getValue().getValue();
            CompactIncrement increment =
                    new CompactIncrement(
                            unit.files(),
                            IncrementalClusterManager.upgrade(after, unit.outputLevel()),
                            Collections.emptyList(),
                            vectors == null ? Collections.emptyList() : vectors.compactIncrement().newIndexFiles(),
                            vectors == null ? Collections.emptyList() : vectors.compactIncrement().deletedIndexFiles());
            messages.add(
                    new CommitMessageImpl(
                            of.getKey(),
                            0,
                            table.coreOptions().bucket(),
                            DataIncrement.emptyIncrement(),
                            increment));
        }
        try (BatchTableCommit commit = builder.newCommit()) {
            commit.commit(messages);
        }
    }
}
