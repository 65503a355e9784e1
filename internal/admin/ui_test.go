package admin_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
)

// page stands in for the console.
func page(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintf(w, "page %s", r.URL.Path) }

func withConsole(change func(*admin.Options)) func(*admin.Options) {
	return func(o *admin.Options) {
		o.Console = http.HandlerFunc(page)
		if change != nil {
			change(o)
		}
	}
}

// ask sends a request and follows no redirection.
func ask(t *testing.T, srv *httptest.Server, path string) answer {
	t.Helper()
	client := srv.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return do(t, srv, "GET", path, "")
}

// TestConsoleIsServed: beneath /ui/, where / and /ui lead, and nowhere without one.
func TestConsoleIsServed(t *testing.T) {
	srv := start(t, newWorld(), withConsole(nil))
	for path, want := range map[string]string{"/ui/": "page /", "/ui/assets/x.js": "page /assets/x.js"} {
		if a := ask(t, srv, path); a.code != http.StatusOK || a.body != want {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	for _, path := range []string{"/", "/ui"} {
		if a := ask(t, srv, path); a.code != http.StatusFound || a.header.Get("Location") != "ui/" {
			t.Errorf("%s: %d %v", path, a.code, a.header)
		}
	}
	if a := do(t, srv, "POST", "/ui/", ""); a.code != http.StatusMethodNotAllowed {
		t.Errorf("a POST to the page: %d", a.code)
	}
	off := start(t, newWorld(), nil)
	for _, path := range []string{"/", "/ui", "/ui/"} {
		if a := ask(t, off, path); a.code != http.StatusNotFound {
			t.Errorf("without a console, %s: %d", path, a.code)
		}
	}
}

// TestConsoleNeedsNoToken: a browser can't show one to open a page; what the page
// reads needs it, as does everything else.
func TestConsoleNeedsNoToken(t *testing.T) {
	for _, base := range []string{"", "/isobar"} {
		srv := start(t, newWorld(), withConsole(func(o *admin.Options) {
			o.Token, o.TokenForAll, o.BasePath = func(string) bool { return false }, true, base
		}))
		for path, want := range map[string]int{
			"/ui/": http.StatusOK, "/ui/assets/x.js": http.StatusOK, "/ui": http.StatusFound, "/": http.StatusFound, "/livez": http.StatusOK,
			"/v1/status": http.StatusUnauthorized, "/v1/stream": http.StatusUnauthorized, "/metrics": http.StatusUnauthorized,
			"/ui/../v1/status": http.StatusUnauthorized, "//ui/": http.StatusUnauthorized,
			"/uix": http.StatusUnauthorized, "/debug/pprof/": http.StatusUnauthorized,
		} {
			a := ask(t, srv, base+path)
			// The mux cleans paths by a redirection, which shows nothing either.
			if redirected := strings.Contains(path, "..") || strings.HasPrefix(path, "//"); a.code != want && (!redirected || a.code/100 != 3) {
				t.Errorf("%s%s: %d instead of %d: %s", base, path, a.code, want, a.body)
			}
		}
		// The console has no such file; the API is not reached by it.
		if a := ask(t, srv, base+"/ui/%2e%2e/v1/status"); a.body != "page /../v1/status" {
			t.Errorf("a path that leaves the console: %d %s", a.code, a.body)
		}
		if a := do(t, srv, "POST", base+"/ui/", ""); a.code != http.StatusUnauthorized {
			t.Errorf("a POST to the page: %d", a.code)
		}
	}
}

// TestBasePath: a proxy may pass on its path, or leave it out.
func TestBasePath(t *testing.T) {
	srv := start(t, newWorld(), withConsole(func(o *admin.Options) { o.BasePath = "/ops/isobar" }))
	for path, want := range map[string]int{
		"/ops/isobar/ui/": http.StatusOK, "/ops/isobar/v1/status": http.StatusOK, "/ops/isobar/livez": http.StatusOK, "/ops/isobar/metrics": http.StatusOK,
		"/ui/": http.StatusOK, "/v1/status": http.StatusOK,
		"/ops/isobar/nothing": http.StatusNotFound, "/ops/isobarx/ui/": http.StatusNotFound, "/ops/": http.StatusNotFound,
	} {
		if a := ask(t, srv, path); a.code != want {
			t.Errorf("%s: %d instead of %d", path, a.code, want)
		}
	}
	for path, want := range map[string]string{"/ops/isobar": "/ops/isobar/ui/", "/ops/isobar/": "ui/", "/ops/isobar/ui": "ui/"} {
		if a := ask(t, srv, path); a.code != http.StatusFound || a.header.Get("Location") != want {
			t.Errorf("%s: %d to %q", path, a.code, a.header.Get("Location"))
		}
	}
}

// TestForeignPages: a page of another origin neither embeds the console nor reads
// by it; links to it work, and so do proxies that change Host.
func TestForeignPages(t *testing.T) {
	srv := start(t, newWorld(), withConsole(func(o *admin.Options) {
		o.Identities = identities{mayWrite: func(*http.Request) error { return errors.New("nobody may") }}
	}))
	own := srv.URL
	for _, tt := range []struct {
		name    string
		want    int
		headers []string
	}{
		{"no browser", 200, nil},
		{"its own page", 200, []string{"Origin", own}},
		{"its own page through a proxy that changes Host", 200, []string{"Sec-Fetch-Site", "same-origin", "Origin", "https://ops.example"}},
		{"an address that was typed", 200, []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}},
		{"a link", 200, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}},
		{"a frame", 403, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}},
		{"a script", 403, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"}},
		{"a sibling", 403, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"}},
		{"an old browser's other page", 403, []string{"Origin", "http://evil.example"}},
		{"a page without an origin", 403, []string{"Origin", "null"}},
		{"a nonsense origin", 403, []string{"Origin", "http://[::1"}},
		{"another name", 403, []string{"Host", "evil.example"}},
	} {
		if a := do(t, srv, "GET", "/ui/", "", tt.headers...); a.code != tt.want {
			t.Errorf("%s gets the page: %d instead of %d", tt.name, a.code, tt.want)
		}
		if tt.want != http.StatusForbidden {
			continue
		}
		if a := do(t, srv, "GET", "/v1/stream", "", tt.headers...); a.code != tt.want {
			t.Errorf("%s gets the stream: %d instead of %d", tt.name, a.code, tt.want)
		}
	}
}
