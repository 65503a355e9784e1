package load_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// told is what one client tells of one locality in one window, in requests.
type told struct {
	issued, succeeded, errors, inProgress uint64
}

// teller is a client that sends to zoneB, and to zoneA where far is set.
type teller struct {
	client

	near, far told
}

func newTeller(id int, source isobar.Locality) teller {
	c := newClient(load.StreamID(id), load.AgentEnvoy)
	c.node.ID, c.node.Locality = fmt.Sprintf("node-%02d", id), source
	return teller{client: c}
}

func (c *teller) report(k int) load.StreamWindow {
	r := load.ServiceReport{Service: "checkout", Interval: interval}
	for i, x := range [...]told{c.near, c.far} {
		if x == (told{}) {
			continue
		}
		l := [...]*isobar.Locality{&zoneB, &zoneA}[i]
		r.Localities = append(r.Localities, load.LocalityReport{
			Locality: l, Issued: x.issued, HasIssued: true, Succeeded: x.succeeded, Errors: x.errors, InProgress: uint32(x.inProgress),
		})
	}
	return c.window(report(at(float64(k)), r))
}

// steadily is a client's window at a rate, requests/s, with so many in progress.
func steadily(rate, inProgress uint64) told {
	n := rate * uint64(interval.Seconds())
	return told{issued: n, succeeded: n, inProgress: inProgress}
}

// play lets clients report for some windows, and returns the load after the last.
func play(tab *load.Table, clients []teller, from, windows int) *load.ServiceLoad {
	for k := from; k < from+windows; k++ {
		list := make([]load.StreamWindow, 0, len(clients))
		for i := range clients {
			list = append(list, clients[i].report(k))
		}
		tab.Merge(list)
		out := tab.Snapshot(at(float64(k))).Service("checkout")
		if k == from+windows-1 {
			return out
		}
	}
	return nil
}

func observed(t *testing.T, s *load.ServiceLoad, l isobar.Locality) load.Observation {
	t.Helper()
	o := s.Observation(l)
	if o == nil {
		t.Fatalf("nothing is observed of %s", l)
	}
	return *o
}

func TestRequestsInProgressAddUpOverClients(t *testing.T) {
	var clients []teller
	for i := range 4 {
		c := newTeller(i+1, zoneA)
		c.near = told{issued: 500, succeeded: 440, errors: 20, inProgress: 30}
		clients = append(clients, c)
	}
	o := observed(t, play(table(), clients, 1, 3), zoneB)
	near(t, "rate", o.Rate, 400, 1e-9)
	near(t, "goodput", o.Goodput, 352, 1e-9)
	near(t, "errors", o.Errors, 16, 1e-9)
	near(t, "abandoned", o.Abandoned, 32, 1e-9) // the gauge stands still, so what neither succeeded nor failed was given up
	near(t, "part that fails", o.Failing(), 48.0/400, 1e-9)
	near(t, "rate of the clients that tell", o.Sampled, 400, 1e-9)
	near(t, "in progress", o.InProgress, 120, 1e-9)
	near(t, "on the network", o.Network, 0.4, 1e-9) // 400/s times the 1 ms between zones of a region
	near(t, "at the server", o.AtServer(), 119.6, 1e-9)
}

// What is in the table already is no second sample.
func TestWindowIsSampledOnce(t *testing.T) {
	tab, c := table(), newTeller(1, zoneA)
	c.near = steadily(100, 7)
	play(tab, []teller{c}, 1, 2)
	again := observed(t, tab.Snapshot(at(2)).Service("checkout"), zoneB)
	near(t, "sampled at the same time", again.Sampled, 100, 1e-9)
	later := observed(t, tab.Snapshot(at(2.5)).Service("checkout"), zoneB)
	near(t, "sampled half an interval later", later.Sampled, 0, 1e-9)
	near(t, "rate half an interval later", later.Rate, 100, 1e-9)
}

// Across a distance that nobody configured nothing distinguishes requests in transit
// from those at the server.
func TestUnknownDistanceIsNoSample(t *testing.T) {
	tab, c := table(), newTeller(1, isobar.Locality{Region: "eu", Zone: "a"})
	c.near = steadily(100, 12)
	o := observed(t, play(tab, []teller{c}, 1, 2), zoneB)
	near(t, "sampled over an assumed distance", o.Sampled, 0, 1e-9)
	near(t, "rate", o.Rate, 100, 1e-9)
	network, err := isobar.NewNetwork([]isobar.LatencyRule{{From: c.node.Locality, To: zoneB, MS: 80}})
	if err != nil {
		t.Fatal(err)
	}
	tab.SetTopology(&isobar.Topology{Network: network})
	o = observed(t, play(tab, []teller{c}, 3, 1), zoneB)
	near(t, "sampled over a known distance", o.Sampled, 100, 1e-9)
	near(t, "at the server", o.AtServer(), 4, 1e-9)
}

