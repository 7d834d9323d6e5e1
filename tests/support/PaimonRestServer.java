import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.rest.RESTCatalogInternalOptions;
import org.apache.paimon.rest.RESTCatalogServer;
import org.apache.paimon.rest.RESTToken;
import org.apache.paimon.rest.auth.BearTokenAuthProvider;
import org.apache.paimon.rest.responses.ConfigResponse;

/** Paimon's own REST catalog server; arguments are folder, warehouse and token, and each line of stdin is a command. */
public class PaimonRestServer {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> defaults = new HashMap<>();
        defaults.put(RESTCatalogInternalOptions.PREFIX.key(), "paimon");
        RESTCatalogServer server =
                new RESTCatalogServer(
                        arguments[0],
                        new BearTokenAuthProvider(arguments[2]),
                        new ConfigResponse(defaults, new HashMap<>()),
                        arguments[1]);
        server.start();
        System.out.println(server.getUrl());
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("forbid-table")) {
                server.addNoPermissionTable(Identifier.fromString(words[1]));
            } else if (words[0].equals("forbid-database")) {
                server.addNoPermissionDatabase(words[1]);
            } else if (words[0].equals("data-token")) {
                Map<String, String> keys = new HashMap<>();
                for (int word = 3; word < words.length; word++) {
                    keys.put(words[word].split("=")[0], words[word].split("=")[1]);
                }
                server.setDataToken(
                        Identifier.fromString(words[1]), new RESTToken(keys, Long.parseLong(words[2])));
            } else if (words[0].equals("fail-after-commit")) {
                RESTCatalogServer.commitSuccessThrowException = true;
            } else {
                throw new IllegalArgumentException(line);
            }
            System.out.println("done");
        }
        server.shutdown();
        System.exit(0);
    }
}
