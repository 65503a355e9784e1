package interop

import (
	"os"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
)

// interopAll reports whether the tests run at full length, as `make interop-all`
// runs them: with every version of Envoy in every form, with hundreds of
// assignments, fleets and clusters.
func interopAll() bool { return os.Getenv("ISOBAR_INTEROP_ALL") != "" }

// envoyVersions returns the versions of Envoy to test with: the newest, and the
// oldest besides where the tests run at full length.
func envoyVersions() []string {
	if interopAll() {
		return []string{envoy.Newest, envoy.Oldest}
	}
	return []string{envoy.Newest}
}
