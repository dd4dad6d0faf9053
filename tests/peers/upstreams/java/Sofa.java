// SOFARPC over Bolt: `Sofa serve PORT NAME` is a server, `Sofa call PORT` a client that calls through whatever
// listens there. The client exits with 1 unless each call has the answer that it should have.

import com.alipay.sofa.rpc.api.future.SofaResponseFuture;
import com.alipay.sofa.rpc.config.ConsumerConfig;
import com.alipay.sofa.rpc.config.ProviderConfig;
import com.alipay.sofa.rpc.config.ServerConfig;
import com.alipay.sofa.rpc.core.exception.SofaTimeOutException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

public class Sofa {
    public interface Orders {
        String name();

        byte[] echo(byte[] bytes);

        String fail(String why);

        String sleep(int millis);

        void note(String what);

        int noted();
    }

    public static class Service implements Orders {
        final String name;
        final AtomicInteger notes = new AtomicInteger();

        Service(String name) {
            this.name = name;
        }

        public String name() {
            return name;
        }

        public byte[] echo(byte[] bytes) {
            return bytes;
        }

        public String fail(String why) {
            throw new IllegalStateException(why);
        }

        public String sleep(int millis) {
            try {
                Thread.sleep(millis);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
            return "slept";
        }

        public void note(String what) {
            notes.incrementAndGet();
        }

        public int noted() {
            return notes.get();
        }
    }

    static final int CALLS = 5_000;
    static final int THREADS = 8;
    static final int LONG_BYTES = 300_000;
    static final int PATIENCE_MILLIS = 10_000;

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        if (arguments[0].equals("serve")) {
            serve(port, arguments[2]);
        } else {
            try {
                call(port);
                System.exit(0);
            } catch (Throwable failure) {
                failure.printStackTrace();
                // Threads of the library go on.
                System.exit(1);
            }
        }
    }

    static void serve(int port, String name) {
        ServerConfig server = new ServerConfig();
        server.setProtocol("bolt").setBoundHost("127.0.0.1").setPort(port).setDaemon(false);
        ProviderConfig<Orders> provider = new ProviderConfig<>();
        provider.setInterfaceId(Orders.class.getName()).setRef(new Service(name)).setServer(server);
        provider.export();
    }

    static Orders client(int port, String invoke) {
        return client(port, invoke, PATIENCE_MILLIS);
    }

    static Orders client(int port, String invoke, int timeoutMillis) {
        ConsumerConfig<Orders> consumer = new ConsumerConfig<>();
        consumer.setInterfaceId(Orders.class.getName()).setProtocol("bolt").setTimeout(timeoutMillis);
        consumer.setDirectUrl("bolt://127.0.0.1:" + port).setInvokeType(invoke).setRepeatedReferLimit(-1);
        return consumer.refer();
    }

    static void call(int port) throws Exception {
        Orders orders = client(port, "sync");
        Set<String> names = manyCalls(orders);
        check(names.size() == 2, "both servers answer: " + names);

        byte[] bytes = new byte[LONG_BYTES];
        new Random(1).nextBytes(bytes);
        check(Arrays.equals(orders.echo(bytes), bytes), "a long message");

        try {
            orders.fail("as it should");
            check(false, "an exception");
        } catch (IllegalStateException e) {
            check(e.getMessage().equals("as it should"), "its message: " + e.getMessage());
        }

        Orders impatient = client(port, "sync", 300);
        try {
            impatient.sleep(3_000);
            check(false, "a timeout");
        } catch (SofaTimeOutException e) {
            // As it should.
        }
        check(orders.sleep(1).equals("slept"), "the connection goes on behind a timeout");

        Orders future = client(port, "future");
        for (int i = 0; i < 100; i++) {
            check(future.name() == null, "a future has no answer yet");
            check(names.contains(SofaResponseFuture.getResponse(PATIENCE_MILLIS, true)), "the answer of a future");
        }

        Orders oneway = client(port, "oneway");
        for (int i = 0; i < 100; i++) {
            oneway.note("that");
        }
        check(noted(orders) == 100, "one-way calls arrive");

        // Bolt's heartbeats go out on an idle connection; a client closes it after three without an answer.
        Thread.sleep(4_000);
        check(names.contains(orders.name()), "calls after heartbeats");
            }

    static Set<String> manyCalls(Orders orders) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        List<Future<Set<String>>> all = new ArrayList<>();
        for (int thread = 0; thread < THREADS; thread++) {
            Random random = new Random(thread);
            all.add(threads.submit(() -> {
                Set<String> names = new HashSet<>();
                for (int i = 0; i < CALLS / THREADS; i++) {
                    byte[] bytes = new byte[random.nextInt(2_000)];
                    random.nextBytes(bytes);
                    check(Arrays.equals(orders.echo(bytes), bytes), "an echo");
                    names.add(orders.name());
                }
                return names;
            }));
        }
        Set<String> names = new HashSet<>();
        for (Future<Set<String>> one : all) {
            names.addAll(one.get());
        }
        threads.shutdown();
        return names;
    }

    /** The notes of both servers: asked until they are there, each server in its turn. */
    static int noted(Orders orders) throws Exception {
        int most = 0;
        for (int i = 0; i < 200 && most < 100; i++) {
            int one = orders.noted(), other = orders.noted();
            most = Math.max(most, one + other);
            Thread.sleep(20);
        }
        return most;
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