func TestMuteClientIsLeftOutAndNamed(t *testing.T) {
	var clients []teller
	for i := range 4 {
		c := newTeller(i+1, zoneA)
		c.near = steadily(100, 5)
		clients = append(clients, c)
	}
	clients[2].near.inProgress = 0
	s := play(table(), clients, 1, 5)
	o := observed(t, s, zoneB)
	near(t, "rate with the mute client", o.Rate, 400, 1e-9)
	near(t, "rate of the clients that tell", o.Sampled, 300, 1e-9)
	near(t, "in progress", o.InProgress, 15, 1e-9)
	want := []load.LeftOut{{Source: zoneA, Node: "node-03", Reason: load.LeftOutMute}}
	if !slices.Equal(s.LeftOut, want) {
		t.Errorf("left out: %v, want %v", s.LeftOut, want)
	}
}

// Where no client tells of requests in progress, that is no proof of fast servers.
func TestFleetThatIsMuteTellsNothing(t *testing.T) {
	var clients []teller
	for i := range 4 {
		c := newTeller(i+1, zoneA)
		c.near = steadily(100, 0)
		clients = append(clients, c)
	}
	near(t, "sampled", observed(t, play(table(), clients, 1, 5), zoneB).Sampled, 0, 1e-9)
}

// Of 12 clients one lies about its load or its requests in progress: no locality
// looks more than 2/12 fuller, emptier, slower or faster than it is.
func TestLiarMovesObservationsLittle(t *testing.T) {
	random := []uint64{3, 0, 117, 1, 4000, 12, 0, 55, 900, 2, 31, 7}
	for _, lie := range []string{"0", "10", "1000", "random"} {
		for _, what := range []string{"load", "in progress", "both"} {
			t.Run(what+" times "+lie, func(t *testing.T) {
				tab := table()
				for k := 1; k <= 20; k++ {
					var clients []teller
					for i := range 12 {
						c := newTeller(i+1, [...]isobar.Locality{zoneA, zoneB, {Region: zoneA.Region, Zone: "c"}}[i%3])
						factor := uint64(1)
						if i == 4 {
							factor = map[string]uint64{"0": 0, "10": 10, "1000": 1000, "random": random[k%len(random)]}[lie]
						}
						rate, inProgress := uint64(100), uint64(10)
						if what != "in progress" {
							rate *= factor
						}
						if what != "load" {
							inProgress *= factor
						}
						c.near = steadily(rate, inProgress)
						clients = append(clients, c)
					}
					o := observed(t, play(tab, clients, k, 1), zoneB)
					if k < 3 {
						continue
					}
					per := o.InProgress / o.Sampled
					near(t, fmt.Sprintf("in progress per request/s in window %d", k), per/0.1, 1, 2.0/12)
					if what == "load" {
						near(t, fmt.Sprintf("rate in window %d", k), o.Rate/1200, 1, 2.0/12)
					}
				}
			})
		}
	}
}

// One of 12 clients claims many times the load that its requests in progress explain: it
// counts for twice that. A gateway that sends as much has them, and counts in full; so do
// clients of which next to none are in progress.
func TestRequestsInProgressVouchForLoad(t *testing.T) {
	for name, x := range map[string]struct {
		rate, inProgress, others, most, least float64
		misled                                int
	}{
		"a liar":               {1000, 10, 10, 1300, 1100, 1},
		"a liar, 100 times":    {10000, 10, 10, 1300, 1100, 1},
		"a gateway":            {1000, 100, 10, 2100, 2099, 0},
		"cheap requests":       {1000, 20, 10, 1500, 1499, 1},
		"nothing is in flight": {1000, 0, 0, 2100, 2099, 0},
	} {
		tab := table()
		misled := 0
		for k := 1; k <= 20; k++ {
			var clients []teller
			for i := range 12 {
				c := newTeller(i+1, zoneA)
				c.near = steadily(100, uint64(x.others))
				if i == 4 {
					c.near = steadily(uint64(x.rate), uint64(x.inProgress))
				}
				clients = append(clients, c)
			}
			s := play(tab, clients, k, 1)
			if s.Misled > 0.2 {
				misled++
			}
			if k < 18 { // what counted before leaves the mean slowly
				continue
			}
			demand := 0.0
			for i := range s.Sources {
				demand += s.Sources[i].Demand
			}
			if demand > x.most || demand < x.least {
				t.Errorf("%s: demand of %.0f in window %d, want %.0f to %.0f", name, demand, k, x.least, x.most)
			}
		}
		if misled != x.misled {
			t.Errorf("%s: misled %d times, want %d", name, misled, x.misled)
		}
	}
}

