package admin_test

import (
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
)

func TestIsProbe(t *testing.T) {
	for head, want := range map[string]bool{
		"GET /livez HTTP/1.1\r\nHost: 10.0.0.1:15000\r\nUser-Agent: kube-probe/1.34\r\nConnection: close\r\n\r\n": true,
		"GET /readyz?verbose HTTP/1.0\r\n\r\n":                  true,
		"GET /livez HTTP/1.1\r\nHost: localhost\r\n":            false, // the rest may never come
		"GET /livezzz HTTP/1.1\r\n\r\n":                         false,
		"GET /metrics HTTP/1.1\r\nReferer: GET /livez \r\n\r\n": false,
		"POST /livez HTTP/1.1\r\nContent-Length: 9\r\n\r\n":     false,
		"GET /livez":           false,
		"":                     false,
		"\x16\x03\x01\x02\x00": false, // TLS
	} {
		if got := admin.IsProbe([]byte(head)); got != want {
			t.Errorf("%q: %v", head, got)
		}
	}
}
