package dns_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/discovery/dns"
	"github.com/isobar-xds/isobar/internal/store"
)

// overSockets runs a provider with real connections and returns its registry.
func overSockets(t *testing.T, cfg *dns.Config, o dns.Options) (*discovery.Registry, *dns.Provider) {
	t.Helper()
	kept := store.NewMemory()
	registry, err := discovery.Open(t.Context(), discovery.Options{Store: kept, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	o.Registry, o.Store = registry.Provider(isobar.OwnerDNS), kept
	provider, err := dns.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := provider.Configure(cfg, func(listed, unknown []isobar.Service) error {
		_, err := registry.SetConfigured(nil, []discovery.Provided{{Owner: isobar.OwnerDNS, Listed: listed, Awaited: unknown}}, nil, nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- provider.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = kept.Close()
	})
	return registry, provider
}

// becomes waits until a service has these endpoints.
func becomes(t *testing.T, r *discovery.Registry, service, want string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		got := endpoints(r, service)
		if got == want {
			return
		}
		select {
		case <-r.Changed():
		case <-time.After(100 * time.Millisecond): // what changed was read already
		case <-deadline:
			t.Fatalf("%s has %q after 30 s, want %q", service, got, want)
		}
	}
}

// listen starts a DNS server on loopback, over UDP and TCP on one port.
func listen(t *testing.T, handler miekg.Handler) string {
	t.Helper()
	var config net.ListenConfig
	stream, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := stream.Addr().String()
	packets, err := config.ListenPacket(t.Context(), "udp", address)
	if err != nil {
		t.Fatal(err)
	}
	for _, server := range []*miekg.Server{{Listener: stream, Handler: handler}, {PacketConn: packets, Handler: handler}} {
		started := make(chan struct{})
		server.NotifyStartedFunc = sync.OnceFunc(func() { close(started) })
		done := make(chan error, 1)
		go func() { done <- server.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			if err := server.Shutdown(); err != nil {
				t.Error(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	return address
}

// TestOverUDPAndTCP: an answer that fits comes over UDP, one of 300 records over
// TCP; a server that is silent makes way for the next.
func TestOverUDPAndTCP(t *testing.T) {
	z := &zone{}
	records := []string{"few.example. 60 IN A 10.1.0.1"}
	want := "us/a:"
	var all []netip.AddrPort
	for i := range 300 {
		address := netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)})
		records = append(records, fmt.Sprintf("many.example. 60 IN A %s", address))
		all = append(all, netip.AddrPortFrom(address, 80))
	}
	z.set(t, records...)
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].String()
	}
	slices.Sort(texts)
	want += " " + strings.Join(texts, " ")
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	cfg := configuration(svc("few", "us/a", host("few.example")), svc("many", "us/a", host("many.example")))
	cfg.Servers = []string{silent.LocalAddr().String(), listen(t, z)}
	cfg.Timeout = 200 * time.Millisecond
	r, p := overSockets(t, cfg, dns.Options{})
	becomes(t, r, "few", "us/a: 10.1.0.1:80")
	becomes(t, r, "many", want)
	st, _ := p.Status()
	if st.System || len(st.Servers) != 2 {
		t.Errorf("servers %v", st.Servers)
	}
	if n := z.questions("A many.example"); n != 2 {
		t.Errorf("%d questions, want one over UDP and one over TCP", n)
	}
}

// TestServersOfTheSystem are those of its file, and follow it.
func TestServersOfTheSystem(t *testing.T) {
	one, two := &zone{}, &zone{}
	one.set(t, "a.example. 0 IN A 10.1.0.1")
	two.set(t, "a.example. 0 IN A 10.1.0.2")
	servers := map[string]string{"192.0.2.1:53": listen(t, one), "192.0.2.2:53": listen(t, two)}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, servers[address]) // no test has port 53
	}
	file := filepath.Join(t.TempDir(), "resolv.conf")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("search example\nnameserver 192.0.2.1\nnameserver 192.0.2.1\noptions ndots:5\n")
	cfg := configuration(svc("s", "us/a", host("a.example")))
	cfg.Servers, cfg.MinTTL = nil, 50*time.Millisecond
	r, p := overSockets(t, cfg, dns.Options{ResolvConf: file, Dial: dial})
	becomes(t, r, "s", "us/a: 10.1.0.1:80")
	if st, _ := p.Status(); !st.System || len(st.Servers) != 1 || st.Servers[0] != "192.0.2.1:53" {
		t.Errorf("servers %v", st.Servers)
	}
	write("# another resolver\nnameserver 192.0.2.2\n")
	becomes(t, r, "s", "us/a: 10.1.0.2:80")
}

// TestWithDnsmasq resolves with the DNS server that many small networks have.
func TestWithDnsmasq(t *testing.T) {
	dir := t.TempDir()
	hosts := filepath.Join(dir, "hosts")
	write := func(text string) {
		next := hosts + ".new"
		if err := os.WriteFile(next, []byte(text), 0o644); err != nil { // dnsmasq may run as another user
			t.Fatal(err)
		}
		if err := os.Rename(next, hosts); err != nil {
			t.Fatal(err)
		}
	}
	write("10.1.0.1 a.example\n10.1.0.2 a.example\nfd00::1 a.example\n10.2.0.1 b1.example\n10.2.0.2 b2.example\n")
	var address string
	var server *exec.Cmd
	for range 10 { // another process may take the port first
		address = freePort(t)
		_, port, _ := net.SplitHostPort(address)
		server = exec.CommandContext(t.Context(), "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
			"--listen-address=127.0.0.1", "--bind-interfaces", "--port="+port, "--addn-hosts="+hosts, "--local-ttl=1", "--local=/example/", "--user=", "--pid-file=",
			"--srv-host=_grpc._tcp.b.example,b1.example,8080,0,3", "--srv-host=_grpc._tcp.b.example,b2.example,8080,0,1")
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		if answersSoon(t, address) {
			break
		}
		_ = server.Wait()
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait() // it was killed
	}()
	cfg := configuration(svc("s", "us/a", host("a.example"), "us/b", srv("_grpc._tcp.b.example")))
	cfg.Servers, cfg.MinTTL, cfg.EmptyHold = []string{address}, 100*time.Millisecond, 0
	r, _ := overSockets(t, cfg, dns.Options{})
	becomes(t, r, "s", "us/a: 10.1.0.1:80 10.1.0.2:80; us/b: 10.2.0.1:8080*3 10.2.0.2:8080*1")
	write("10.1.0.7 a.example\n10.2.0.2 b2.example\n")
	if err := server.Process.Signal(syscall.SIGHUP); err != nil { // it reads the file again
		t.Fatal(err)
	}
	becomes(t, r, "s", "us/a: 10.1.0.7:80; us/b: 10.2.0.2:8080*1")
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.LocalAddr().String()
}

// answersSoon reports whether a server answers within a few seconds.
func answersSoon(t *testing.T, address string) bool {
	t.Helper()
	question := new(miekg.Msg)
	question.SetQuestion("a.example.", miekg.TypeA)
	client := miekg.Client{Timeout: 200 * time.Millisecond}
	for range 50 {
		if m, _, err := client.ExchangeContext(t.Context(), question, address); err == nil && m.Rcode == miekg.RcodeSuccess {
			return true
		}
		select {
		case <-time.After(50 * time.Millisecond): // a closed port answers at once
		case <-t.Context().Done():
			return false
		}
	}
	return false
}
