package identity_test

import (
	"crypto/x509"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/identity"
)

// peer is one whose certificate holds the names; those with a scheme are URIs.
func peer(tb testing.TB, names ...string) *identity.Peer {
	tb.Helper()
	c := &x509.Certificate{}
	c.Subject.CommonName = "common"
	for _, n := range names {
		if !strings.Contains(n, "://") {
			c.DNSNames = append(c.DNSNames, n)
			continue
		}
		u, err := url.Parse(n)
		if err != nil {
			tb.Fatal(err)
		}
		c.URIs = append(c.URIs, u)
	}
	return identity.PeerOf(c)
}

func TestPatternMatches(t *testing.T) {
	const id = "spiffe://prod.example/ns/shop/sa/envoy"
	tests := []struct {
		pattern string
		names   []string
		want    bool
	}{
		{id, []string{id}, true},
		{"spiffe://prod.example/ns/*/sa/envoy", []string{id}, true},
		{"spiffe://prod.example/*/*/*/*", []string{id}, true},
		{"spiffe://prod.example/ns/*", []string{id}, false}, // one segment, not all that follow
		{"spiffe://prod.example/ns/*/*/sa/envoy", []string{id}, false},
		{"spiffe://prod.example", []string{id}, false},
		{"spiffe://prod.example", []string{"spiffe://prod.example"}, true},
		{"spiffe://dev.example/ns/*/sa/envoy", []string{id}, false},
		{"spiffe://prod.example/ns/*/sa/Envoy", []string{id}, false}, // paths have case
		{id, []string{id, "spiffe://prod.example/other"}, false},     // two URIs are no SPIFFE ID
		{id, []string{id, "https://prod.example/"}, false},
		{id, []string{"https://prod.example/ns/shop/sa/envoy"}, false},
		{id, nil, false},
		{"*.clients.example", []string{"a.clients.example"}, true},
		{"*.clients.example", []string{"A.Clients.Example"}, true},
		{"*.Clients.Example.", []string{"a.clients.example"}, true},
		{"*.clients.example", []string{"a.b.clients.example"}, false},
		{"*.clients.example", []string{"clients.example"}, false},
		{"*.clients.example", []string{"*.clients.example"}, false}, // a wildcard names nobody
		{"*.clients.example", []string{"other.example", "a.clients.example"}, true},
		{"*.clients.example", []string{id, "a.clients.example"}, true},
		{"common", nil, false}, // a common name proves nothing
		{"prod.example", []string{"spiffe://prod.example"}, false},
	}
	for _, tt := range tests {
		p, err := identity.ParsePattern(tt.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Matches(peer(t, tt.names...)); got != tt.want {
			t.Errorf("%s on %v: %v", tt.pattern, tt.names, got)
		}
		if p.String() != tt.pattern {
			t.Errorf("%s shows as %s", tt.pattern, p)
		}
	}
}

func TestBadPatterns(t *testing.T) {
	for _, s := range []string{
		"", ".", "a..b", "a b", "-a.example", "a*.example", "**", "a/b", "http://a.example/", "spiffe://", "spiffe:///a", "spiffe://*/a",
		"spiffe://a.example/", "spiffe://a.example//b", "spiffe://a.example/x*", "spiffe://a.example/..", "spiffe://a.example:1/b",
		"spiffe://A.example/b", "SPIFFE://a.example/b", strings.Repeat("a", 3000),
	} {
		if p, err := identity.ParsePattern(s); err == nil {
			t.Errorf("%q is taken for %v", s, p)
		}
	}
}

func TestLocalityPatterns(t *testing.T) {
	tests := []struct {
		pattern, locality string
		want              bool
	}{
		{"us-east", "us-east", true},
		{"us-east", "us-east/b", true},
		{"us-east", "us-east/b/1", true},
		{"us-east", "us-east-2/b", false},
		{"us-east/b", "us-east/b/1", true},
		{"us-east/b", "us-east", false},
		{"us-east/*", "us-east/b", true},
		{"us-east/*", "us-east/b/1", true},
		{"us-east/*", "us-east", false},
		{"*/b", "eu/b", true},
		{"*", "eu", true},
		{"*", "", false},
		{"us-east/b/*", "us-east/b", false},
	}
	for _, tt := range tests {
		p, err := identity.ParseLocality(tt.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Matches(isobar.MustLocality(tt.locality)); got != tt.want {
			t.Errorf("%s on %q: %v", tt.pattern, tt.locality, got)
		}
	}
	for _, s := range []string{"", "a//b", "/", "a/b/c/d"} {
		if _, err := identity.ParseLocality(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}

// TestPatternsAsExpressions: a pattern of a DNS name does what the regular
// expression that one would write for it does.
func TestPatternsAsExpressions(t *testing.T) {
	label := rapid.SampledFrom([]string{"a", "b", "ab", "x-1"})
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(rapid.OneOf(label, rapid.Just("*")), 1, 4).Draw(t, "pattern"), ".")
		name := strings.Join(rapid.SliceOfN(label, 1, 4).Draw(t, "name"), ".")
		p, err := identity.ParsePattern(pattern)
		if err != nil {
			t.Fatal(err)
		}
		twin := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `[^.]+`) + "$")
		if got, want := p.Matches(identity.PeerOf(&x509.Certificate{DNSNames: []string{name}})), twin.MatchString(name); got != want {
			t.Errorf("%s on %s: %v, want %v", pattern, name, got, want)
		}
	})
}

// FuzzPattern: whatever is written as a pattern is refused or matches without
// harm, and what is taken is taken again as it shows.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"spiffe://prod.example/ns/*/sa/envoy", "*.clients.example", "spiffe://", "a..b", "spiffe://a/\x00", "*"} {
		f.Add(s)
	}
	someone := peer(f, "spiffe://prod.example/ns/shop/sa/envoy", "a.clients.example")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := identity.ParsePattern(s)
		if err != nil {
			return
		}
		again, err := identity.ParsePattern(p.String())
		if err != nil || again.Matches(someone) != p.Matches(someone) {
			t.Errorf("%q: %v", s, err)
		}
	})
}
