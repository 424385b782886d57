import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Does with Redisson's locks what it is told on standard input: lines of "thread verb lock [milliseconds [threads]]".
 * Answers on standard output, a line for each: "thread result". A thread is a holder of its own.
 * Ends with its input.
 */
public class Peer {
    private static RedissonClient redisson;

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(args[1]));
        config.useSingleServer()
                .setAddress("redis://127.0.0.1:" + args[0])
                .setConnectionMinimumIdleSize(2)
                .setConnectionPoolSize(8)
                .setSubscriptionConnectionMinimumIdleSize(1);
        redisson = Redisson.create(config);
        Map<String, ExecutorService> threads = new HashMap<>();
        say("main", "ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            threads.computeIfAbsent(words[0], name -> Executors.newSingleThreadExecutor())
                    .execute(() -> obey(words));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void obey(String[] words) {
        try {
            say(words[0], act(words));
        } catch (IllegalMonitorStateException notTheHolder) {
            say(words[0], "not-the-holder");
        } catch (Exception failure) {
            say(words[0], "failed " + failure);
        }
    }

    private static String act(String[] words) throws InterruptedException {
        RLock lock = redisson.getLock(words[2]);
        RFencedLock fenced = redisson.getFencedLock(words[2]);
        long milliseconds = words.length > 3 ? Long.parseLong(words[3]) : 0;
        switch (words[1]) {
            case "try":
                return String.valueOf(lock.tryLock());
            case "wait":
                return String.valueOf(lock.tryLock(milliseconds, TimeUnit.MILLISECONDS));
            case "lease":
                return String.valueOf(lock.tryLock(0, milliseconds, TimeUnit.MILLISECONDS));
            case "unlock":
                lock.unlock();
                return "unlocked";
            case "force":
                return String.valueOf(lock.forceUnlock());
            case "count":
                return String.valueOf(lock.getHoldCount());
            case "locked":
                return String.valueOf(lock.isLocked());
            case "fenced":
                return String.valueOf(fenced.tryLockAndGetToken(0, TimeUnit.MILLISECONDS));
            case "unfenced":
                fenced.unlock();
                return "unlocked";
            case "crowd":
                return crowd(lock, milliseconds, Integer.parseInt(words[4]));
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    /** How often so many threads take the lock and give it back in this time. */
    private static String crowd(RLock lock, long milliseconds, int count) throws InterruptedException {
        LongAdder turns = new LongAdder();
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(milliseconds);
        Thread[] threads = new Thread[count];
        for (int number = 0; number < count; number++) {
            threads[number] = new Thread(() -> {
                while (System.nanoTime() < end) {
                    lock.lock();
                    lock.unlock();
                    turns.increment();
                }
            });
            threads[number].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return String.valueOf(turns.sum());
    }

    private static synchronized void say(String thread, String result) {
        System.out.println(thread + " " + result);
        System.out.flush();
    }
}
