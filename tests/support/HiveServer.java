import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.hadoop.hive.metastore.txn.TxnStore;
import org.apache.hadoop.hive.metastore.txn.TxnUtils;
import org.apache.hadoop.hive.shims.ShimLoader;

/** A Hive metastore with Derby in memory. Arguments are settings NAME=VALUE; it ends with its standard input. */
public class HiveServer {
    public static void main(String[] arguments) throws Exception {
        HiveConf conf = new HiveConf();
        conf.set("javax.jdo.option.ConnectionURL", "jdbc:derby:memory:hive;create=true");
        conf.set("javax.jdo.option.ConnectionDriverName", "org.apache.derby.jdbc.EmbeddedDriver");
        conf.set("datanucleus.schema.autoCreateAll", "true");
        conf.set("hive.metastore.schema.verification", "false");
        conf.set("datanucleus.connectionPoolingType", "none");
        conf.set("hive.txn.manager", "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager");
        conf.set("hive.support.concurrency", "true");
        conf.set("hive.metastore.server.min.threads", "4");
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            conf.set(parts[0], parts[1]);
        }
        int port;
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = free.getLocalPort();
        }
        ReentrantLock lock = new ReentrantLock();
        AtomicBoolean serving = new AtomicBoolean();
        start(
                () ->
                        HiveMetaStore.startMetaStore(
                                port,
                                ShimLoader.getHadoopThriftAuthBridge(),
                                conf,
                                lock,
                                lock.newCondition(),
                                serving));
        while (!serving.get()) {
            Thread.sleep(10);
        }
        TxnDbUtil.prepDb(conf);
        // A metastore's own service for locks without heartbeats, which a metastore runs beside Hive's compactor.
        TxnStore locks = TxnUtils.getTxnStore(conf);
        start(
                () -> {
                    while (true) {
                        locks.performTimeOuts();
                        Thread.sleep(250);
                    }
                });
        System.out.println(port);
        while (System.in.read() >= 0) {}
        System.exit(0);
    }

    private interface Service {
        void run() throws Throwable;
    }

    private static void start(Service service) {
        Thread thread =
                new Thread(
                        () -> {
                            try {
                                service.run();
                            } catch (Throwable error) {
                                error.printStackTrace();
                                System.exit(1);
                            }
                        });
        thread.setDaemon(true);
        thread.start();
    }
}