// One of 12 clients of which hardly any requests are in progress claims ten times their
// load: the last windows say nothing, and within 80 it counts for twice what others do. A
// gateway that sends as much counts in full.
func TestFewRequestsInProgressVouchInTime(t *testing.T) {
	for name, x := range map[string]struct {
		every       int // windows from one request in progress to the next
		most, least float64
	}{
		"a liar":    {10, 1320, 1100},
		"a gateway": {1, 2100, 2099},
	} {
		tab := table()
		for k := 1; k <= 84; k++ {
			var clients []teller
			for i := range 12 {
				c := newTeller(i+1, zoneA)
				rate, every := uint64(100), 10
				if i == 4 {
					rate, every = 1000, x.every
				}
				inProgress := uint64(0)
				if (k+i)%every == 0 {
					inProgress = 1
				}
				c.near = steadily(rate, inProgress)
				clients = append(clients, c)
			}
			s := play(tab, clients, k, 1)
			demand := 0.0
			for i := range s.Sources {
				demand += s.Sources[i].Demand
			}
			if k >= 80 && (demand > x.most || demand < x.least) {
				t.Errorf("%s: demand of %.0f in window %d, want %.0f to %.0f", name, demand, k, x.least, x.most)
			}
		}
	}
}

// The dumb twin keeps everything that was ever told and works it out again.
func TestObservationsMatchTheDumbTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sources := []isobar.Locality{zoneA, zoneB, {Region: zoneA.Region, Zone: "c"}}
		n := rapid.IntRange(1, 12).Draw(t, "clients")
		windows := rapid.OneOf(rapid.IntRange(1, 12), rapid.IntRange(60, 90)).Draw(t, "windows")
		tab := table()
		history := make([][2][]told, n)
		var s *load.ServiceLoad
		for k := 1; k <= windows; k++ {
			clients := make([]teller, n)
			for i := range clients {
				clients[i] = newTeller(i+1, sources[i%3])
				for site, to := range []*told{&clients[i].near, &clients[i].far} {
					rate := rapid.Uint64Range(0, 50).Draw(t, "rate")
					*to = steadily(rate, rapid.SampledFrom([]uint64{0, rate / 10, rate / 10, rate / 5, 40 * rate}).Draw(t, "in progress"))
					history[i][site] = append(history[i][site], *to)
				}
			}
			s = play(tab, clients, k, 1)
		}
		want := twinOf(history, sources)
		for site, l := range []isobar.Locality{zoneB, zoneA} {
			var got load.Observation
			if s != nil {
				if o := s.Observation(l); o != nil {
					got = *o
				}
			}
			for _, x := range []struct {
				what      string
				got, want float64
			}{
				{"rate", got.Rate, want[site].Rate},
				{"sampled", got.Sampled, want[site].Sampled},
				{"in progress", got.InProgress, want[site].InProgress},
				{"network", got.Network, want[site].Network},
				{"clipped", got.Clipped, want[site].Clipped},
			} {
				if math.Abs(x.got-x.want) > 1e-6*(1+x.want) {
					t.Fatalf("%s of %s: %v, want %v", x.what, l, x.got, x.want)
				}
			}
		}
	})
}

