package envoy_test

import (
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
)

func TestInstallRefusesUnknownVersions(t *testing.T) {
	if _, err := envoy.Install(t.Context(), "0.0.1"); err == nil || !strings.Contains(err.Error(), "0.0.1") {
		t.Fatalf("error %v, want one that names the version", err)
	}
}
