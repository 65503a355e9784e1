import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.ServerBuilder;
import io.grpc.ServerCall;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.xds.XdsServerBuilder;
import io.grpc.xds.XdsServerCredentials;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.List;

/**
 * A server of grpc-java that takes its listener from xDS. It listens on the address given as the
 * first argument, and says the second with every answer.
 */
public final class Server {
  private static ServerCall.Listener<byte[]> answer(ServerCall<byte[], byte[]> call, String name) {
    call.request(1);
    return new ServerCall.Listener<>() {
      @Override
      public void onHalfClose() {
        Metadata headers = new Metadata();
        headers.put(EmptyCall.PLACE, name);
        call.sendHeaders(headers);
        call.sendMessage(new byte[0]);
        call.close(Status.OK, new Metadata());
      }
    };
  }

  /**
   * XdsServerBuilder takes a port and listens on all addresses. A test listens on loopback alone,
   * for which there is no method.
   */
  @SuppressWarnings("unchecked")
  private static void onLoopback(XdsServerBuilder builder, int port) throws Exception {
    ServerBuilder<?> transport = builder.transportBuilder();
    Field field = transport.getClass().getDeclaredField("listenAddresses");
    field.setAccessible(true);
    List<SocketAddress> addresses = (List<SocketAddress>) field.get(transport);
    addresses.clear();
    addresses.add(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
  }

  public static void main(String[] args) throws Exception {
    int port = Integer.parseInt(args[0].substring(args[0].lastIndexOf(':') + 1));
    XdsServerBuilder builder =
        XdsServerBuilder.forPort(port, XdsServerCredentials.create(InsecureServerCredentials.create()))
            .addService(
                ServerServiceDefinition.builder("grpc.testing.TestService")
                    .addMethod(EmptyCall.METHOD, (call, headers) -> answer(call, args[1]))
                    .build())
            .xdsServingStatusListener(
                new io.grpc.xds.XdsServerBuilder.XdsServingStatusListener() {
                  @Override
                  public void onServing() {
                    System.err.println("serving");
                  }

                  @Override
                  public void onNotServing(Throwable t) {
                    System.err.println("not serving: " + t);
                  }
                });
    onLoopback(builder, port);
    builder.build().start().awaitTermination();
  }
}
