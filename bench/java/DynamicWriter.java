import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import org.apache.paimon.CoreOptions;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.Path;
import org.apache.paimon.index.HashBucketAssigner;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.RowPartitionKeyExtractor;
import org.apache.paimon.table.sink.TableCommitImpl;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.Split;

/**
 * Copies the rows of an append table, in order, into tables with dynamic buckets, one commit every so many rows, each row through Java's own
 * HashBucketAssigner as one writing task would.
 *
 * <p>Arguments: warehouse, source table. Each line of stdin: target table, rows of a commit. Each answer: seconds, seconds that reading the
 * source takes alone, commits.
 */
public final class DynamicWriter {
    public static void main(String[] arguments) throws Exception {
        Catalog catalog = CatalogFactory.createCatalog(CatalogContext.create(new Path(arguments[0])));
        FileStoreTable source = (FileStoreTable) catalog.getTable(Identifier.fromString(arguments[1]));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.trim().split(" ");
            FileStoreTable target = (FileStoreTable) catalog.getTable(Identifier.fromString(words[0]));
            long start = System.nanoTime();
            copy(source, null, Integer.MAX_VALUE);
            double reading = (System.nanoTime() - start) / 1e9;
            start = System.nanoTime();
            long commits = copy(source, target, Integer.parseInt(words[1]));
            System.out.println("SECONDS " + (System.nanoTime() - start) / 1e9 + " " + reading + " " + commits);
        }
    }

    private static long copy(FileStoreTable source, FileStoreTable target, int rowsOfCommit) throws Exception {
        ReadBuilder builder = source.newReadBuilder();
        Writer writer = null;
        long rows = 0;
        long commits = 0;
        for (Split split : builder.newScan().plan().splits()) {
            try (RecordReader<InternalRow> reader = builder.newRead().createReader(split)) {
                RecordReader.RecordIterator<InternalRow> batch;
                while ((batch = reader.readBatch()) != null) {
                    InternalRow row;
                    while ((row = batch.next()) != null) {
                        rows++;
                        if (target == null) {
                            continue;
                        }
                        if (writer == null) {
                            writer = new Writer(target);
                        }
                        writer.write(row);
                        if (rows % rowsOfCommit == 0) {
                            writer.commit();
                            writer = null;
                            commits++;
                        }
                    }
                    batch.releaseBatch();
                }
            }
        }
        if (writer != null) {
            writer.commit();
            commits++;
        }
        return commits;
    }

    private static final class Writer {
        private final FileStoreTable table;
        private final String user = UUID.randomUUID().toString();
        private final TableWriteImpl<?> write;
        private final HashBucketAssigner assigner;
        private final RowPartitionKeyExtractor keys;

        Writer(FileStoreTable table) {
            this.table = table;
            write = table.newWrite(user);
            write.withIOManager(IOManager.create(System.getProperty("java.io.tmpdir")));
            CoreOptions options = table.coreOptions();
            assigner =
                    new HashBucketAssigner(
                            table.snapshotManager(),
                            user,
                            table.store().newIndexFileHandler(),
                            1,
                            1,
                            0,
                            options.dynamicBucketTargetRowNum(),
                            options.dynamicBucketMaxBuckets());
            keys = new RowPartitionKeyExtractor(table.schema());
        }

        void write(InternalRow row) throws Exception {
            BinaryRow partition = keys.partition(row);
            write.write(row, assigner.assign(partition, keys.trimmedPrimaryKey(row).hashCode()));
        }

        void commit() throws Exception {
            try (TableCommitImpl commit = table.newCommit(user)) {
                commit.commit(0, write.prepareCommit(true, 0));
            }
            write.close();
        }
    }
}
