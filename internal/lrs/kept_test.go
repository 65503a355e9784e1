//go:build !race

package lrs_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs"
)

// keeping is a server whose reports a load table keeps, with clients of an honest address.
type keeping struct {
	*harness

	table   *load.Table
	address string // of the clients that come next
	honest  []*client
}

// turn reports for the honest clients, waits for an interval, and lets the table have all reports.
func (k *keeping) turn() *load.Snapshot {
	for _, c := range k.honest {
		c.report(stats("a", 1000, lrs.DefaultInterval))
	}
	pass(lrs.DefaultInterval)
	synctest.Wait()
	k.table.Merge(k.srv.Collect(time.Now()))
	k.srv.Release()
	return k.table.Snapshot(time.Now())
}

// join lets honest clients come from an address.
func (k *keeping) join(address string, n int) {
	k.address = address
	for range n {
		c, _ := k.greet(node("envoy"))
		k.honest = append(k.honest, c)
	}
}

// tableBytes returns how much memory the table takes, which it loses.
func (k *keeping) tableBytes() int {
	live := func() int {
		var m runtime.MemStats
		runtime.GC() // pools keep memory
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	with := live()
	runtime.KeepAlive(k.table)
	k.table = nil
	return with - live()
}

// invented is a name of a locality that no other report has.
func invented(number, i int) *corev3.Locality {
	return &corev3.Locality{Region: fmt.Sprintf("%0200d", number), Zone: fmt.Sprintf("%0200d", i), SubZone: fmt.Sprintf("%0200d", i)}
}

// inLocalities is a report on a service in so many invented localities.
func inLocalities(number, n int, edit func(l *endpointv3.UpstreamLocalityStats, i int)) *endpointv3.ClusterStats {
	c := &endpointv3.ClusterStats{ClusterName: "a", LoadReportInterval: durationpb.New(lrs.DefaultInterval)}
	for i := range n {
		l := &endpointv3.UpstreamLocalityStats{Locality: invented(number, i), TotalIssuedRequests: 10, TotalErrorRequests: 10}
		edit(l, i)
		c.UpstreamLocalityStats = append(c.UpstreamLocalityStats, l)
	}
	return c
}

func plain(*endpointv3.UpstreamLocalityStats, int) { /* a locality and its counters */ }

// TestKeptLoadIsBounded asserts that the load which a hostile client makes a table keep takes no more than its
// address's part of the memory, whatever it reports and however it comes and goes, and that other clients count
// as before: those with a history, and new ones.
func TestKeptLoadIsBounded(t *testing.T) {
	const memory, part, turns = 8 << 20, 1 << 20, 12
	for name, attack := range map[string]func(k *keeping, turn int){
		"localities": func(k *keeping, turn int) {
			for i := range 4 {
				k.greet(node("envoy"), inLocalities(4*turn+i, 1000, plain))
			}
		},
		"new localities in each report": attackAgain(40, func(turn, i int) []*endpointv3.ClusterStats {
			return []*endpointv3.ClusterStats{inLocalities(40*turn+i, 50, plain)}
		}),
		"metrics": attackAgain(4, func(turn, i int) []*endpointv3.ClusterStats {
			return []*endpointv3.ClusterStats{inLocalities(0, 20, func(l *endpointv3.UpstreamLocalityStats, at int) {
				for n := range 50 {
					l.LoadMetricStats = append(l.LoadMetricStats, &endpointv3.EndpointLoadMetricStats{
						MetricName: fmt.Sprintf("%0900d", 1000*(100*turn+10*i)+50*at+n), NumRequestsFinishedWithMetric: 1, TotalMetricValue: 1,
					})
				}
			})}
		}),
		"endpoints": attackAgain(40, func(turn, i int) []*endpointv3.ClusterStats {
			return []*endpointv3.ClusterStats{inLocalities(0, 1, func(l *endpointv3.UpstreamLocalityStats, _ int) {
				for n := range 500 {
					l.UpstreamEndpointStats = append(l.UpstreamEndpointStats, &endpointv3.UpstreamEndpointStats{
						Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
							Address: fmt.Sprintf("%0200d", 500*(40*turn+i)+n), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 1},
						}}},
						TotalIssuedRequests: 1,
					})
				}
			})}
		}),
		"client localities": func(k *keeping, turn int) {
			for i := range 300 {
				n := node("envoy")
				n.Locality = invented(turn, i)
				var all []*endpointv3.ClusterStats
				for s := range 20 {
					all = append(all, stats(fmt.Sprint("s", s), 1e8, time.Second))
				}
				c, _ := k.greet(n, all...)
				synctest.Wait()
				c.cancel()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			keepLoad(t, memory, func(k *keeping) {
				before := demandFromA(k.turn())
				for turn := range turns {
					k.address = "192.0.2.66"
					attack(k, turn)
					k.turn()
				}
				m := k.table.Memory()
				if m.MostOfOne != part || m.Fullest > part*5/4 || // streams count, and others limit them
					m.Fullest < part/2 || m.Refused == 0 {
					t.Errorf("%+v: want an address that uses up to %d bytes", m, part)
				}
				if now := demandFromA(k.turn()); now < 0.9*before {
					t.Errorf("demand of the honest zone is %.0f requests/s, and was %.0f", now, before)
				}
				k.join("192.0.2.2", 3)
				k.turn()
				clients := k.turn().Service("a").Source(isobar.MustLocality("us-east/a")).Nodes
				if clients < len(k.honest) {
					t.Errorf("%d clients count, want all %d honest ones", clients, len(k.honest))
				}
				if took := k.tableBytes(); took > 3*part {
					t.Errorf("the table takes %d KiB, want hardly more than the %d KiB of an address", took>>10, part>>10)
				}
			})
		})
	}
}

