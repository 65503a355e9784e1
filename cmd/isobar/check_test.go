package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/identity/identitytest"
)

// TestCheckLooksAtCertificates: one that has expired, or soon ends, is a warning, and
// fails with --strict; one that is good for long is none.
func TestCheckLooksAtCertificates(t *testing.T) {
	for _, tt := range []struct {
		name string
		ends time.Duration // from now
		ca   time.Duration // when client_ca ends, from now
		want string        // "" = no warning
	}{
		{"expired", -time.Hour, 20 * time.Hour, "warning: the certificate of the listener xds has expired at "},
		{"ends soon", time.Minute, 20 * time.Hour, "warning: the certificate of the listener xds ends at "},
		{"authority expired", 20 * time.Hour, -time.Hour, "warning: the certificate of CN=test CA in client_ca of the listener xds has expired at "},
		{"authority ends soon", 20 * time.Hour, time.Minute, "warning: the certificate of CN=test CA in client_ca of the listener xds ends at "},
		{"good", 20 * time.Hour, 20 * time.Hour, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			files := identitytest.NewCAUntil(t, time.Now().Add(tt.ca)).Write(dir, identitytest.Leaf{NotAfter: time.Now().Add(tt.ends)})
			path := filepath.Join(dir, "isobar.yaml")
			text := fmt.Sprintf(`
xds: {tls: {cert: %q, key: %q, client_ca: %q}}
services: [{name: checkout, health_checks: [{tcp: {}}], localities: [{locality: us/a, max_rate: 100, endpoints: ["10.0.0.1:80"]}]}]
`, files.Cert, files.Key, files.ClientCA)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, strict := range []bool{false, true} {
				var stdout, stderr bytes.Buffer
				args := []string{"check", path}
				if strict {
					args = append(args, "--strict")
				}
				err := run(t.Context(), args, &stdout, &stderr)
				if (err != nil) != (strict && tt.want != "") {
					t.Errorf("strict %v: %v", strict, err)
				}
				if told := stderr.String(); !strings.Contains(told, tt.want) || (tt.want == "" && strings.Contains(told, "warning")) {
					t.Errorf("strict %v: %s", strict, told)
				}
			}
		})
	}
}
