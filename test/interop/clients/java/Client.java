import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * An xDS client of grpc-java. It calls the service given as the first argument, as many times a
 * second as the second says. For each line "N" on standard input it makes N calls and prints what
 * became of them as a line of JSON.
 */
public final class Client {
  private static final int DEADLINE_SECONDS = 5;
  private static final Metadata.Key<String> PLACE =
      Metadata.Key.of("hostname", Metadata.ASCII_STRING_MARSHALLER);

  /** Messages are bytes, all of them empty. */
  private static final MethodDescriptor.Marshaller<byte[]> BYTES =
      new MethodDescriptor.Marshaller<>() {
        @Override
        public InputStream stream(byte[] value) {
          return new ByteArrayInputStream(value);
        }

        @Override
        public byte[] parse(InputStream stream) {
          return new byte[0];
        }
      };

  private static final MethodDescriptor<byte[], byte[]> METHOD =
      MethodDescriptor.<byte[], byte[]>newBuilder()
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("grpc.testing.TestService/EmptyCall")
          .setRequestMarshaller(BYTES)
          .setResponseMarshaller(BYTES)
          .build();

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
    ClientCall<byte[], byte[]> call = channel.newCall(METHOD, options);
    call.start(
        new ClientCall.Listener<byte[]>() {
          private String place = "";

          @Override
          public void onHeaders(Metadata headers) {
            String value = headers.get(PLACE);
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

  /** Makes n calls at the rate, without waiting for one before the next. */
  private static String send(ManagedChannel channel, int n, double perSecond) throws Exception {
    Outcome outcome = new Outcome();
    CountDownLatch open = new CountDownLatch(n);
    long began = System.nanoTime();
    for (int i = 0; i < n; i++) {
      long wait = began + (long) (i * 1e9 / perSecond) - System.nanoTime();
      if (wait > 0) {
        TimeUnit.NANOSECONDS.sleep(wait);
      }
      call(channel, outcome, open);
    }
    open.await();
    return outcome.json();
  }

  public static void main(String[] args) throws Exception {
    double perSecond = Double.parseDouble(args[1]);
    ManagedChannel channel =
        Grpc.newChannelBuilder(args[0], InsecureChannelCredentials.create()).build();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      System.out.println(send(channel, Integer.parseInt(line.trim()), perSecond));
    }
    System.exit(0);
  }
}
