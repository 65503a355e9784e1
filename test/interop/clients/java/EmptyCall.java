import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import java.io.ByteArrayInputStream;
import java.io.InputStream;

/** The call that the client makes and the server answers: EmptyCall of gRPC's own tests. */
final class EmptyCall {
  /** The header in which a server says who it is. */
  static final Metadata.Key<String> PLACE =
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

  static final MethodDescriptor<byte[], byte[]> METHOD =
      MethodDescriptor.<byte[], byte[]>newBuilder()
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("grpc.testing.TestService/EmptyCall")
          .setRequestMarshaller(BYTES)
          .setResponseMarshaller(BYTES)
          .build();

  private EmptyCall() {}
}
