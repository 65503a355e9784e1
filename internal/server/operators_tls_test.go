package server_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// TestAdminIsNoWayAroundCertificates: where clients of xDS have to show a
// certificate, a checker that polls at an admin interface that asks for none has
// to, too.
func TestAdminIsNoWayAroundCertificates(t *testing.T) {
	ca := identitytest.NewCA(t)
	files := ca.Write(t.TempDir(), identitytest.Leaf{})
	ask := func(l *loopback) (int, string) {
		t.Helper()
		body := strings.NewReader(`{"health_check_request": {"node": {"id": "p"}, "capability": {"health_check_protocols": ["TCP"]}}}`)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Post("http://"+l.server.AdminAddress()+rpc.CheckerPath, "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(answer)
	}
	open := onLoopback(t, func(*config.Config) {})
	if code, body := ask(open); code != http.StatusOK {
		t.Errorf("xDS in plaintext: %d %s", code, body)
	}
	closed := onLoopback(t, func(c *config.Config) { c.XDS.TLS = &files })
	if code, body := ask(closed); code != http.StatusUnauthorized || !strings.Contains(body, "no client certificate was presented") {
		t.Errorf("xDS with client_ca: %d %s", code, body)
	}
	if n := closed.metric("isobar_identity_refused_total", "anonymous,checker"); n != 1 {
		t.Errorf("%v are counted", n)
	}
}

const token = "0123456789abcdef0123456789abcdef"

// TestAdminOverTLS: operators are spoken with over TLS, writes show the token,
// and checkers that poll are held to their identity.
func TestAdminOverTLS(t *testing.T) {
	ca := identitytest.NewCA(t)
	files := ca.Write(t.TempDir(), identitytest.Leaf{})
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := onLoopback(t, func(c *config.Config) {
		c.XDS.TLS, c.Admin.TLS, c.Admin.TokenFile, c.Admin.Writable = &files, &files, path, true
		c.Identities = policy(t, [3]string{"checker.example", "checker", "us/*"}, [3]string{"jo.example", "admin", ""})
	})
	base := "https://" + l.server.AdminAddress()
	ask := func(leaf identitytest.Leaf, method, path, body, authorization string) (int, string) {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.Client(&leaf), DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(answer)
	}
	jo, checker := identitytest.Leaf{DNS: []string{"jo.example"}}, identitytest.Leaf{DNS: []string{"checker.example"}}
	const endpoint = "/v1/services/checkout/endpoints/10.0.0.1:80/health"
	poll := func(locality string) string {
		region, zone, _ := strings.Cut(locality, "/")
		return `{"health_check_request": {"node": {"id": "p", "locality": {"region": "` + region + `", "zone": "` + zone + `"}}, "capability": {"health_check_protocols": ["TCP"]}}}`
	}
	tests := []struct {
		name                    string
		leaf                    identitytest.Leaf
		method, path, body, say string
		want                    int
		says                    string
	}{
		{"reading", jo, "GET", "/v1/services", "", "", 200, "checkout"},
		{"a write without token", jo, "PUT", endpoint, `"draining"`, "", 401, "needs the bearer token"},
		{"a write with another token", jo, "PUT", endpoint, `"draining"`, "Bearer " + token[1:], 401, "not the one"},
		{"a write with the token", jo, "PUT", endpoint, `{"health": "draining"}`, "bearer " + token, 200, ""},
		{"a write of a checker", checker, "PUT", endpoint, `"healthy"`, "Bearer " + token, 403, "may not act as admin"},
		{"a poll without token", checker, "POST", rpc.CheckerPath, poll("us/a"), "", 401, ""},
		{"a poll", checker, "POST", rpc.CheckerPath, poll("us/a"), "Bearer " + token, 200, ""},
		{"a poll from elsewhere", checker, "POST", rpc.CheckerPath, poll("eu/a"), "Bearer " + token, 403, "locality not allowed"},
		{"a poll of an operator", jo, "POST", rpc.CheckerPath, poll("us/a"), "Bearer " + token, 403, "role not allowed"},
	}
	for _, tt := range tests {
		if code, body := ask(tt.leaf, tt.method, tt.path, tt.body, tt.say); code != tt.want || !strings.Contains(body, tt.says) {
			t.Errorf("%s: %d %s", tt.name, code, body)
		}
	}

	remote, err := admin.NewRemote(base, admin.WithTLS(ca.Client(&jo)), admin.WithToken(token))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := remote.Clients(t.Context()); err != nil {
		t.Error(err)
	}
	resp, err := http.Get("http://" + l.server.AdminAddress() + "/livez")
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("plaintext gets %d", resp.StatusCode)
		}
	}
}
