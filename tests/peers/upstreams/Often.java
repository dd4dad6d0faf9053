// A client on java.net.http that asks again and again: `java Often.java URL TRUSTED`, where TRUSTED is a PKCS #12 file with
// authorities, and the password is below. Four threads ask over HTTP/1.1, each by a client of its own, and four share one of HTTP/2,
// until the input ends. It prints how many answers brought back what was sent, and how many requests failed; it exits with 1
// if one did.

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
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

public class Often {
    static final char[] PASSWORD = "nothing secret".toCharArray();
    static final AtomicBoolean isOver = new AtomicBoolean();
    static final AtomicLong answered = new AtomicLong(), failed = new AtomicLong();

    public static void main(String[] arguments) throws Exception {
        URI url = URI.create(arguments[0]);
        TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
        trust.init(KeyStore.getInstance(new File(arguments[1]), PASSWORD));
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        List<Thread> threads = new ArrayList<>();
        HttpClient shared = client(Version.HTTP_2, context);
        // The first request opens the connection that the others share.
        ask(shared, Version.HTTP_2, url, new byte[] {1});
        for (int number = 0; number < 4; number++) {
            HttpClient own = client(Version.HTTP_1_1, context);
            threads.add(new Thread(() -> askOften(own, Version.HTTP_1_1, url)));
            threads.add(new Thread(() -> askOften(shared, Version.HTTP_2, url)));
        }
        threads.forEach(Thread::start);
        while (answered.get() < 100 && failed.get() == 0) {
            Thread.sleep(10);
        }
        System.out.println("begun");
        System.in.readAllBytes();
        isOver.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("answered " + answered + ", failed " + failed);
        System.exit(failed.get() == 0 ? 0 : 1);
    }

    static HttpClient client(Version version, SSLContext context) {
        return HttpClient.newBuilder().version(version).sslContext(context).build();
    }

    static void askOften(HttpClient client, Version version, URI url) {
        byte[] sent = new byte[20_000];
        new Random().nextBytes(sent);
        while (!isOver.get()) {
            try {
                ask(client, version, url, sent);
                answered.incrementAndGet();
            } catch (Exception error) {
                failed.incrementAndGet();
                System.out.println("a request failed: " + error);
                return;
            }
        }
    }

    static void ask(HttpClient client, Version version, URI url, byte[] sent) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(url)
            .timeout(Duration.ofSeconds(20))
            .POST(BodyPublishers.ofByteArray(sent))
            .build();
        HttpResponse<byte[]> got = client.send(request, BodyHandlers.ofByteArray());
        if (got.statusCode() != 200 || got.version() != version || !Arrays.equals(got.body(), sent)) {
            throw new Exception(got.version() + ", status " + got.statusCode() + ", " + got.body().length + " bytes");
        }
    }
}
