package interop

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// tlsClient is a kind of gRPC client, with how it uses TLS with the server.
type tlsClient struct {
	kind

	language string
	shows    bool // it can show a certificate
	prepare  func(t *testing.T, s *isobar, k *kind, files string) (server string)
}

func kindOf(t *testing.T, name string) kind {
	t.Helper()
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		t.Fatalf("no kind %s", name)
	}
	return kinds[i]
}

// TestClientsTLS: each language by the way that docs/how-to/grpc.md tells, first
// without a certificate of the client, then with one, which the server demands.
func TestClientsTLS(t *testing.T) {
	t.Parallel()
	clients := []tlsClient{
		{kind: kindOf(t, "grpc-go"), language: "go", shows: true, prepare: byFiles},
		{kind: kindOf(t, "gRPC Python, newest"), language: "python", shows: true, prepare: byFiles},
		{kind: kindOf(t, "grpc-java"), language: "java", prepare: byTrustStore},
		{kind: kindOf(t, "grpc-java"), language: "java", shows: true, prepare: byProvider},
		{kind: kindOf(t, "grpc-js"), language: "node", shows: true, prepare: byProxy},
		{kind: kindOf(t, "gRPC C++"), language: "cpp", shows: true, prepare: byProxy},
		{kind: kindOf(t, "gRPC Python"), language: "python", shows: true, prepare: byProxy},
		{kind: kindOf(t, interopClient), language: "go", shows: true, prepare: byFiles},
		{kind: kindOf(t, interopClientV2), language: "go", shows: true, prepare: byProxy},
	}
	ca := identitytest.NewCA(t)
	b := startBackend(t, "b", "")
	for _, asks := range []bool{false, true} {
		dir := t.TempDir()
		files := ca.Write(dir, identitytest.Leaf{})
		demands := ""
		if asks {
			demands = fmt.Sprintf(", client_ca: %q", files.ClientCA)
		}
		s := prepareIsobar(t, time.Second, fmt.Sprintf(", tls: {cert: %q, key: %q%s}", files.Cert, files.Key, demands),
			fmt.Sprintf("services: [{name: pool, localities: [{locality: us/a, endpoints: [%q]}]}]\n", b.address))
		s.run()
		for i := range clients {
			c := clients[i]
			if asks && !c.shows {
				continue
			}
			t.Run(fmt.Sprintf("%d-%s-%v", i, c.language, asks), func(t *testing.T) {
				t.Parallel()
				if c.shows {
					defer func() { seen.ran(c.name, overTLS, !t.Failed()) }()
				}
				own := t.TempDir()
				ca.Write(own, shopEnvoy)
				k := c.kind
				k.name = fmt.Sprintf("tls-%d-%v", i, asks)
				k.flags = []string{"--language", c.language}
				client := k
				server := c.prepare(t, s, &client, own)
				started := client.start(t, server, "pool")
				started.ready(t)
				if _, err := s.client(started.id); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// byFiles is for clients that read the files that the bootstrap file names.
func byFiles(_ *testing.T, s *isobar, k *kind, files string) string {
	k.flags = append(k.flags, "--ca", filepath.Join(files, "ca.pem"), "--cert", filepath.Join(files, "cert.pem"), "--key", filepath.Join(files, "key.pem"))
	return s.xds
}

// byTrustStore puts the authority into a trust store of the JVM.
func byTrustStore(t *testing.T, s *isobar, k *kind, files string) string {
	t.Helper()
	authority, store := filepath.Join(files, "ca.pem"), filepath.Join(files, "trust.p12")
	if err := command(t.Context(), ".", "keytool", "-importcert", "-noprompt", "-alias", "isobar", "-file", authority,
		"-keystore", store, "-storetype", "PKCS12", "-storepass", "changeit"); err != nil {
		t.Fatal(err)
	}
	k.flags = append(k.flags, "--ca", authority)
	k.env = []string{"JDK_JAVA_OPTIONS=-Djavax.net.ssl.trustStore=" + store + " -Djavax.net.ssl.trustStorePassword=changeit"}
	return s.xds
}

// byProvider adds the credentials of examples/grpc-java to the program.
func byProvider(t *testing.T, s *isobar, k *kind, files string) string {
	t.Helper()
	const source = "../../examples/grpc-java/TLSFilesProvider.java"
	program := java(t, "Client")
	path := program.Args[slices.Index(program.Args, "-classpath")+1]
	classes := cached(t, "java-provider", append(read(t, source), path...), func(ctx context.Context, dir string) error {
		services := filepath.Join(dir, "META-INF", "services")
		if err := os.MkdirAll(services, 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(services, "io.grpc.xds.XdsCredentialsProvider"), []byte("TLSFilesProvider\n"), 0o600); err != nil {
			return err
		}
		return command(ctx, ".", "javac", "--release", "17", "-d", dir, "-classpath", path, source)
	})
	k.command = func(_ *testing.T, target string) *exec.Cmd {
		return exec.CommandContext(context.Background(), "java", "-Xmx256m", "-classpath", classes+string(filepath.ListSeparator)+path,
			"Client", target, fmt.Sprint(callRate))
	}
	asPKCS8(t, filepath.Join(files, "key.pem"))
	return byFiles(t, s, k, files)
}

// asPKCS8 rewrites a key file in the only form that grpc-java reads.
func asPKCS8(t *testing.T, path string) {
	t.Helper()
	block, _ := pem.Decode(read(t, path))
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// byProxy starts the proxy of the page beside the client.
func byProxy(t *testing.T, s *isobar, _ *kind, files string) string {
	t.Helper()
	page := string(read(t, "../../docs/how-to/grpc.md"))
	_, rest, _ := strings.Cut(page, "```yaml\nstatic_resources:")
	block, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("no proxy in docs/how-to/grpc.md")
	}
	local := testhelp.FreePort(t)
	_, localPort, _ := strings.Cut(local, ":")
	_, port, _ := strings.Cut(s.xds, ":")
	config := strings.NewReplacer(
		"address: 127.0.0.1, port_value: 18000", "address: 127.0.0.1, port_value: "+localPort,
		"address: isobar.example, port_value: 18000", "address: localhost, port_value: "+port,
		"isobar.example", "localhost", "/etc/isobar", files,
	).Replace("static_resources:" + block)
	startEnvoy(t, envoy.Newest, config)
	return local
}
