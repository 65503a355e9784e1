package admission_test

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/isobar-xds/isobar/internal/admission"
)

// behindBalancers listens on loopback; balancers have the address 127.0.0.1.
func behindBalancers(t *testing.T) (l net.Listener, refused *atomic.Int64) {
	t.Helper()
	var lc net.ListenConfig
	tcp, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused = new(atomic.Int64)
	l = admission.ListenProxied(tcp, admission.Proxied{
		From: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Metrics: admission.NewMetrics(nil),
		Refused: func(net.Addr, error) { refused.Add(1) },
	})
	late := time.AfterFunc(20*time.Second, func() { _ = l.Close() }) // an Accept that gets nothing ends
	t.Cleanup(func() {
		late.Stop()
		_ = l.Close()
	})
	return l, refused
}

// dialFrom connects from an address of this machine, and sends.
func dialFrom(t *testing.T, from string, l net.Listener, data []byte) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
	return c
}

func headerOf(t *testing.T, version byte, source string) []byte {
	t.Helper()
	s := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(source))
	d := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 18000}
	if s.IP.To4() == nil {
		d.IP = net.ParseIP("2001:db8::1")
	}
	data, err := proxyproto.HeaderProxyFromAddrs(version, s, d).Format()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestProxyHeader asserts that a connection of a balancer has the address that its header
// tells, that what follows the header is read whole, and that connections from elsewhere
// are passed on as they are.
func TestProxyHeader(t *testing.T) {
	l, refused := behindBalancers(t)
	for _, c := range []struct{ from, header, want string }{
		{"127.0.0.1", string(headerOf(t, 1, "192.0.2.1:1234")), "192.0.2.1:1234"},
		{"127.0.0.1", string(headerOf(t, 2, "192.0.2.2:1234")), "192.0.2.2:1234"},
		{"127.0.0.1", string(headerOf(t, 1, "[2001:db8::7]:5")), "[2001:db8::7]:5"},
		{"127.0.0.1", string(headerOf(t, 2, "[2001:db8::8]:5")), "[2001:db8::8]:5"},
		{"127.0.0.1", "PROXY UNKNOWN\r\n", "127.0.0.1:"},
		{"127.0.0.1", "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", "127.0.0.1:"}, // LOCAL: a health check
		{"127.0.0.2", "", "127.0.0.2:"},
		{"127.0.0.2", string(headerOf(t, 1, "192.0.2.1:1234")), "127.0.0.2:"},
	} {
		client := dialFrom(t, c.from, l, []byte(c.header+"what follows"))
		got, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(got.RemoteAddr().String(), c.want) {
			t.Errorf("%q from %s: the address is %s, want %s", c.header, c.from, got.RemoteAddr(), c.want)
		}
		_ = client.Close()
		want := "what follows"
		if c.from == "127.0.0.2" {
			want = c.header + want
		}
		if data, err := io.ReadAll(got); err != nil || string(data) != want {
			t.Errorf("%q: read %q, %v", c.header, data, err)
		}
		_ = got.Close()
	}
	if n := refused.Load(); n > 0 {
		t.Errorf("%d connections were refused", n)
	}
}

// TestBadProxyHeaders asserts that a balancer has to send a valid header: connections
// without one are closed, and never accepted.
func TestBadProxyHeaders(t *testing.T) {
	l, refused := behindBalancers(t)
	bad := []string{
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PROXY TCP4 192.0.2.1\r\n.........", "PROXY TCP4 192.0.2.1 10.0.0.1 99999 1\r\n",
		"PROXY TCP4 " + strings.Repeat("1", 200),
		"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x01x",                            // too short for addresses
		"\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff" + strings.Repeat("x", 1000), // too long
		"\r\n\r\n\x00\r\nQUIT\n\x21\x31\x00\xd8" + strings.Repeat("/", 216),  // a path
	}
	for i, data := range bad {
		c := dialFrom(t, "127.0.0.1", l, []byte(data))
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("%q: the connection stays: %v", data, err)
		}
		if got := refused.Load(); got != int64(i+1) {
			t.Errorf("%q: %d connections were refused, want %d", data, got, i+1)
		}
	}
}

// TestSlowProxyHeader asserts that a balancer that sends half a header delays no other
// connection, and that Close ends its connection.
func TestSlowProxyHeader(t *testing.T) {
	l, _ := behindBalancers(t)
	slow := dialFrom(t, "127.0.0.1", l, headerOf(t, 2, "192.0.2.2:1234")[:10])
	began := time.Now()
	dialFrom(t, "127.0.0.1", l, headerOf(t, 1, "192.0.2.1:1234"))
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if took := time.Since(began); took > 2*time.Second || c.RemoteAddr().String() != "192.0.2.1:1234" {
		t.Errorf("%s was accepted after %v", c.RemoteAddr(), took)
	}
	began = time.Now()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("Close took %v", took)
	}
	if _, err := slow.Read(make([]byte, 1)); err == nil {
		t.Error("the connection stays after Close")
	}
}
