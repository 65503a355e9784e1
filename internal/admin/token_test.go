package admin_test

import (
	"net/http"
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
