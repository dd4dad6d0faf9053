// A client on java.net.http: `java Fetch.java URL TRUSTED [OWN]`, where both are PKCS #12 files with the
// password below: authorities, and a certificate to show.
//
// In each pair of versions of HTTP and TLS it makes two connections. It exits with 1 unless both bring
// back what it sent, and the second resumes the session of the first.

import java.io.File;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpClient.Version;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.security.KeyStore;
import java.time.Duration;
import java.util.Arrays;
import java.util.Random;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSession;
import javax.net.ssl.TrustManagerFactory;

public class Fetch {
    static final char[] PASSWORD = "nothing secret".toCharArray();

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0], trusted = arguments[1];
        String own = arguments.length > 2 ? arguments[2] : null;
        for (Version http : Version.values()) {
            for (String tls : new String[] {"TLSv1.2", "TLSv1.3"}) {
                // It keeps sessions, and begins with none.
                SSLContext context = context(trusted, own);
                SSLSession first = fetch(url, http, tls, context);
                SSLSession second = fetch(url, http, tls, context);
                check(first.getCreationTime() == second.getCreationTime(), "a session of its own");
            }
        }
    }

    static SSLContext context(String trusted, String own) throws Exception {
        TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
        trust.init(KeyStore.getInstance(new File(trusted), PASSWORD));
        KeyManager[] keys = null;
        if (own != null) {
            KeyManagerFactory factory = KeyManagerFactory.getInstance("PKIX");
            factory.init(KeyStore.getInstance(new File(own), PASSWORD), PASSWORD);
            keys = factory.getKeyManagers();
        }
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys, trust.getTrustManagers(), null);
        return context;
    }

    /** Asks twice on a connection of its own; the session of that. */
    static SSLSession fetch(String url, Version http, String tls, SSLContext context) throws Exception {
        HttpClient client = HttpClient.newBuilder()
            .version(http)
            .sslContext(context)
            .sslParameters(new SSLParameters(null, new String[] {tls}))
            .build();
        byte[] sent = new byte[1_000_000];
        new Random(0).nextBytes(sent);
        SSLSession session = null;
        for (int time = 0; time < 2; time++) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(url))
                .timeout(Duration.ofSeconds(20))
                .POST(BodyPublishers.ofByteArray(sent))
                .build();
            HttpResponse<byte[]> got = client.send(request, BodyHandlers.ofByteArray());
            session = got.sslSession().orElseThrow();
            check(got.statusCode() == 200, "status " + got.statusCode());
            check(got.version() == http, got.version() + " instead of " + http);
            check(session.getProtocol().equals(tls), session.getProtocol() + " instead of " + tls);
            check(Arrays.equals(got.body(), sent), "another body");
        }
        return session;
    }

    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }
}
