//go:build !race

package member

import (
	"fmt"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// BenchmarkEncode encodes plans of 1,000 services with 102 endpoints each for other replicas, with the
// digest by which these know the content: after a tick, all services have new decisions, and
// after a change of one service, one has.
func BenchmarkEncode(b *testing.B) {
	for _, c := range []struct {
		name    string
		changed int
	}{{"tick", 1000}, {"service", 1}} {
		b.Run(c.name, func(b *testing.B) {
			w := newPlanned()
			for i := range 1000 {
				name := fmt.Sprintf("service-%04d", i)
				w.services[name], w.rates[name] = plannedService(name, 34), 300
			}
			var plans []*plan.Plan
			for turn := range 2 {
				for i := range c.changed {
					name := fmt.Sprintf("service-%04d", i)
					w.rates[name] *= 1.2
					if c.changed == 1 {
						w.change(name, true, func(l *isobar.ServiceLocality) { l.MaxRate += float64(turn) })
					}
				}
				plans = append(plans, w.next(b, c.changed > 1 || turn == 0))
			}
			codec, digest, bytes := codecs(b)(), partDigest{}, 0
			for _, p := range plans { // a leader has encoded all services before
				if _, err := codec.encode(p, plan.Origin{}, w.found); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for turn := 0; b.Loop(); turn++ {
				content, err := codec.encode(plans[turn%2], plan.Origin{}, w.found)
				if err != nil {
					b.Fatal(err)
				}
				digest, bytes = content.Digest(), content.Size()
			}
			b.SetBytes(int64(bytes))
			if digest == (partDigest{}) {
				b.Fatal("no digest")
			}
		})
	}
}

// BenchmarkOpen opens, on another replica, plans of which one service of 1,000 differs.
func BenchmarkOpen(b *testing.B) {
	w := newPlanned()
	for i := range 1000 {
		name := fmt.Sprintf("service-%04d", i)
		w.services[name], w.rates[name] = plannedService(name, 34), 300
	}
	leader, follower := codecs(b)(), codecs(b)()
	w.next(b, true)
	before, err := leader.encode(w.plan, plan.Origin{}, w.found)
	if err != nil {
		b.Fatal(err)
	}
	w.change("service-0007", true, func(l *isobar.ServiceLocality) { l.MaxRate++ })
	w.next(b, false)
	after, err := leader.encode(w.plan, plan.Origin{}, w.found)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(after.Size()))
	if _, err := follower.open(after); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for turn := 0; b.Loop(); turn++ {
		content := before
		if turn%2 == 1 {
			content = after
		}
		if _, err := follower.open(content); err != nil {
			b.Fatal(err)
		}
	}
}
