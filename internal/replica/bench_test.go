package replica

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// BenchmarkParts cuts a plan of 1,000 services into parts, whose configuration has 8 KiB each and whose
// decisions have 3 KiB: after a tick, all of these differ in a few numbers from those of the plan before,
// and after a change of one service, those of one.
func BenchmarkParts(b *testing.B) {
	plan := func(turn, changed int) []byte {
		c := &peerv1.PlanContent{Format: 1, Header: fmt.Appendf(nil, `{"version": %d}`, turn)}
		for i := range 1000 {
			own := 0
			if i < changed {
				own = turn * i
			}
			c.Services = append(c.Services, &peerv1.ServiceContent{
				Name:          fmt.Sprintf("service-%d", i),
				Configuration: []byte(strings.Repeat(fmt.Sprintf(`{"endpoint":"10.0.%d.1:80"}`, i), 300)),
				Decision:      []byte(strings.Repeat(fmt.Sprintf(`{"shares":[%d,0.25]}`, i), 150) + fmt.Sprint(own)),
			})
		}
		data, err := proto.Marshal(c)
		if err != nil {
			b.Fatal(err)
		}
		return data
	}
	for _, c := range []struct {
		name    string
		changed int
	}{{"tick", 1000}, {"service", 2}} {
		b.Run(c.name, func(b *testing.B) {
			base, next := planOf(1, plan(1, c.changed)), planOf(2, plan(2, c.changed))
			b.SetBytes(int64(next.Content.Size()))
			b.ReportAllocs()
			for b.Loop() {
				if got := parts(next, base, protocol); len(got) == 0 {
					b.Fatal("no parts")
				}
			}
		})
	}
}
