import io.grpc.ChannelCredentials;
import io.grpc.TlsChannelCredentials;
import io.grpc.xds.XdsCredentialsProvider;
import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;

/**
 * Channel credentials of the type "tls_files" for grpc-java, which `isobar bootstrap grpc
 * --language java --cert ... --key ...` writes: TLS with the authority, the certificate and the key
 * of files. Register it before the first channel is made:
 *
 * <pre>XdsCredentialsRegistry.getDefaultRegistry().register(new TLSFilesProvider());</pre>
 *
 * or name the class in META-INF/services/io.grpc.xds.XdsCredentialsProvider. The files are read once,
 * and the key has to be in PKCS #8.
 */
public final class TLSFilesProvider extends XdsCredentialsProvider {
  @Override
  protected ChannelCredentials newChannelCredentials(Map<String, ?> config) {
    TlsChannelCredentials.Builder builder = TlsChannelCredentials.newBuilder();
    try {
      Object ca = config.get("ca_certificate_file");
      if (ca != null) {
        builder.trustManager(new File((String) ca));
      }
      Object certificate = config.get("certificate_file");
      if (certificate != null) {
        builder.keyManager(
            new File((String) certificate), new File((String) config.get("private_key_file")));
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return builder.build();
  }

  @Override
  protected String getName() {
    return "tls_files";
  }

  @Override
  public boolean isAvailable() {
    return true;
  }

  @Override
  public int priority() {
    return 5;
  }
}
