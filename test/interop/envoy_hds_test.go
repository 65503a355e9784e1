package interop

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// startIsobarChecker runs an `isobar checker` until the test ends.
func startIsobarChecker(t *testing.T, id, locality string, s *isobar) {
	t.Helper()
	log := new(testhelp.Log)
	cmd := exec.CommandContext(context.Background(), isobarPath, "checker", "--server", s.xds, "--locality", locality, "--node-id", id)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("checker %s: %s", id, log)
		}
	})
}

// Of the checks below; what they give is the bound of the reference.
const (
	kindInterval  = time.Second
	kindTimeout   = 500 * time.Millisecond
	kindThreshold = 2
	kindReports   = time.Second // report interval of the server
	kindSlack     = 3 * time.Second
	kindBound     = kindThreshold*(kindInterval+kindTimeout) + kindReports + kindSlack
)

// checkKinds are all checks that Envoy does, and what each can tell from a well one.
var checkKinds = []struct {
	name string
	http bool // it reads an answer
	tls  bool
	over map[string]any
}{
	{"http", true, false, map[string]any{"http": map[string]any{"path": "/"}}},
	{"http2", true, false, map[string]any{"http": map[string]any{"path": "/", "http2": true}}},
	{"tcp", false, false, map[string]any{"tcp": map[string]any{}}},
	{"https", true, true, map[string]any{"tls": true, "http": map[string]any{"path": "/"}}},
	{"http2s", true, true, map[string]any{"tls": true, "http": map[string]any{"path": "/", "http2": true}}},
	{"tcps", false, true, map[string]any{"tls": true, "tcp": map[string]any{}}},
}

// checkFaults of endpoints, and which checkKinds of checks see them. Five more endpoints
// stay well, so that what goes down is no mass failure.
var checkFaults = []struct {
	name string
	make func(e *endpoint)
	mend func(e *endpoint) // nil: it stays
	seen func(answer, tls bool) bool
}{
	{"refuses", func(e *endpoint) { e.refuse() }, nil, func(bool, bool) bool { return true }},
	{"hangs", func(e *endpoint) { e.hang.Store(true); e.reset() }, func(e *endpoint) { e.hang.Store(false); e.reset() },
		func(answer, tls bool) bool { return answer || tls }},
	{"answers 500", func(e *endpoint) { e.status.Store(http.StatusInternalServerError) }, func(e *endpoint) { e.status.Store(http.StatusOK) },
		func(answer, _ bool) bool { return answer }},
	{"is cut off", func(e *endpoint) { e.cut.Store(true); e.reset() }, func(e *endpoint) { e.cut.Store(false) },
		func(answer, tls bool) bool { return answer || tls }},
	{"is slow", func(e *endpoint) { e.slow.Store(int64(kindTimeout / 4)) }, nil, func(bool, bool) bool { return false }},
}

// Two Envoys and an isobar checker find by all checkKinds of checks what fails, within
// what the thresholds say, and nothing else; and that it is well again.
func TestEnvoyFindsWhatFails(t *testing.T) {
	t.Parallel()
	for _, version := range envoyVersions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			const well = 5
			var all []*endpoint
			for range len(checkFaults) + well {
				all = append(all, startEndpoint(t, ""))
			}
			services := make([]checked, 0, len(checkKinds))
			for _, k := range checkKinds {
				check := map[string]any{
					"interval": kindInterval.String(), "timeout": kindTimeout.String(), "unhealthy_threshold": kindThreshold, "healthy_threshold": 1,
				}
				maps.Copy(check, k.over)
				service := checked{Name: k.name, Checks: []map[string]any{check}}
				for i, zone := range []string{"us/a", "us/b"} {
					l := checkedLocality{Locality: zone}
					for j := i; j < len(all); j += 2 {
						l.Endpoints = append(l.Endpoints, checkedEndpoint{Address: all[j].address})
					}
					service.Localities = append(service.Localities, l)
				}
				services = append(services, service)
			}
			s := startIsobar(t, servicesText(t, services...))
			startChecker(t, version, "envoy-a", "us/a", s)
			startChecker(t, version, "envoy-b", "us/b", s)
			startIsobarChecker(t, "ours", "us/c", s)
			for _, k := range checkKinds {
				s.healthyBy(k.name, 3, len(all))
			}
			for i, f := range checkFaults {
				f.make(all[i])
			}
			s.find(all, true)
			for i, f := range checkFaults {
				if f.mend != nil {
					f.mend(all[i])
				}
			}
			s.find(all, false)
		})
	}
}

// find waits until all checkKinds of checks have found each fault that they can see,
// and no other, in the time that they have. Without faulty only those that stay
// are there.
func (s *isobar) find(all []*endpoint, faulty bool) {
	s.t.Helper()
	began := time.Now()
	for _, k := range checkKinds {
		await(s.t, "what fails by "+k.name, func() error {
			list, err := s.verdicts(k.name)
			if err != nil {
				return err
			}
			for i, e := range all {
				down, name := false, "is well"
				if i < len(checkFaults) {
					f := &checkFaults[i]
					name = f.name
					down = f.seen(k.http, k.tls) && (faulty || f.mend == nil)
				}
				v := list[e.address]
				if is := v.Status.String(); is == "unknown" || (is != "healthy") != down {
					return fmt.Errorf("an endpoint that %s is %s: %s: %+v", name, is, v.Why, v.Votes)
				}
			}
			return nil
		})
		if took := time.Since(began); took > kindBound {
			s.t.Errorf("found after %s by %s, want at most %s", took, k.name, kindBound)
		}
	}
}

// Three Envoys that may open enough files probe 2,000 endpoints each.
func TestEnvoysProbeThousands(t *testing.T) {
	t.Parallel()
	web := startProbedWeb(t)
	service := crowd(t, "web", 2000, web.address)
	service.Checks[0] = map[string]any{"http": map[string]any{"path": "/"}, "interval": "5s", "timeout": "5s", "healthy_threshold": 1}
	s := startIsobar(t, servicesText(t, service))
	var all []*proxy
	for _, zone := range []string{"a", "b", "c"} {
		all = append(all, startEnvoyWith(t, envoy.Config{
			Path: envoyBinary(t, envoy.Newest), Bootstrap: []byte(checkerBootstrap("envoy-"+zone, "us/"+zone, s.xds, 4000)), OpenFiles: 8000,
		}))
	}
	await(t, "verdicts on 2,000 endpoints", func() error {
		for _, p := range all {
			p.alive(t)
		}
		return s.healthyOf("web", 2000)
	})
}
