package interop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/xds"

	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// xdsServer is a gRPC server that takes its listener from xDS: a program that
// listens on an address and says a name with every answer.
type xdsServer struct {
	kind    string // of client, whose library it is
	command func(t *testing.T, address, name string) *exec.Cmd
}

var xdsServers = []xdsServer{
	{"grpc-go", func(t *testing.T, address, name string) *exec.Cmd {
		t.Helper()
		return exec.CommandContext(context.Background(), built(t, "./clients/goserver"), address, name)
	}},
	{"grpc-java", func(t *testing.T, address, name string) *exec.Cmd {
		t.Helper()
		return java(t, "Server", address, name)
	}},
	{"gRPC C++", func(t *testing.T, address, name string) *exec.Cmd {
		t.Helper()
		return exec.CommandContext(context.Background(), compiled(t, "server"), address, name)
	}},
	{"gRPC Python", func(t *testing.T, address, name string) *exec.Cmd {
		t.Helper()
		return exec.CommandContext(context.Background(), "/usr/bin/python3", "clients/python/server.py", address, name)
	}},
	{"grpc-js", func(t *testing.T, address, name string) *exec.Cmd {
		t.Helper()
		modules := nodeModules(t)
		cmd := exec.CommandContext(context.Background(), "node", "clients/node/server.js", address, name)
		cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
		return cmd
	}},
	{"gRPC Python, newest", func(t *testing.T, address, name string) *exec.Cmd {
		t.Helper()
		packages := pythonPackages(t)
		cmd := exec.CommandContext(context.Background(), "python3", "clients/python/server.py", address, name)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
		return cmd
	}},
}

// TestXDSServers: gRPC servers start by the bootstrap file that `isobar bootstrap
// grpc --server-listeners` prints, and answer calls, in plaintext and by mutual TLS
// with the files that it names. A grpc-go client finds them by Isobar, with the same
// bootstrap file.
func TestXDSServers(t *testing.T) {
	t.Parallel()
	files := identitytest.NewCA(t).Write(t.TempDir(), identitytest.Leaf{})
	asPKCS8(t, files.Key) // grpc-java reads no other form
	var services strings.Builder
	services.WriteString("services:\n")
	addresses := map[string]string{}
	for _, k := range xdsServers {
		for _, mutual := range []bool{false, true} {
			name := serverName(k.kind, mutual)
			addresses[name] = testhelp.FreePort(t)
			security := ""
			if mutual {
				security = ", tls: {ca: /etc/envoy/ca.pem, subject_alt_names: [localhost], grpc: {ca: isobar, cert: isobar}}"
			}
			fmt.Fprintf(&services, "- {name: %s%s, localities: [{locality: us/a, endpoints: [%q]}]}\n", name, security, addresses[name])
		}
	}
	s := startIsobar(t, services.String())
	for _, k := range xdsServers {
		t.Run(k.kind, func(t *testing.T) {
			t.Parallel()
			for _, mutual := range []bool{false, true} {
				name := serverName(k.kind, mutual)
				t.Run(name, func(t *testing.T) { s.on(t).servesCalls(k, name, addresses[name], files, mutual) })
			}
			seen.ran(k.kind, serves, !t.Failed())
		})
	}
}

func serverName(kind string, mutual bool) string {
	name := strings.NewReplacer(" ", "-", "+", "p", ",", "").Replace(strings.ToLower(kind))
	if mutual {
		return name + "-mutual"
	}
	return name
}

// servesCalls starts a server and calls it.
func (s *isobar) servesCalls(k xdsServer, name, address string, files identity.Files, mutual bool) {
	t := s.t
	flags := []string{"--server-listeners"}
	if mutual {
		flags = []string{"--listener-cert", files.Cert, "--listener-key", files.Key, "--listener-client-ca", files.ClientCA}
	}
	asServer := kind{api: v3, flags: flags}.bootstrap(t, s.xds, "server-"+name)
	s.startXDSServer(k, address, name, asServer)
	var last error
	await(t, "answers", func() error {
		last = s.callOnce(name, flags)
		return last
	})
	await(t, "listener that the server took", func() error {
		c, err := s.client("server-" + name)
		if err != nil {
			return err
		}
		if lds, ok := c.Types["lds"]; !ok || lds.NACK != nil || !c.InSync {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if mutual {
		s.refusesStrangers(address)
	}
}

func (s *isobar) startXDSServer(k xdsServer, address, name string, bootstrap []byte) {
	t := s.t
	t.Helper()
	file := filepath.Join(t.TempDir(), "bootstrap.json")
	if err := os.WriteFile(file, bootstrap, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := k.command(t, address, name)
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "GRPC_XDS_BOOTSTRAP="+file)
	log := new(testhelp.Log)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended on its own, which the test has seen
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %.4000s", name, log.String())
		}
	})
}

// callOnce calls a service by a client with the bootstrap file of its server.
func (s *isobar) callOnce(service string, flags []string) error {
	builder, err := xds.NewXDSResolverWithConfigForTesting(kind{api: v3, flags: flags}.bootstrap(s.t, s.xds, "client-"+service))
	if err != nil {
		return err
	}
	creds, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("xds:///"+service, grpc.WithResolvers(builder), grpc.WithTransportCredentials(creds))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var by grpcpeer.Peer
	name, err := callBackend(s.t, conn, grpc.Peer(&by))
	if err != nil {
		return err
	}
	if name != service {
		return fmt.Errorf("answered by %q", name)
	}
	if _, secure := by.AuthInfo.(credentials.TLSInfo); secure != strings.HasSuffix(service, "-mutual") {
		return fmt.Errorf("TLS: %v", secure)
	}
	return nil
}

func callBackend(t *testing.T, conn *grpc.ClientConn, options ...grpc.CallOption) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var header metadata.MD
	_, err := testpb.NewTestServiceClient(conn).EmptyCall(ctx, &testpb.Empty{}, append(options, grpc.Header(&header))...)
	if err != nil {
		return "", err
	}
	return strings.Join(header.Get("hostname"), ","), nil
}

// refusesStrangers: a client without a certificate gets no answer, in plaintext or
// by TLS.
func (s *isobar) refusesStrangers(address string) {
	t := s.t
	for _, creds := range []credentials.TransportCredentials{
		insecure.NewCredentials(), credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}),
	} {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := callBackend(t, conn); err == nil {
			t.Error(errors.New("a client without a certificate is answered"))
		}
		_ = conn.Close()
	}
}
