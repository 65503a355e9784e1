package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/isobar-xds/isobar/internal/identity/identitytest"
)

// TestTLSHints: what is wrong with certificates is told with what to do about
// it, by commands that ask the admin interface and by those that speak gRPC.
func TestTLSHints(t *testing.T) {
	ours, theirs := identitytest.NewCA(t), identitytest.NewCA(t)
	trusted := ours.Write(t.TempDir(), identitytest.Leaf{})
	other := theirs.Write(t.TempDir(), identitytest.Leaf{})
	config := func(leaf identitytest.Leaf, clientCA bool) *tls.Config {
		pair, err := tls.X509KeyPair(ours.Issue(leaf))
		if err != nil {
			t.Fatal(err)
		}
		c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		if clientCA {
			c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
			c.ClientCAs.AppendCertsFromPEM(ours.PEM)
		}
		return c
	}
	good, expired := identitytest.Leaf{}, identitytest.Leaf{NotAfter: time.Now().Add(-time.Minute)}
	stale := ours.Write(t.TempDir(), expired)
	for _, tt := range []struct {
		name   string
		server *tls.Config // nil = no TLS
		flags  []string
		says   string
	}{
		{"another authority", config(good, false), []string{"--ca", other.ClientCA}, "none of the certificates in --ca signs the server's"},
		{"another authority, without --ca", config(good, false), nil, "this machine does not know the authority of the server's certificate: give its file with --ca"},
		{"expired", config(expired, false), []string{"--ca", trusted.ClientCA}, "the server's certificate has expired: renew it there"},
		{"no certificate", config(good, true), []string{"--ca", trusted.ClientCA}, "the server wants a certificate: give --cert and --key"},
		{"a certificate of another authority", config(good, true), []string{"--ca", trusted.ClientCA, "--cert", other.Cert, "--key", other.Key},
			"the server refuses the certificate of --cert: the server's client_ca does not sign it"},
		{"an expired certificate", config(good, true), []string{"--ca", trusted.ClientCA, "--cert", stale.Cert, "--key", stale.Key},
			"the server refuses the certificate of --cert, which has expired"},
		{"no TLS", nil, []string{"--ca", trusted.ClientCA}, "the server does not use TLS at this address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			web := httptest.NewUnstartedServer(http.NotFoundHandler())
			web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
			if web.TLS = tt.server; tt.server == nil {
				web.Start()
			} else {
				web.TLS = tt.server.Clone()
				web.StartTLS()
			}
			defer web.Close()
			failsWith(t, tt.says, append([]string{"clients", "--admin", "https://" + web.Listener.Addr().String()}, tt.flags...)...)

			if tt.flags == nil {
				return // gRPC uses TLS with --ca only
			}
			if tt.server != nil && tt.server.ClientCAs != nil {
				return // of gRPC, TestSecureInstallation tells: an alert that comes with the end of the connection is lost on a plain server
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var options []grpc.ServerOption
			if tt.server != nil {
				options = append(options, grpc.Creds(credentials.NewTLS(tt.server)))
			}
			server := grpc.NewServer(options...)
			defer server.Stop()
			go func() { _ = server.Serve(l) }()
			failsWith(t, tt.says, append([]string{"bench", "--server", l.Addr().String(), "--clients", "1"}, tt.flags...)...)
		})
	}
}

// TestTLSHintAfterReset: the hint does not depend on whether the request was under way
// when the server refused the certificate.
func TestTLSHintAfterReset(t *testing.T) {
	ours, theirs := identitytest.NewCA(t), identitytest.NewCA(t)
	trusted, other := ours.Write(t.TempDir(), identitytest.Leaf{}), theirs.Write(t.TempDir(), identitytest.Leaf{})
	pair, err := tls.X509KeyPair(ours.Issue(identitytest.Leaf{}))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert}
	config.ClientCAs = x509.NewCertPool()
	config.ClientCAs.AppendCertsFromPEM(ours.PEM)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: http.NotFoundHandler(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), ReadHeaderTimeout: time.Minute}
	defer func() { _ = web.Close() }()
	go func() { _ = web.Serve(tls.NewListener(&firstIsReset{Listener: listener}, config)) }()
	failsWith(t, "the server refuses the certificate of --cert: the server's client_ca does not sign it",
		"clients", "--admin", "https://"+listener.Addr().String(), "--ca", trusted.ClientCA, "--cert", other.Cert, "--key", other.Key)
}

// firstIsReset is a listener whose first connection is reset.
type firstIsReset struct {
	net.Listener

	later bool
}

func (l *firstIsReset) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil && !l.later {
		l.later = true
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	return conn, err
}

// failsWith runs a command that has to fail with a text.
func failsWith(t *testing.T, says string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), args, &out, &out); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%v: %v\nwant %q\n%s", args, err, says, &out)
	}
}
