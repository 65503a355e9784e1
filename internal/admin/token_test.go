package admin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
)

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