// twinOf works out zoneB and zoneA from each client's windows, the oldest first.
func twinOf(history [][2][]told, sources []isobar.Locality) (out [2]load.Observation) {
	n := len(history)
	left, weight, everyone := twinsLeftOut(history, len(sources), 16)
	longLeft, longWeight, _ := twinsLeftOut(history, len(sources), 120)
	for i := range n {
		if e := max(left[i].expected, left[i].held); left[i].reason == "" && e*2/3 <= 4*math.Sqrt(e)+8 {
			left[i], weight[i] = longLeft[i], longWeight[i]
		}
	}
	for i := range n { // at least what two of those count for that agree
		newest := func(j int) float64 {
			last := len(history[j][0]) - 1
			return float64(history[j][0][last].issued+history[j][1][last].issued) / interval.Seconds()
		}
		sum, agree := 0.0, 0.0
		for j := range n {
			if j%len(sources) == i%len(sources) && left[j].reason != "disagrees" && newest(j) > 0 {
				sum, agree = sum+newest(j), agree+1
			}
		}
		switch {
		case left[i].reason != "disagrees" || newest(i) == 0:
			weight[i] = 1
		default:
			weight[i] = min(1, max(weight[i], 2*sum/max(1, agree)/newest(i)))
		}
	}
	for site := range out {
		o := &out[site]
		for i := range n {
			newest := history[i][site][len(history[i][site])-1]
			r := float64(newest.issued) / interval.Seconds()
			var othersRate, othersHeld, allRate, clients float64
			for j := range n {
				if j == i || j%len(sources) != i%len(sources) {
					continue
				}
				x := history[j][site][len(history[j][site])-1]
				if x == (told{}) {
					continue
				}
				clients++
				allRate += weight[j] * float64(x.issued) / interval.Seconds()
				if left[j].reason == "" {
					othersRate += float64(x.issued) / interval.Seconds()
					othersHeld += float64(x.inProgress)
				}
			}
			if left[i].reason == "disagrees" && clients > 0 {
				o.Rate += min(weight[i]*r, 2*allRate/clients)
			} else {
				o.Rate += weight[i] * r
			}
			if left[i].reason != "" || everyone <= 0 {
				continue
			}
			counted := float64(newest.inProgress)
			if othersRate > 0 {
				m := r * othersHeld / othersRate
				counted = min(counted, 2*m+3*math.Sqrt(m)+1)
			}
			o.Sampled += r
			o.InProgress += counted
			o.Clipped += float64(newest.inProgress) - counted
			if source := sources[i%len(sources)]; source != [...]isobar.Locality{zoneB, zoneA}[site] {
				o.Network += r / 1000
			}
		}
	}
	return out
}

// twinVerdict is what the twin makes of one client's requests in progress.
type twinVerdict struct {
	expected, held float64
	reason         string
}

// twinsLeftOut compares each client with the others over its windows, which count less the
// older they are.
func twinsLeftOut(history [][2][]told, sources int, memory float64) (left []twinVerdict, weight []float64, everyone float64) {
	n := len(history)
	held, rate := make([]float64, n), make([]float64, n)
	for i, sites := range history {
		for k := range sites[0] {
			keep := math.Pow(1-1/memory, float64(len(sites[0])-1-k))
			for site := range sites {
				held[i] += keep * float64(sites[site][k].inProgress)
				rate[i] += keep * float64(sites[site][k].issued) / interval.Seconds()
			}
		}
	}
	middle := func(keep func(i int) bool) float64 {
		var all []float64
		for i := range n {
			if rate[i] > 0 && keep(i) {
				all = append(all, held[i]/rate[i])
			}
		}
		if len(all) == 0 {
			return 0
		}
		slices.Sort(all)
		return all[(len(all)-1)/2]
	}
	of := func(source int) (count, shown int) {
		for i := range n {
			if i%sources == source && rate[i] > 0 {
				count++
				if held[i] >= 4 {
					shown++
				}
			}
		}
		return count, shown
	}
	everyone = middle(func(i int) bool { return held[i] > 0 })
	left, weight = make([]twinVerdict, n), make([]float64, n)
	for i := range n {
		own := 0.0
		if count, shown := of(i % sources); count >= 3 && 2*shown > count {
			own = middle(func(j int) bool { return j%sources == i%sources })
		}
		expected := own * rate[i]
		if own <= 0 {
			expected = everyone * rate[i]
		}
		left[i] = twinVerdict{expected: expected, held: held[i]}
		switch {
		case held[i] == 0 && expected >= 8:
			left[i].reason = "mute"
		case own > 0 && expected >= 1 && (held[i] > 3*expected || expected > 3*held[i]) && math.Abs(held[i]-expected) > 4*math.Sqrt(expected)+8:
			left[i].reason = "disagrees"
			weight[i] = 2 * held[i] / expected
		}
	}
	return left, weight, everyone
}
