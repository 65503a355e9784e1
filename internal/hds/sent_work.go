package hds

import (
	"slices"
	"strings"
	"sync"
	"time"

	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
)

// sentWork is what a checker was told.
type sentWork struct {
	mu       sync.Mutex
	bytes    []byte                                  // the last specifier, encoded
	clusters map[string]*healthv3.ClusterHealthCheck // that were sent with endpoints, kept without
	sums     sums                                    // of the clusters in it that have endpoints
	draining map[string]drain                        // without, about to go
	basis    *basis                                  // of bytes; nil where they don't hold just that
}

// drain is a cluster that goes in two steps: at first only its endpoints are
// taken away, so that the checker ends its probes, then the cluster. Envoy may
// crash when a cluster goes whose probes are running.
type drain struct {
	cluster *healthv3.ClusterHealthCheck // without endpoints
	until   time.Time
}

// drained turns clusters that are not wanted any more into draining ones and
// gives those that have to be told of, by name; again is when the next of them
// may go, zero for never.
func (d *sentWork) drained(wanted []*healthv3.ClusterHealthCheck, now time.Time, wait time.Duration) (out []*healthv3.ClusterHealthCheck, again time.Time) {
	want := make(map[string]bool, len(wanted))
	for _, c := range wanted {
		want[c.GetClusterName()] = true
	}
	for name, c := range d.clusters {
		if want[name] {
			continue
		}
		if d.draining == nil {
			d.draining = map[string]drain{}
		}
		d.draining[name] = drain{cluster: c, until: now.Add(wait)}
	}
	for name, dr := range d.draining {
		if want[name] || !now.Before(dr.until) {
			delete(d.draining, name)
			continue
		}
		out = append(out, dr.cluster)
		if again.IsZero() || dr.until.Before(again) {
			again = dr.until
		}
	}
	slices.SortFunc(out, func(a, b *healthv3.ClusterHealthCheck) int {
		return strings.Compare(a.GetClusterName(), b.GetClusterName())
	})
	return out, again
}

func withoutEndpoints(c *healthv3.ClusterHealthCheck) *healthv3.ClusterHealthCheck {
	return &healthv3.ClusterHealthCheck{
		ClusterName: c.GetClusterName(), HealthChecks: c.GetHealthChecks(), TransportSocketMatches: c.GetTransportSocketMatches(),
	}
}
