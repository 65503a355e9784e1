package console_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/console"
)

// get asks for a path as it is where the console is mounted; headers come in pairs.
func get(t *testing.T, h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, http.NoBody)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func handler(t *testing.T) http.Handler {
	t.Helper()
	h, err := console.Handler()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

var asset = regexp.MustCompile(`(?:src|href)="\./([^"]+)"`)

// TestPage: the page holds no script and no style of its own, and everything that
// it names is there, beside it, with a type that a browser takes.
func TestPage(t *testing.T) {
	h := handler(t)
	page := get(t, h, "/")
	text := page.Body.String()
	if page.Code != http.StatusOK || page.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d %v", page.Code, page.Header())
	}
	for _, bad := range []string{"<style", "style=", "onload", "://", `src="/`, `href="/`} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if inline := regexp.MustCompile(`<script[^>]*>[^<]`).FindString(text); inline != "" {
		t.Errorf("the page has a script of its own: %s", inline)
	}
	names := asset.FindAllStringSubmatch(text, -1)
	if len(names) < 3 {
		t.Fatalf("the page names %d files: %s", len(names), text)
	}
	types := map[string]string{"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
	for _, name := range names {
		a := get(t, h, "/"+name[1])
		_, ext, _ := strings.Cut(name[1][strings.LastIndex(name[1], "/")+1:], ".")
		if a.Code != http.StatusOK || a.Header().Get("Content-Type") != types[ext] {
			t.Errorf("%s: %d %v", name[1], a.Code, a.Header())
		}
		if immutable := strings.Contains(a.Header().Get("Cache-Control"), "immutable"); immutable != strings.HasPrefix(name[1], "assets/") {
			t.Errorf("%s: %s", name[1], a.Header().Get("Cache-Control"))
		}
	}
}

// TestHeaders: every answer binds the browser, also for what is not there.
func TestHeaders(t *testing.T) {
	h := handler(t)
	for _, path := range []string{"/", "/icon.svg", "/nothing"} {
		header := get(t, h, path).Header()
		policy := header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy lacks %s: %q", path, want, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%s: %s", path, policy)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			if header.Get(name) != want {
				t.Errorf("%s: %s is %q", path, name, header.Get(name))
			}
		}
		if header.Get("Set-Cookie") != "" {
			t.Errorf("%s sets a cookie", path)
		}
	}
}

// TestPacked: gzip only for who takes it, of the same content, and small enough.
func TestPacked(t *testing.T) {
	h := handler(t)
	names := asset.FindAllStringSubmatch(get(t, h, "/").Body.String(), -1)
	scripts := 0
	for _, name := range names {
		plain := get(t, h, "/"+name[1])
		packed := get(t, h, "/"+name[1], "Accept-Encoding", "br, gzip")
		if plain.Header().Get("Content-Encoding") != "" || packed.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: %v %v", name[1], plain.Header(), packed.Header())
		}
		if strings.HasSuffix(name[1], ".js") {
			scripts += packed.Body.Len()
		}
		if packed.Header().Get("Content-Encoding") != "gzip" {
			continue
		}
		unpacked, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(unpacked); err != nil || string(text) != plain.Body.String() {
			t.Errorf("%s is another file when packed", name[1])
		}
	}
	if scripts == 0 || scripts > 150<<10 {
		t.Errorf("the scripts have %d bytes, packed", scripts)
	}
	if refused := get(t, h, "/", "Accept-Encoding", "gzip;q=0"); refused.Header().Get("Content-Encoding") != "" {
		t.Error("gzip for who refuses it")
	}
}

// TestLicences: what the program holds of others is shown with their licences.
func TestLicences(t *testing.T) {
	text := get(t, handler(t), "/licenses.txt").Body.String()
	for _, want := range []string{"\nsvelte ", "\nclsx ", "\ngoogle.golang.org/grpc ", "\nThe Go standard library", "Permission is hereby granted"} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing of %q", want)
		}
	}
}

// TestOtherFiles: nothing but the files is there.
func TestOtherFiles(t *testing.T) {
	h := handler(t)
	for _, path := range []string{"/nothing", "/assets", "/assets/", "/../console.go", "/dist/index.html", "/.."} {
		if a := get(t, h, path); a.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.Code)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodHead, "http://localhost/", http.NoBody))
	if w.Code != http.StatusOK || w.Body.Len() != 0 || w.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD: %d %v %s", w.Code, w.Header(), w.Body)
	}
}
