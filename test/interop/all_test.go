package interop

import (
	"os"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
)

// interopAll reports whether the tests run with every version of Envoy in every
// form, as `make interop-all` runs them.
func interopAll() bool { return os.Getenv("ISOBAR_INTEROP_ALL") != "" }

// interopLong reports whether the tests run at full length, as `make interop-long`
// runs them: with hundreds of assignments, fleets and clusters.
func interopLong() bool { return os.Getenv("ISOBAR_INTEROP_LONG") != "" }

// envoyVersions returns the versions of Envoy to test with: the newest, and the
// oldest besides where the tests run at full length.
func envoyVersions() []string {
	if interopAll() {
		return []string{envoy.Newest, envoy.Oldest}
	}
	return []string{envoy.Newest}
}
