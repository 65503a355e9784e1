package replica

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// BenchmarkParts cuts a plan of 1,000 services, whose configuration has 8 KiB each and whose
// decisions, of 3 KiB, differ in a few numbers from those of the plan before.
func BenchmarkParts(b *testing.B) {
	plan := func(turn int) []byte {
		c := &peerv1.PlanContent{Format: 1, Header: []byte(`{"version": 1}`)}
		for i := range 1000 {
			c.Services = append(c.Services, &peerv1.ServiceContent{
				Name:          fmt.Sprintf("service-%d", i),
				Configuration: []byte(strings.Repeat(fmt.Sprintf(`{"endpoint":"10.0.%d.1:80"}`, i), 300)),
				Decision:      []byte(strings.Repeat(fmt.Sprintf(`{"shares":[%d,0.25]}`, i), 150) + fmt.Sprint(turn*i)),
			})
		}
		data, err := proto.Marshal(c)
		if err != nil {
			b.Fatal(err)
		}
		return data
	}
	base, next := planOf(1, plan(1)), planOf(2, plan(2))
	b.SetBytes(int64(len(next.Content)))
	b.ReportAllocs()
	for b.Loop() {
		if got := parts(next, base, differences); len(got) == 0 {
			b.Fatal("no parts")
		}
	}
}
