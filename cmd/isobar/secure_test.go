package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
)

// serving is `isobar serve` in this process.
func serving(t *testing.T, file string) (xds, admin string) {
	t.Helper()
	logs, w := io.Pipe()
	addresses := make(chan []string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		told := regexp.MustCompile(`msg=serving xds=(\S+) admin=(\S+)`)
		lines := bufio.NewScanner(logs)
		for lines.Scan() {
			if m := told.FindStringSubmatch(lines.Text()); m != nil {
				addresses <- m
			}
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"serve", "-c", file}, io.Discard, w)
		_ = w.Close()
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		<-read
	})
	select {
	case m := <-addresses:
		return m[1], m[2]
	case err := <-done:
		done <- err
		t.Fatalf("serve: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("serve does not say where")
	}
	return "", ""
}

// TestSecureInstallation runs the commands of docs/how-to/secure.md: a server
// with TLS, identities and a token, an operator and a checker.
func TestSecureInstallation(t *testing.T) {
	dir := t.TempDir()
	ca := identitytest.NewCA(t)
	files := ca.Write(dir, identitytest.Leaf{})
	clientDir := t.TempDir()
	own := ca.Write(clientDir, identitytest.Leaf{DNS: []string{"checker.example"}})
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	listeners := "tls: {cert: " + files.Cert + ", key: " + files.Key + ", client_ca: " + files.ClientCA + "}"
	file := filepath.Join(dir, "isobar.yaml")
	content := `
xds:
  listen: "127.0.0.1:0"
  ` + listeners + `
  identities: [{match: checker.example, roles: [checker], localities: [us-east/*]}]
admin:
  listen: "127.0.0.1:0"
  ` + listeners + `
  token_file: ` + token + `
  token_for: all
state_dir: ` + filepath.Join(dir, "state") + `
stop_spread: 0s
services: []
`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	xds, admin := serving(t, file)
	flags := []string{"--admin", "https://" + admin, "--ca", own.ClientCA, "--cert", own.Cert, "--key", own.Key}
	for _, tt := range []struct {
		args []string
		says string // of the error; "" = it succeeds
	}{
		{append([]string{"clients", "--token-file", token}, flags...), ""},
		{append([]string{"clients"}, flags...), "--token-file"},
		{[]string{"clients", "--admin", "https://" + admin, "--ca", own.ClientCA, "--token-file", token}, "give --cert and --key"},
		{[]string{"bench", "--server", xds, "--ca", own.ClientCA}, "give --cert and --key"},
		{[]string{"clients", "--admin", "https://" + admin, "--ca", own.ClientCA, "--cert", own.Cert}, "--ca, --cert, --key: a certificate and its key"},
		{[]string{"clients", "--admin", "https://" + admin, "--ca", token}, "no PEM certificate"},
		{[]string{"clients", "--admin", "https://" + admin, "--token-file", own.Cert}, "--token-file: " + own.Cert},
		{[]string{"clients", "--admin", "http://isobar.example", "--token-file", token}, "in plaintext"},
	} {
		var out bytes.Buffer
		err := run(t.Context(), tt.args, &out, &out)
		if (err == nil) != (tt.says == "") || (err != nil && !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%v: %v\n%s", tt.args, err, &out)
		}
	}

	// A checker with the same certificate, in its region and out of it; and when
	// the file lets it be elsewhere.
	const in = `msg="a new specifier"`
	checks := func(ca, locality, want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		logs, w := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- runChecker(ctx, &checkerFlags{
				server: xds, locality: locality, nodeID: "c", cluster: "checkers",
				tls: identity.DialFiles{CA: ca, Cert: own.Cert, Key: own.Key},
			}, slog.New(slog.NewTextHandler(w, nil)))
			_ = w.Close()
		}()
		lines, found := bufio.NewScanner(logs), false
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				found = true
				cancel()
			}
		}
		if err := <-ended; err != nil || !found {
			t.Errorf("a checker in %s: %v, and its log does not say %q", locality, err, want)
		}
	}
	checks(own.ClientCA, "us-east/b", in)
	checks(own.ClientCA, "eu/a", "locality not allowed, it may in us-east/*")
	another := identitytest.NewCA(t).Write(t.TempDir(), identitytest.Leaf{})
	checks(another.ClientCA, "us-east/b", `hint="none of the certificates in --ca signs the server's`)
	identitytest.Replace(t, file, []byte(strings.Replace(content, "us-east/*", "eu", 1)))
	checks(own.ClientCA, "eu/a", in)
}

// TestRenewedCertificate: each connection shows what the files hold then; where
// that is bad, what they held before.
func TestRenewedCertificate(t *testing.T) {
	ca := identitytest.NewCA(t)
	serverFiles := ca.Write(t.TempDir(), identitytest.Leaf{})
	certs, err := identity.OpenCertificates(serverFiles, identity.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", certs.Config("h2"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dir := t.TempDir()
	own := ca.Write(dir, identitytest.Leaf{DNS: []string{"first.example"}})
	creds, err := followedCredentials(identity.DialFiles{CA: own.ClientCA, Cert: own.Cert, Key: own.Key}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	creds = creds.Clone() // as gRPC does
	shown := func() string {
		t.Helper()
		raw, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = raw.Close() }()
		name := make(chan string, 1)
		go func() {
			c, err := l.Accept()
			if err != nil {
				name <- err.Error()
				return
			}
			defer func() { _ = c.Close() }()
			if err := c.(*tls.Conn).Handshake(); err != nil {
				name <- err.Error()
				return
			}
			state := c.(*tls.Conn).ConnectionState()
			name <- identity.PeerOfState(&state).Name()
		}()
		if _, _, err := creds.ClientHandshake(t.Context(), "127.0.0.1:1", raw); err != nil {
			t.Fatal(err)
		}
		return <-name
	}
	if got := shown(); got != "first.example" {
		t.Fatalf("shown %s", got)
	}
	ca.Write(dir, identitytest.Leaf{DNS: []string{"second.example"}})
	if got := shown(); got != "second.example" {
		t.Errorf("after a renewal %s is shown", got)
	}
	identitytest.Replace(t, own.Key, []byte("nothing"))
	if got := shown(); got != "second.example" {
		t.Errorf("with a bad key %s is shown", got)
	}
}
