import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * An xDS client of grpc-java. It calls the services given as the first argument, separated by
 * commas, one after the other, as many times a second in all as the second says. For each line "N"
 * on standard input it makes N calls and prints what became of them as a line of JSON.
 */
public final class Client {
  private static final int DEADLINE_SECONDS = 5;

  /** What became of calls. */
  private static final class Outcome {
    final Map<String, Integer> served = new TreeMap<>();
    final Map<String, Integer> failed = new TreeMap<>();

    synchronized void add(Map<String, Integer> counts, String key) {
      counts.merge(key, 1, Integer::sum);
    }

    synchronized String json() {
      return "{\"served\":" + json(served) + ",\"failed\":" + json(failed) + "}";
    }

    private static String json(Map<String, Integer> counts) {
      return counts.entrySet().stream()
          .map(e -> quote(e.getKey()) + ":" + e.getValue())
          .collect(Collectors.joining(",", "{", "}"));
    }

    private static String quote(String text) {
      String plain = text.replace("\\", "\\\\").replace("\"", "\\\"");
      return '"' + plain.replaceAll("\\p{Cntrl}", " ") + '"';
    }
  }

  private static void call(ManagedChannel channel, Outcome outcome, CountDownLatch open) {
    CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(DEADLINE_SECONDS, TimeUnit.SECONDS);
    ClientCall<byte[], byte[]> call = channel.newCall(EmptyCall.METHOD, options);
    call.start(
        new ClientCall.Listener<byte[]>() {
          private String place = "";

          @Override
          public void onHeaders(Metadata headers) {
            String value = headers.get(EmptyCall.PLACE);
            place = value == null ? "" : value;
          }

          @Override
          public void onClose(Status status, Metadata trailers) {
            if (status.isOk()) {
              outcome.add(outcome.served, place);
            } else {
              outcome.add(outcome.failed, status.getCode() + ": " + status.getDescription());
            }
            open.countDown();
          }
        },
        new Metadata());
    call.request(2);
    call.sendMessage(new byte[0]);
    call.halfClose();
  }

  /** Counts calls that have not ended long after their deadline, and prints what threads do. */
  private static void abandon(Outcome outcome, long n) {
    for (long i = 0; i < n; i++) {
      outcome.add(outcome.failed, "a call did not end at its deadline");
    }
    Thread.getAllStackTraces()
        .forEach(
            (thread, stack) -> {
              System.err.println(thread);
              for (StackTraceElement e : stack) {
                System.err.println("\tat " + e);
              }
            });
  }

  /** Makes n calls at the rate, without waiting for one before the next. */
  private static String send(List<ManagedChannel> channels, int n, double perSecond)
      throws Exception {
    Outcome outcome = new Outcome();
    CountDownLatch open = new CountDownLatch(n);
    long began = System.nanoTime();
    for (int i = 0; i < n; i++) {
      long wait = began + (long) (i * 1e9 / perSecond) - System.nanoTime();
      if (wait > 0) {
        TimeUnit.NANOSECONDS.sleep(wait);
      }
      call(channels.get(i % channels.size()), outcome, open);
    }
    if (!open.await(DEADLINE_SECONDS + 10, TimeUnit.SECONDS)) {
      abandon(outcome, open.getCount());
    }
    return outcome.json();
  }

  public static void main(String[] args) throws Exception {
    double perSecond = Double.parseDouble(args[1]);
    List<ManagedChannel> channels = new ArrayList<>();
    for (String target : args[0].split(",")) {
      channels.add(Grpc.newChannelBuilder(target, InsecureChannelCredentials.create()).build());
    }
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      System.out.println(send(channels, Integer.parseInt(line.trim()), perSecond));
    }
    System.exit(0);
  }
}