// attackAgain is an attack by so many streams that stay, each with another report in each turn.
func attackAgain(n int, reports func(turn, i int) []*endpointv3.ClusterStats) func(k *keeping, turn int) {
	var streams []*client
	return func(k *keeping, turn int) {
		for i := range n {
			if turn == 0 {
				c, _ := k.greet(node("envoy"))
				streams = append(streams, c)
			}
			streams[i].report(reports(turn, i)...)
		}
	}
}

// keepLoad runs a test with a table of so many bytes, and three honest clients that are known to it.
func keepLoad(t *testing.T, memory int, test func(k *keeping)) {
	t.Helper()
	k := &keeping{}
	services := []string{"a"}
	for i := range 20 {
		services = append(services, fmt.Sprint("s", i))
	}
	opts := lrs.Options{
		Services: names(services...), EndpointGranularity: true,
		Account: func(context.Context) (string, bool) { return k.address, false },
	}
	inBubble(t, opts, func(h *harness) {
		k.harness, k.table = h, load.NewTable(load.Settings{Memory: memory}, nil, time.Now())
		k.join("192.0.2.1", 3)
		for range 15 {
			k.turn()
		}
		test(k)
	})
}

func demandFromA(s *load.Snapshot) float64 {
	if src := s.Service("a").Source(isobar.MustLocality("us-east/a")); src != nil {
		return src.Demand
	}
	return 0
}

// TestKeptLoadOfManyAddresses asserts that many hostile addresses together take no more than the memory for
// all, and leave a new honest client of another address its part.
func TestKeptLoadOfManyAddresses(t *testing.T) {
	const memory = 4 << 20
	keepLoad(t, memory, func(k *keeping) {
		for turn := range 3 {
			for i := range 40 {
				k.address = fmt.Sprint("192.0.2.", 100+i)
				k.greet(node("envoy"), inLocalities(40*turn+i, 400, plain))
			}
			k.turn()
		}
		if m := k.table.Memory(); m.Used > memory*5/4 || m.Used < memory/2 || m.Refused == 0 {
			t.Errorf("%+v: want up to %d bytes", m, memory)
		}
		k.join("192.0.2.2", 1)
		k.turn()
		if got := k.turn().Service("a").Source(isobar.MustLocality("us-east/a")); got == nil || got.Nodes < len(k.honest) {
			t.Errorf("%+v: want all %d honest clients", got, len(k.honest))
		}
		if took := k.tableBytes(); took > 2*memory {
			t.Errorf("the table takes %d KiB, want hardly more than %d", took>>10, memory>>10)
		}
	})
}
