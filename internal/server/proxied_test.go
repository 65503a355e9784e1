package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// through dials as a balancer with an address of this machine does for a client; source
// "" sends no header.
func through(t *testing.T, server, balancer, source string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+server, grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(balancer)}}
			c, err := d.DialContext(ctx, "tcp", address)
			if err != nil || source == "" {
				return c, err
			}
			from := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(source))
			_, err = proxyproto.HeaderProxyFromAddrs(2, from, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 18000}).WriteTo(c)
			return c, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestProxyProtocol asserts that limits by address count the clients of a balancer that
// is listed one by one, over TLS as well, that its connections without a header are
// refused, and that a header of anybody else is refused.
func TestProxyProtocol(t *testing.T) {
	ca := identitytest.NewCA(t)
	files := ca.Write(t.TempDir(), identitytest.Leaf{})
	for name, creds := range map[string]credentials.TransportCredentials{"plaintext": insecure.NewCredentials(), "tls": credentials.NewTLS(ca.Client(nil))} {
		t.Run(name, func(t *testing.T) {
			l := onLoopback(t, func(c *config.Config) {
				if name == "tls" {
					c.XDS.TLS = &files
					c.XDS.TLS.ClientCA = ""
				}
				c.XDS.Balancers = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
				c.XDS.Admission = config.Admission{PeerStreams: 1}
			})
			address := l.server.XDSAddress()
			open := func(node, balancer, source string) (grpc.ClientStream, error) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				t.Cleanup(cancel)
				s, _, err := subscribe(ctx, through(t, address, balancer, source, creds), nodeIn(node, "us/a"), "checkout")
				return s, err
			}
			for node, source := range map[string]string{"first": "192.0.2.1:1000", "second": "192.0.2.2:1000"} {
				if _, err := open(node, "127.0.0.2", source); err != nil {
					t.Errorf("%s: %v", node, err)
				}
			}
			s, err := open("again", "127.0.0.2", "192.0.2.1:1001")
			if advice(t, s, err); !strings.Contains(err.Error(), "too many open streams") {
				t.Error(err)
			}
			if _, err := open("direct", "127.0.0.3", ""); err != nil {
				t.Errorf("a client beside the balancer: %v", err)
			}
			if _, err := open("pretends", "127.0.0.4", "192.0.2.9:1000"); err == nil {
				t.Error("a header of an address that is not listed was taken")
			}
			if _, err := open("silent", "127.0.0.2", ""); err == nil {
				t.Error("a balancer that sends no header was served")
			}
			if !strings.Contains(l.log.String(), "it must begin with a PROXY header") {
				t.Errorf("the log lacks the balancer without a header: %s", l.log.String())
			}
			testhelp.Eventually(t, "the addresses of both clients", func() bool {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.server.AdminAddress()+"/v1/clients", nil)
				if err != nil {
					return false
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					return false
				}
				defer func() { _ = resp.Body.Close() }()
				data, err := io.ReadAll(resp.Body)
				text := string(data)
				return err == nil && strings.Contains(text, "192.0.2.1:1000") && strings.Contains(text, "192.0.2.2:1000") && strings.Contains(text, "127.0.0.3:")
			})
		})
	}
}
