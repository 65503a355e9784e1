package load_test

import (
	"fmt"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// crowding is a table that clients fill. Each turn is a report interval.
type crowding struct {
	*testing.T

	tab  *load.Table
	step int
}

// report lets clients of an address with the given ids report on services.
func (c *crowding) report(address string, certified bool, first, n int, services ...load.ServiceReport) {
	var windows []load.StreamWindow
	for i := range n {
		w := newClient(load.StreamID(first+i), load.AgentEnvoy).window(report(at(float64(c.step)), services...))
		w.Account, w.Identified = address, certified
		windows = append(windows, w)
	}
	c.tab.Merge(windows)
}

// next ends a turn, and returns how many clients count in the service of those that matter.
func (c *crowding) next() int {
	s := c.tab.Snapshot(at(float64(c.step))).Service("checkout")
	c.step++
	if s == nil {
		return 0
	}
	return s.Sources[0].Nodes
}

// TestMemoryOfHonestFleet asserts that nothing is refused of the largest documented fleet behind one address, with a
// tenth of the clients and of the memory: each reports on 10 of 100 services in 10 localities, with two
// metrics, and all of them reconnect.
func TestMemoryOfHonestFleet(t *testing.T) {
	const clients, memory = 500, load.DefaultMemory / 10
	tab := load.NewTable(load.Settings{Interval: interval, Memory: memory}, nil, start)
	metrics := &load.LocalityDetails{Metrics: []load.MetricSum{{Name: load.MetricCPU, Requests: 1, Total: 1}, {Name: load.MetricMemory, Requests: 1, Total: 1}}}
	for turn := range 4 {
		now := at(float64(turn + 1))
		var windows []load.StreamWindow
		for i := range clients {
			c := newClient(load.StreamID(i+1+turn/2*clients), load.AgentEnvoy)
			c.node.ID, c.node.Locality = fmt.Sprintf("sidecar-of-payments-%04d", i), isobar.Locality{Region: "us-east-1", Zone: fmt.Sprintf("us-east-1-%d", i%10)}
			c.open = at(float64(turn/2*2) + 0.5)
			var services []load.ServiceReport
			for s := range 10 {
				services = append(services, inZones(fmt.Sprintf("service-%03d", (7*i+11*s)%100), "us-east-1-", 10, func(l *load.LocalityReport, _ int) {
					l.Locality.Region, l.Details = "us-east-1", metrics
				}))
			}
			w := c.window(report(now, services...))
			w.Account = "192.0.2.1"
			windows = append(windows, w)
			if turn == 2 {
				old := newClient(load.StreamID(i+1), load.AgentEnvoy)
				old.node = c.node
				gone := old.window()
				gone.Account, gone.Closed = w.Account, at(2.2)
				windows = append(windows, gone)
			}
		}
		tab.Merge(windows)
		tab.Snapshot(now)
		if m := tab.Memory(); m.Refused > 0 || m.Fullest != m.Used {
			t.Fatalf("turn %d: %+v, want nothing refused", turn, m)
		}
	}
	if m := tab.Memory(); m.Used < m.MostOfOne*2/3 {
		t.Errorf("%+v: the fleet is too small to show something", m)
	}
}

// TestAddressesOneAfterAnother asserts that addresses which fill what they may use, one after the other, leave enough
// for a new client of another address and for clients with certificates.
func TestAddressesOneAfterAnother(t *testing.T) {
	const memory, hostile, small = 4 << 20, 24, 12
	c := &crowding{T: t, tab: load.NewTable(load.Settings{Interval: interval, Memory: memory}, nil, start)}
	for i := range hostile {
		c.report(fmt.Sprint("192.0.2.", i), false, 1000*(i+1), 20, inZones("other", "z", 200, unchanged))
	}
	for i := range small { // these also use what is too little for a large window
		c.report(fmt.Sprint("203.0.113.", i), false, 1000*(hostile+i+1), 20, inZones("other", "z", 3, unchanged))
	}
	if m := c.tab.Memory(); m.Used < memory*3/4 || m.Used > memory*15/16 || m.Refused == 0 {
		t.Errorf("%+v: want less than seven eighths, and the modest part of each", m)
	}
	c.report("198.51.100.1", false, 1, 8, inZones("checkout", "z", 3, unchanged))
	c.report("fleet", true, 100, 200, inZones("checkout", "z", 3, unchanged))
	if n := c.next(); n != 208 {
		t.Errorf("%d of 8 clients of a new address and 200 with a certificate count", n)
	}
}

// TestGrowthWithoutMemory asserts that a known client counts as long as it reports, and with all its requests, where
// there is no memory for the localities that it begins to send to: it is known in those with most requests.
func TestGrowthWithoutMemory(t *testing.T) {
	c := &crowding{T: t, tab: load.NewTable(load.Settings{Interval: interval, Memory: 64 << 10}, nil, start)}
	c.report("192.0.2.1", false, 1, 1, inZones("checkout", "z", 2, unchanged))
	c.next()
	c.report("192.0.2.1", false, 100, 100, inZones("other", "z", 2, unchanged))
	c.next()
	for range 30 {
		refused := c.tab.Memory().Refused
		grown := inZones("checkout", "z", 100, func(l *load.LocalityReport, i int) { l.Issued = uint64(10 * (i + 1)); l.Succeeded = l.Issued })
		c.report("192.0.2.1", false, 1, 1, grown)
		if c.tab.Memory().Refused == refused {
			t.Fatal("there is memory for it")
		}
		c.next()
	}
	s := c.tab.Snapshot(at(float64(c.step - 1))).Service("checkout")
	if s.Sources[0].Nodes != 1 {
		t.Fatalf("%d clients count, want the one", s.Sources[0].Nodes)
	}
	want := 10. * 100 * 101 / 2 / interval.Seconds()
	if got := s.Sources[0].Raw; got < 0.99*want || got > 1.01*want {
		t.Errorf("%.0f requests/s count, want %.0f", got, want)
	}
	landed := s.Sources[0].Landed
	if len(landed) == 0 || len(landed) > 10 || landed[len(landed)-1].Locality.Zone != "z99" {
		t.Errorf("it lands in %v, want the localities with most requests", landed)
	}
}

// TestMemoryReturns asserts that what a client reported does not count against its address when its reports are
// small again.
func TestMemoryReturns(t *testing.T) {
	c := &crowding{T: t, tab: load.NewTable(load.Settings{Interval: interval, Memory: 64 << 20}, nil, start)}
	c.report("192.0.2.1", false, 1, 10, inZones("checkout", "z", 3, unchanged))
	before := c.tab.Memory()
	c.next()
	c.report("192.0.2.1", false, 1, 10, inZones("checkout", "z", 900, unchanged))
	if m := c.tab.Memory(); m.Used < 10*before.Used || m.Fullest != m.Used {
		t.Errorf("%+v with many localities, and %+v before", m, before)
	}
	c.next()
	c.report("192.0.2.1", false, 1, 10, inZones("checkout", "z", 3, unchanged))
	if m := c.tab.Memory(); m != before {
		t.Errorf("%+v, want %+v again", m, before)
	}
	c.next()
	var closed []load.StreamWindow
	for i := range 10 {
		w := newClient(load.StreamID(1+i), load.AgentEnvoy).window()
		w.Closed = at(float64(c.step))
		closed = append(closed, w)
	}
	c.tab.Merge(closed)
	for range 60 {
		c.next()
	}
	c.tab.Merge(nil)
	if m := c.tab.Memory(); m.Used != 0 || m.Fullest != 0 {
		t.Errorf("%+v when the clients have gone long ago", m)
	}
}

// TestObservedLocalitiesAreBounded asserts that a snapshot looks at no more localities than count, however many the
// clients of a source name: each takes a place among those sorted, and a decision took minutes.
func TestObservedLocalitiesAreBounded(t *testing.T) {
	c := &crowding{T: t, tab: load.NewTable(load.Settings{Interval: interval, Memory: 64 << 20}, nil, start)}
	for i := range 12 {
		c.report(fmt.Sprint("192.0.2.", i), false, 1+i, 1, inZones("checkout", fmt.Sprint("invented-", i, "-"), 900, unchanged))
	}
	if n := c.next(); n != 12 {
		t.Fatalf("%d clients count", n)
	}
	if allocated, most := c.tab.Viewed(); allocated < most || allocated > 2*most {
		t.Errorf("there is memory to observe %d localities, want that for %d", allocated, most)
	}
}
