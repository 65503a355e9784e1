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
		{"expired", -time.Hour, 20 * time.Hour, "warning: the certificate of the listener xds expired at "},
		{"ends soon", time.Minute, 20 * time.Hour, "warning: the certificate of the listener xds expires at "},
		{"authority expired", 20 * time.Hour, -time.Hour, "warning: the certificate of CN=test CA in client_ca of the listener xds expired at "},
		{"authority ends soon", 20 * time.Hour, time.Minute, "warning: the certificate of CN=test CA in client_ca of the listener xds expires at "},
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

// TestCheckFindsMisspelledRegions: a region that only one service names, beside one that is
// spelled nearly the same, is a warning; regions that differ as regions do are none.
func TestCheckFindsMisspelledRegions(t *testing.T) {
	for _, tt := range []struct {
		regions string // of the services, separated by a semicolon
		network string
		want    string // "" = no warning
	}{
		{"us-east;us-esat", "", "the region us-esat of service s1, so it counts as far away from all others; did you mean us-east?"},
		{"us-east eu-west;us-eas eu-west", "", "did you mean us-east?"},
		{"us-east;us-east us-easst", "", "did you mean us-east?"},
		{"us-east;us-east;us_east", "", "did you mean us-east?"},
		{"us-east;us-east;US-East", "", "did you mean us-east?"},
		{"us-esat", "us-east", "did you mean us-east?"},
		{"us-east;us-esat", "us-esat", "the region us-east of service s0, so it counts as far away from all others; did you mean us-esat?"},
		{"europe-west1;europe-west1;europ-west1", "", "did you mean europe-west1?"},
		{"us-east;us-west", "", ""},
		{"us-east;uk-east", "", ""},
		{"eu-west-1;eu-west-2", "", ""},
		{"eastus;eastus2", "", ""},
		{"europe-north1;europe-south1", "", ""},
		{"dfw;dtw", "", ""},
		{"us us-east;us", "", ""},
		{"us-east us-esat", "", ""}, // of one service: what it means is not known
	} {
		t.Run(tt.regions+" "+tt.network, func(t *testing.T) {
			var b strings.Builder
			if tt.network != "" {
				fmt.Fprintf(&b, "network: {latency_ms: [{from: %s, to: asia, ms: 80}]}\n", tt.network)
			}
			b.WriteString("services:\n")
			for i, regions := range strings.Split(tt.regions, ";") {
				fmt.Fprintf(&b, "- name: s%d\n  health_checks: [{tcp: {}}]\n  localities:\n", i)
				for j, region := range strings.Fields(regions) {
					fmt.Fprintf(&b, "  - {locality: %s/z%d, max_rate: 100, endpoints: [\"10.0.%d.%d:80\"]}\n", region, j, i, j)
				}
			}
			path := filepath.Join(t.TempDir(), "isobar.yaml")
			if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			if err := run(t.Context(), []string{"check", path}, &stdout, &stderr); err != nil {
				t.Fatal(err)
			}
			if told := stderr.String(); !strings.Contains(told, tt.want) || (tt.want == "" && strings.Contains(told, "warning")) {
				t.Errorf("got %q, want %q", told, tt.want)
			}
		})
	}
}
