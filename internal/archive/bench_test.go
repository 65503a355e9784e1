package archive_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/archive"
	"github.com/isobar-xds/isobar/internal/plan"
)

// BenchmarkAppend is the work for one change: of one service, of 1,000, and of 10,000 with
// 30 localities each, in which a third of the client localities moved. Few fleets change
// so much at once.
func BenchmarkAppend(b *testing.B) {
	for _, services := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			a, err := archive.Open(b.TempDir(), archive.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = a.Close() }()
			c := largeChange(services)
			first := a.Bytes()
			n := int64(0)
			for b.Loop() {
				c.Version++
				if err := a.Append(&c); err != nil {
					b.Fatal(err)
				}
				if n++; n == 1 {
					first = a.Bytes()
				}
			}
			b.ReportMetric(float64(first), "bytes/change")
		})
	}
}

func largeChange(services int) plan.Change {
	c := plan.Change{Made: time.Unix(0, 0), Trigger: plan.TriggerTick}
	var sites []isobar.Locality
	for l := range 30 {
		sites = append(sites, isobar.MustLocality(fmt.Sprintf("r%d/%c", l/3, 'a'+l%3)))
	}
	for i := range services {
		s := plan.ServiceChange{Service: fmt.Sprintf("service-%05d", i), Reason: "to the solver's target", Sites: sites}
		for l := i % 3; l < 30; l += 3 {
			d := plan.SourceChange{Source: sites[l], Before: make([]uint16, 30), After: make([]uint16, 30)}
			d.Before[l], d.After[l], d.After[(l+1)%30] = 10_000, uint16(9000+i%1000), uint16(1000-i%1000)
			s.Sources = append(s.Sources, d)
		}
		c.Services = append(c.Services, s)
	}
	return c
}
