package admin_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestForeignNamesReadNothing: a web page that rebinds its name to our address
// can't read the plan, profiles or anything else.
func TestForeignNamesReadNothing(t *testing.T) {
	srv := start(t, newWorld(), func(o *admin.Options) { o.Hosts = []string{"isobar.internal"} })
	for _, path := range []string{
		"/v1/plan", "/v1/services", "/v1/health", "/v1/clients", "/v1/explain?service=legacy", "/metrics", "/livez", "/readyz",
		"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/nothing",
	} {
		if a := do(t, srv, http.MethodGet, path, "", "Host", "evil.example:18080"); a.code != http.StatusForbidden || !strings.Contains(a.body, "admin: {hosts:") {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	for _, host := range []string{"localhost", "LocalHost:1", "127.0.0.1:18080", "10.1.2.3", "[::1]:18080", "[::1]", "Isobar.Internal.:80"} {
		if a := do(t, srv, http.MethodGet, "/v1/plan", "", "Host", host); a.code != http.StatusOK {
			t.Errorf("as %s: %d %s", host, a.code, a.body)
		}
	}
	for _, host := range []string{"evil.localhost.example", "isobar.internal.example", "127.0.0.1.example", "localhost.example"} {
		if a := do(t, srv, http.MethodGet, "/v1/plan", "", "Host", host); a.code != http.StatusForbidden {
			t.Errorf("as %s: %d", host, a.code)
		}
	}
}

// TestProbesWithoutAName: HTTP/1.0 knows no Host; browsers always send one.
func TestProbesWithoutAName(t *testing.T) {
	srv := start(t, newWorld(), nil)
	status := raw(t, srv.Listener.Addr().String(), "GET /livez HTTP/1.0\r\n\r\n")
	if !strings.HasPrefix(status, "HTTP/1.0 200") {
		t.Errorf("got %q", status)
	}
}

// raw sends bytes and returns the first line of the answer.
func raw(t *testing.T, address, request string) string {
	t.Helper()
	conn := dial(t, address)
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return firstLine(t, conn)
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func firstLine(t *testing.T, conn net.Conn) string {
	t.Helper()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// begun opens a write of which the body does not come: the server says that it
// waits for it.
func begun(t *testing.T, address string, length int) net.Conn {
	t.Helper()
	conn := dial(t, address)
	_, err := fmt.Fprintf(conn, "PUT /v1/services/cart HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", length)
	if err != nil {
		t.Fatal(err)
	}
	if line := firstLine(t, conn); !strings.HasPrefix(line, "HTTP/1.1 100") {
		t.Fatalf("got %q", line)
	}
	return conn
}

// TestSlowBodiesHoldUpNobody: any number of writes may be on their way; others
// are answered meanwhile.
func TestSlowBodiesHoldUpNobody(t *testing.T) {
	srv := start(t, newWorld(), nil)
	for range 80 {
		begun(t, srv.Listener.Addr().String(), 1000)
	}
	if a := do(t, srv, http.MethodPut, "/v1/services/cart", bodyOf(t, service("cart"))); a.code != http.StatusOK {
		t.Errorf("got %d %s", a.code, a.body)
	}
}

// TestBodiesTogetherAreBounded: what is being read takes a bounded part of the
// memory, and gives it back.
func TestBodiesTogetherAreBounded(t *testing.T) {
	srv := start(t, newWorld(), func(o *admin.Options) { o.MaxBodies = 3000 })
	cart := bodyOf(t, service("cart"))
	half := cart + strings.Repeat(" ", 2000-len(cart))
	slow := begun(t, srv.Listener.Addr().String(), 2001)
	if _, err := io.WriteString(slow, half); err != nil { // all but the last byte
		t.Fatal(err)
	}
	put := func() int { return do(t, srv, http.MethodPut, "/v1/services/cart", half).code }
	testhelp.Eventually(t, "a second body that does not fit is refused", func() bool { return put() == http.StatusServiceUnavailable })
	if _, err := io.WriteString(slow, " "); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, "it fits when the first is done", func() bool { return put() == http.StatusOK })
}

// TestBodyMemoryIsTold asserts that the bodies under way and the values in them count as long
// as they are in memory.
func TestBodyMemoryIsTold(t *testing.T) {
	world := newWorld()
	s, err := admin.New(optionsOf(world))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	slow := begun(t, srv.Listener.Addr().String(), 200_001)
	cart := bodyOf(t, service("cart"))
	if _, err := io.WriteString(slow, cart+strings.Repeat(" ", 200_000-len(cart))); err != nil {
		t.Fatal(err)
	}
	used := func() int64 { n, _ := s.BodyMemory(); return n }
	testhelp.Eventually(t, "the part that was read counts", func() bool { return used() == 200_000 })
	if _, err := io.WriteString(slow, " "); err != nil {
		t.Fatal(err)
	}
	testhelp.Eventually(t, "nothing is left when the write is done", func() bool { return used() == 0 })
}

// TestToken: what needs the token says so, and how to show it.
func TestToken(t *testing.T) {
	const secret = "s3cret"
	for _, all := range []bool{false, true} {
		srv := start(t, newWorld(), func(o *admin.Options) {
			o.Token, o.TokenForAll = func(presented string) bool { return presented == secret }, all
		})
		for _, tt := range []struct {
			method, path, authorization string
			want                        bool // is let through
		}{
			{"GET", "/livez", "", true},
			{"GET", "/readyz", "Bearer wrong", true},
			{"GET", "/v1/services", "", !all},
			{"HEAD", "/v1/services", "", !all},
			{"GET", "/metrics", "", !all},
			{"GET", "/debug/pprof/", "", !all},
			{"GET", "/v1/services", "Bearer " + secret, true},
			{"GET", "/metrics", "bearer  " + secret, true},
			{"PUT", "/v1/services/new", "", false},
			{"PUT", "/v1/services/new", "Bearer", false},
			{"PUT", "/v1/services/new", "Bearer ", false},
			{"PUT", "/v1/services/new", "Basic " + secret, false},
			{"PUT", "/v1/services/new", secret, false},
			{"PUT", "/v1/services/new", "Bearer " + secret + "x", false},
			{"DELETE", "/v1/services/new", "", false},
			{"POST", "/livez", "", false},
			{"OPTIONS", "/v1/services", "", false},
			{"DELETE", "/v1/services/new", "Bearer " + secret, true},
		} {
			a := do(t, srv, tt.method, tt.path, "", "Authorization", tt.authorization)
			if through := a.code != http.StatusUnauthorized; through != tt.want {
				t.Errorf("for all %v: %s %s with %q: %d %s", all, tt.method, tt.path, tt.authorization, a.code, a.body)
			}
			if a.code == http.StatusUnauthorized && tt.method != "HEAD" && !strings.Contains(a.body, "--token-file") {
				t.Errorf("%s %s does not say what to do: %s", tt.method, tt.path, a.body)
			}
		}
		if a := do(t, srv, "GET", "/v1/services", "", "Authorization", "Bearer "+secret, "Host", "evil.example"); a.code != http.StatusForbidden {
			t.Errorf("a token lets a foreign name through: %d", a.code)
		}
	}
}

// TestCostlyRequestsFromElsewhere: who reaches the interface over the network and is
// nobody may neither have plans computed nor read memory.
func TestCostlyRequestsFromElsewhere(t *testing.T) {
	const secret = "s3cret"
	refused := func(address, method, path, authorization string, o admin.Options) bool {
		srv := start(t, newWorld(), func(to *admin.Options) { to.Token, to.Identities = o.Token, o.Identities })
		r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, strings.NewReader("{}"))
		r.RemoteAddr = address
		r.Header.Set("Authorization", authorization)
		w := httptest.NewRecorder()
		srv.Config.Handler.ServeHTTP(w, r)
		return w.Code == http.StatusForbidden || w.Code == http.StatusUnauthorized
	}
	token := admin.Options{Rules: admin.Rules{Token: func(presented string) bool { return presented == secret }}}
	operator := admin.Options{Rules: admin.Rules{Identities: identities{isOperator: true}}}
	for _, x := range []struct{ method, path string }{
		{"POST", "/v1/plan"}, {"POST", "/v1/whatif"}, {"POST", "/v1/record?for=1x"},
		{"GET", "/debug/pprof/"}, {"GET", "/debug/pprof/cmdline"}, {"GET", "/debug/pprof/symbol"},
	} {
		for _, who := range []struct {
			address, authorization string
			options                admin.Options
			refused                bool
		}{
			{"10.0.0.7:1234", "", admin.Options{}, true},
			{"[2001:db8::1]:1234", "", token, true},
			{"10.0.0.7:1234", "Bearer wrong", token, true},
			{"10.0.0.7:1234", "Bearer " + secret, token, false},
			{"10.0.0.7:1234", "", operator, false},
			{"127.0.0.1:1234", "", admin.Options{}, false},
			{"[::ffff:127.0.0.1]:1234", "", admin.Options{}, false},
			{"[::1]:1234", "", admin.Options{}, false},
			{"@", "", admin.Options{}, false}, // a Unix socket
			{"[fe80::1%eth0]:1234", "", admin.Options{}, true},
		} {
			if got := refused(who.address, x.method, x.path, who.authorization, who.options); got != who.refused {
				t.Errorf("%s %s from %s with %q: refused %v", x.method, x.path, who.address, who.authorization, got)
			}
		}
		if refused("10.0.0.7:1234", "GET", "/v1/plan", "", admin.Options{}) || refused("10.0.0.7:1234", "GET", "/metrics", "", admin.Options{}) {
			t.Error("what is cheap to read is refused")
		}
	}
}

// TestTokenStaysAtHome: a token is not sent where others can read it.
func TestTokenStaysAtHome(t *testing.T) {
	for address, ok := range map[string]bool{
		"http://127.0.0.1:1": true, "http://localhost:1": true, "http://[::1]:1": true, "https://isobar.example:1": true,
		"http://isobar.example:1": false, "10.0.0.1:18080": false,
	} {
		if _, err := admin.NewRemote(address, admin.WithToken("x")); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestCodingsOfBodies asserts that bodies may be compressed with gzip, bounded by what they
// become, and that bodies in another encoding are refused in words that name it.
func TestCodingsOfBodies(t *testing.T) {
	srv := start(t, newWorld(), nil)
	cart := bodyOf(t, service("cart"))
	zipped := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := io.WriteString(z, text); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	wide := func(order binary.AppendByteOrder, mark bool) string {
		var b []byte
		if mark {
			b = order.AppendUint16(b, 0xfeff)
		}
		for _, c := range utf16.Encode([]rune(cart)) {
			b = order.AppendUint16(b, c)
		}
		return string(b)
	}
	bomb := strings.Repeat(zipped(strings.Repeat(" ", 1<<20)), 100)
	for name, tc := range map[string]struct {
		body, encoding string
		code           int
		want           string
	}{
		"plain":              {cart, "", http.StatusOK, ""},
		"identity":           {cart, "identity", http.StatusOK, ""},
		"gzip":               {zipped(cart), "gzip", http.StatusOK, ""},
		"in capitals":        {zipped(cart), " GZIP ", http.StatusOK, ""},
		"a byte order mark":  {"\xef\xbb\xbf" + cart, "", http.StatusOK, ""},
		"not declared":       {zipped(cart), "", http.StatusBadRequest, "compressed with gzip, and no header says so"},
		"not compressed":     {cart, "gzip", http.StatusBadRequest, "no gzip, or damaged"},
		"cut off":            {zipped(cart)[:20], "gzip", http.StatusBadRequest, "no gzip, or damaged"},
		"a bomb":             {bomb, "gzip", http.StatusRequestEntityTooLarge, "larger than 4194304 bytes"},
		"twice":              {zipped(zipped(cart)), "gzip, gzip", http.StatusUnsupportedMediaType, "not supported: send gzip, or do not compress"},
		"gzip within gzip":   {zipped(zipped(cart)), "gzip", http.StatusBadRequest, "compressed with gzip, and no header says so"},
		"brotli":             {cart, "br", http.StatusUnsupportedMediaType, `Content-Encoding \"br\" is not supported`},
		"UTF-16":             {wide(binary.LittleEndian, true), "", http.StatusBadRequest, "no UTF-8 text"},
		"UTF-16, big endian": {wide(binary.BigEndian, true), "", http.StatusBadRequest, "no UTF-8 text"},
		"UTF-16, no mark":    {wide(binary.LittleEndian, false), "", http.StatusBadRequest, "no UTF-8 text"},
		"the same, big":      {wide(binary.BigEndian, false), "", http.StatusBadRequest, "no UTF-8 text"},
	} {
		t.Run(name, func(t *testing.T) {
			headers := []string{}
			if tc.encoding != "" {
				headers = []string{"Content-Encoding", tc.encoding}
			}
			a := do(t, srv, http.MethodPut, "/v1/services/cart", tc.body, headers...)
			if a.code != tc.code || !strings.Contains(a.body, tc.want) {
				t.Errorf("got %d %s, want %d with %q", a.code, a.body, tc.code, tc.want)
			}
			if a.code == http.StatusUnsupportedMediaType && a.header.Get("Accept-Encoding") != "gzip" {
				t.Errorf("headers %v", a.header)
			}
		})
	}
	world := newWorld()
	s, err := admin.New(optionsOf(world))
	if err != nil {
		t.Fatal(err)
	}
	again := httptest.NewServer(s.Handler())
	t.Cleanup(again.Close)
	for _, body := range []string{bomb, zipped(cart), cart} {
		do(t, again, http.MethodPut, "/v1/services/cart", body, "Content-Encoding", "gzip")
	}
	testhelp.Eventually(t, "nothing counts as held when the writes are done", func() bool { n, _ := s.BodyMemory(); return n == 0 })
}

// TestBodiesThatDoNotCome asserts that a body which comes too slowly is refused in words that say so.
func TestBodiesThatDoNotCome(t *testing.T) {
	world := newWorld()
	s, err := admin.New(optionsOf(world))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(s.Handler())
	srv.Config.ReadTimeout = 300 * time.Millisecond
	srv.Start()
	t.Cleanup(srv.Close)
	conn := begun(t, srv.Listener.Addr().String(), 1000)
	if _, err := io.WriteString(conn, "{"); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(all); !strings.Contains(got, "HTTP/1.1 408") || !strings.Contains(got, "did not come as a whole") {
		t.Errorf("got %s", got)
	}
}
