package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// writeSized replaces the file with one in which a service has so many endpoints in us/a, and as many in us/b.
func (w *heldWorld) writeSized(service string, each int) {
	w.t.Helper()
	var at []string
	for i, zone := range []string{"us/a", "us/b"} {
		var endpoints []string
		for j := range each {
			endpoints = append(endpoints, fmt.Sprintf("%q", fmt.Sprintf("10.0.%d.%d:80", i, j+1)))
		}
		at = append(at, fmt.Sprintf("{locality: %s, endpoints: [%s]}", zone, strings.Join(endpoints, ", ")))
	}
	w.writeServices(fmt.Sprintf("\n- {name: %s, localities: [%s]}", service, strings.Join(at, ", ")))
}

// TestMostEndpointsAreHeld: a file that removes 9 of 10 endpoints in every locality is not in force before an
// operator confirms it, also over a restart.
func TestMostEndpointsAreHeld(t *testing.T) {
	t.Parallel()
	w := newHeldWorld(t, "other")
	w.writeSized("checkout", 10)
	w.in("checkout")
	w.writeSized("checkout", 1)
	const removes = "18 of the 20 endpoints of service checkout"
	testhelp.Eventually(t, "a held change", func() bool { h := w.status().Held; return h != nil && h.Removes == removes })
	if a := attends(t, w.status(), admin.RemovalHeld); !strings.Contains(a.Text, "it removes "+removes+"; to apply it, run isobar reload --confirm ") {
		t.Errorf("the status says %q", a.Text)
	}
	w.restart()
	w.in("checkout")
	held := w.status().Held
	if n := w.endpoints("checkout"); n != 20 || held == nil || held.Removes != removes {
		t.Fatalf("after a restart checkout has %d endpoints, held %+v", n, held)
	}
	if left, err := w.Reload(held.Digest); err != nil || left != nil {
		t.Fatalf("confirmed: %+v, %v", left, err)
	}
	testhelp.Eventually(t, "the endpoints of the file", func() bool { return w.endpoints("checkout") == 2 })
}
