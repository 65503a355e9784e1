//go:build !race

package load_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// gathering is a fleet whose clients report each interval what they like.
type gathering struct {
	tab     *load.Table
	k       int // intervals so far
	members []*member
}

// member is one client of a gathering.
type member struct {
	client

	account    string
	identified bool
	service    string              // "" = checkout
	from       int                 // interval in which it comes
	until      int                 // interval in which it leaves; 0 = never
	rate       func(k int) float64 // requests/s, by intervals since it came
	errors     func(k int) float64 // of them that fail
}

func always(rate float64) func(int) float64 { return func(int) float64 { return rate } }

// join adds a client of a locality.
func (c *gathering) join(at isobar.Locality, account string, rate func(k int) float64) *member {
	m := &member{account: account, identified: strings.HasPrefix(account, "identity "), from: c.k, rate: rate}
	m.client = newClient(load.StreamID(len(c.members)+1), load.AgentEnvoy)
	m.node.ID, m.node.Locality = fmt.Sprint("node-", len(c.members)), at
	m.open = moment(c.k)
	c.members = append(c.members, m)
	return m
}

// moment is the time after some intervals.
func moment(k int) time.Time { return at(float64(k)) }

// run lets intervals pass and returns the load at the end.
func (c *gathering) run(intervals int) *load.ServiceLoad {
	var out *load.ServiceLoad
	for range intervals {
		c.k++
		var windows []load.StreamWindow
		for _, m := range c.members {
			switch {
			case c.k <= m.from:
				continue
			case m.until != 0 && c.k > m.until:
				continue
			case m.until == c.k:
				windows = append(windows, m.closed(moment(c.k)))
				continue
			}
			rate := m.rate(c.k - m.from)
			r := sent(interval, uint64(rate*interval.Seconds()+0.5))
			r.Service = cmp.Or(m.service, r.Service)
			if m.errors != nil {
				l := &r.Localities[0]
				l.Errors = min(l.Issued, uint64(m.errors(c.k-m.from)*interval.Seconds()+0.5))
				l.Succeeded = l.Issued - l.Errors
			}
			w := m.window(report(moment(c.k), r))
			w.Account, w.Identified = m.account, m.identified
			windows = append(windows, w)
		}
		c.tab.Merge(windows)
		out = c.tab.Snapshot(moment(c.k)).Service("checkout")
	}
	return out
}

func total(l *load.ServiceLoad) (demand, unproven float64) {
	for i := range l.Sources {
		demand += l.Sources[i].Demand
		unproven += l.Sources[i].Unproven
	}
	return demand, unproven
}

// honest is a service of 90 clients at three places that send 600 requests/s.
func honest(capacity float64) *gathering {
	c := &gathering{tab: table()}
	for i := range 90 {
		c.join([]isobar.Locality{zoneA, zoneB, zoneC}[i%3], fmt.Sprint("address 10.0.0.", i), always(600.0/90))
	}
	c.tab.SetCapacity("checkout", capacity)
	c.run(60)
	return c
}

// Liars come to a service of 90 clients and 600 requests/s: none, nor all of them
// together, moves its demand by more than so many clients could, and nothing of
// what they say raises drops before it has been said for long.
func TestNewcomersCountForWhatOthersAreLike(t *testing.T) {
	const each = 600.0 / 90
	for _, tc := range []struct {
		name   string
		join   func(c *gathering)
		demand float64 // at most, beyond the honest 600
	}{
		{"one that claims 5,800", func(c *gathering) { c.join(zoneA, "address 192.0.2.1", always(5800)) }, 60},
		{"one of whom only the name is known", func(c *gathering) { c.join(zoneA, "", always(5800)) }, 60},
		{"one at a new place", func(c *gathering) { c.join(isobar.MustLocality("us-east/z"), "address 192.0.2.1", always(5800)) }, 60},
		{"50 names of one address", func(c *gathering) {
			for range 50 {
				c.join(zoneA, "address 192.0.2.1", always(5800))
			}
		}, 60},
		{"50 small names of one address", func(c *gathering) {
			for range 50 {
				c.join(zoneA, "address 192.0.2.1", always(2*each))
			}
		}, 60},
		{"one that grows twofold with each report", func(c *gathering) {
			c.join(zoneA, "address 192.0.2.1", func(k int) float64 { return min(5800, float64(int(1)<<min(k, 20))) })
		}, 60},
		{"10 of 10 addresses", func(c *gathering) {
			for i := range 10 {
				c.join(zoneA, fmt.Sprint("address 192.0.2.", i), always(5800))
			}
		}, 240 + 10*2*each},
		{"50 small ones of 50 addresses", func(c *gathering) {
			for i := range 50 {
				c.join(zoneA, fmt.Sprint("address 192.0.2.", i), always(2*each))
			}
		}, 50 * 2 * each},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := honest(1200)
			tc.join(c)
			for k := range 10 {
				demand, unproven := total(c.run(1))
				if demand > 1.01*(600+tc.demand) {
					t.Fatalf("after %d reports demand is %.0f, want at most %.0f", k+1, demand, 600+tc.demand)
				}
				if proven := demand - unproven; proven > 606 {
					t.Fatalf("after %d reports %.0f requests/s may raise drops, want the honest 600", k+1, proven)
				}
			}
		})
	}
}

// Who is patient gets no further than clients with a history may.
func TestLiarsWithPatience(t *testing.T) {
	const each = 600.0 / 90
	grows := func(by float64) func(k int) float64 {
		return func(k int) float64 {
			rate := 1.0
			for range min(k, 400) {
				rate = min(5800, rate*by)
			}
			return rate
		}
	}
	for _, tc := range []struct {
		name           string
		join           func(c *gathering)
		demand, proven float64 // at most, beyond the honest 600
	}{
		{"one that claims 5,800 for a quarter of an hour", func(c *gathering) { c.join(zoneA, "address 192.0.2.1", always(5800)) }, 400, 90},
		{"one that doubles", func(c *gathering) { c.join(zoneA, "address 192.0.2.1", grows(2)) }, 400, 90},
		{"one that grows by a tenth", func(c *gathering) { c.join(zoneA, "address 192.0.2.1", grows(1.1)) }, 700, 90},
		{"one that grows by a thirtieth", func(c *gathering) { c.join(zoneA, "address 192.0.2.1", grows(1.03)) }, 700, 90},
		{"one that waits and doubles", func(c *gathering) {
			c.join(zoneA, "address 192.0.2.1", func(k int) float64 { return grows(2)(max(0, k-30)) })
		}, 400, 90},
		{"a known one that doubles", func(c *gathering) {
			began := c.k
			m := c.members[0]
			m.rate = func(k int) float64 { return max(each, grows(2)(max(0, k-began))) }
		}, 400, 90},
		{"a known one that grows by a twentieth", func(c *gathering) {
			began := c.k
			m := c.members[0]
			m.rate = func(k int) float64 { return max(each, grows(1.05)(max(0, k-began))) }
		}, 700, 90},
		{"1,600 usual names of one address that stay", func(c *gathering) {
			for range 1600 {
				c.join(zoneA, "address 192.0.2.1", always(each))
			}
		}, 1600 * each, 4500}, // of 10,667: what 600 grow to by a hundredth a report
		{"1,600 usual names of one identity that stay", func(c *gathering) {
			for range 1600 {
				c.join(zoneA, "identity web", always(each))
			}
		}, 1600 * each, 4500},
		{"100 usual names of one address each minute", func(c *gathering) {
			for i := range 1600 {
				m := c.join(zoneA, "address 192.0.2.1", always(each))
				m.from = c.k + i/100*12
				m.open = moment(m.from)
			}
		}, 1600 * each, 4500},
		{"one that comes anew each 50 seconds under another name", func(c *gathering) {
			for i := range 18 {
				m := c.join(zoneA, "address 192.0.2.1", always(5800))
				m.from = c.k + 10*i
				m.open, m.until = moment(m.from), m.from+10
			}
		}, 130, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := honest(1200)
			tc.join(c)
			for k := range 180 {
				demand, unproven := total(c.run(1))
				if demand > 1.01*(600+tc.demand) {
					t.Fatalf("after %d reports demand is %.0f, want at most %.0f", k+1, demand, 600+tc.demand)
				}
				if proven := demand - unproven; proven > 1.01*(600+tc.proven) {
					t.Fatalf("after %d reports %.0f requests/s may raise drops, want at most %.0f", k+1, proven, 600+tc.proven)
				}
			}
		})
	}
}

// TestVariationGainsNothing asserts that a liar gains nothing from the variation of honest clients: what
// they send less for a moment is not what it sends in their place.
func TestVariationGainsNothing(t *testing.T) {
	const each = 600.0 / 90
	random := rand.New(rand.NewPCG(1, 2))
	c := honest(1200)
	for _, m := range c.members {
		m.rate = func(int) float64 { return max(0, each+2*random.NormFloat64()) }
	}
	c.run(60)
	c.join(zoneA, "address 192.0.2.1", always(5800))
	for k := range 120 {
		if demand, unproven := total(c.run(1)); demand > 900 || demand-unproven > 750 {
			t.Fatalf("after %d reports demand is %.0f, and %.0f may raise drops; the honest clients send 600", k+1, demand, demand-unproven)
		}
	}
}

// TestFrequentReportsGainNothing asserts that a liar which reports more often than it was asked to, or
// on a new stream each time, is believed no sooner than one that reports once an interval.
func TestFrequentReportsGainNothing(t *testing.T) {
	const parts = 4 // as many as the server takes
	for _, tc := range []struct {
		name    string
		says    uint64 // thousandths of an interval that each report says to cover
		streams bool   // each report comes on a new stream
	}{
		{"quarters", 250, false},
		{"quarters that say to be whole intervals", 1000, false},
		{"quarters on new streams", 250, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := honest(1200)
			liar := newClient(5000, load.AgentEnvoy)
			liar.node.ID, liar.open = "liar", moment(c.k)
			for k := range 400 {
				for i := range parts {
					length := interval * time.Duration(tc.says) / 1000
					now := moment(c.k).Add(interval * time.Duration(i+1) / parts)
					w := liar.window(report(now, sent(length, uint64(58_000*length.Seconds()))))
					w.Account = "address 192.0.2.1"
					c.tab.Merge([]load.StreamWindow{w})
					if tc.streams {
						end := liar.closed(now)
						end.Account = w.Account
						liar.id, liar.open = liar.id+1, now
						next := liar.window()
						next.Account = w.Account
						c.tab.Merge([]load.StreamWindow{end, next})
					}
				}
				if demand, unproven := total(c.run(1)); demand > 1000 || demand-unproven > 900 {
					t.Fatalf("after %d intervals demand is %.0f, and %.0f may raise drops; the honest clients send 600", k+1, demand, demand-unproven)
				}
			}
		})
	}
}

// A liar that is there when the server starts again counts for what is missing of the demand
// that was known.
func TestLiarAtARestart(t *testing.T) {
	var saved []load.Saved
	for _, l := range []isobar.Locality{zoneA, zoneB, zoneC} {
		saved = append(saved, load.Saved{Service: "checkout", Source: l, Rate: 200})
	}
	c := &gathering{tab: table(saved...)}
	c.join(zoneA, "address 192.0.2.1", always(5800))
	for i := range 90 {
		c.join([]isobar.Locality{zoneA, zoneB, zoneC}[i%3], "identity web", always(600.0/90))
	}
	c.tab.SetCapacity("checkout", 1200)
	for k := range 60 {
		demand, unproven := total(c.run(1))
		if demand < 590 || demand > 710 || demand-unproven < 350 || demand-unproven > 680 {
			t.Fatalf("after %d reports demand is %.0f, and %.0f may raise drops; 90 honest clients send 600", k+1, demand, demand-unproven)
		}
	}
}

// What honest fleets do is seen, though their clients have no history.
func TestHonestNewcomers(t *testing.T) {
	const each = 600.0 / 90
	zones := []isobar.Locality{zoneA, zoneB, zoneC}
	for _, tc := range []struct {
		name     string
		account  string // of all newcomers
		change   func(c *gathering, account string)
		at       int     // reports later
		demand   float64 // that is seen at least then
		proven   float64 // of it, that may raise drops
		demandUp float64 // at most
	}{
		{"all clients are replaced at once, behind one address", "address 192.0.2.1", func(c *gathering, account string) {
			for i := range 90 {
				c.members[i].until = c.k + 1
				c.join(zones[i%3], account, always(each))
			}
		}, 8, 570, 400, 650},
		{"clients are replaced one by one, with one identity", "identity web", func(c *gathering, account string) {
			for i := range 90 {
				c.members[i].until = c.k + 1 + i
				c.join(zones[i%3], account, always(each)).from = c.k + i
			}
		}, 90, 570, 500, 650},
		{"a gateway is replaced", "address 192.0.2.1", func(c *gathering, account string) {
			for i := range 30 {
				c.members[3*i].until = c.k + 1 // those of zone a
			}
			c.join(zoneA, account, always(200))
		}, 3, 570, 500, 650},
		{"the fleet doubles, each with an address", "", func(c *gathering, _ string) {
			for i := range 90 {
				c.join(zones[i%3], fmt.Sprint("address 10.0.1.", i), always(each))
			}
		}, 6, 1150, 590, 1210},
		{"the fleet doubles, with one identity", "identity web", func(c *gathering, account string) {
			for i := range 90 {
				c.join(zones[i%3], account, always(each))
			}
		}, 16, 1150, 1150, 1210},
		{"clients are replaced one by one, with one identity, and all send twice as much", "identity web", func(c *gathering, account string) {
			for i := range 90 {
				c.members[i].until = c.k + 1 + i
				c.join(zones[i%3], account, always(each)).from = c.k + i
			}
			c.run(110)
			for _, m := range c.members[90:] {
				m.rate = always(2 * each)
			}
		}, 8, 1150, 1150, 1210},
		{"everybody sends twice as much", "", func(c *gathering, _ string) {
			for _, m := range c.members {
				m.rate = always(2 * each)
			}
		}, 6, 1150, 1150, 1210},
		{"a third of the clients send five times as much", "", func(c *gathering, _ string) {
			for i := range 30 {
				c.members[3*i].rate = always(5 * each)
			}
		}, 6, 1300, 790, 1450},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := honest(1200)
			tc.change(c, tc.account)
			demand, unproven := total(c.run(tc.at))
			if demand < tc.demand || demand > tc.demandUp || demand-unproven < tc.proven {
				t.Errorf("after %d reports demand is %.0f and %.0f may raise drops; want %.0f to %.0f, and %.0f", tc.at, demand, demand-unproven, tc.demand, tc.demandUp, tc.proven)
			}
		})
	}
}

// TestAFleetAfterAFewQuietClients asserts that a fleet counts at once although a few clients that
// hardly send anything came long before it, and that its demand raises no drops yet. Invented
// clients make at most 2.2 times the capacity count, and fewer of them do not count as a fleet.
func TestAFleetAfterAFewQuietClients(t *testing.T) {
	zones := []isobar.Locality{zoneA, zoneB, zoneC}
	for _, tc := range []struct {
		name          string
		capacity      float64
		clients       int
		each          float64
		demand, above float64 // that counts, at least and at most
	}{
		{"capacity is not known", 0, 90, 600.0 / 90, 590, 610},
		{"capacity is known", 1200, 90, 600.0 / 90, 590, 610},
		{"overload", 400, 90, 600.0 / 90, 590, 610},
		{"invented clients", 1200, 90, 1e6, 0, 2641},
		{"too few invented clients", 1200, 8, 1e6, 0, 250},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &gathering{tab: table()}
			c.tab.SetCapacity("checkout", tc.capacity)
			for i := range 3 {
				c.join(zones[i], fmt.Sprint("address 10.0.0.", i), always(0.2))
			}
			c.run(12)
			for i := range tc.clients {
				c.join(zones[i%3], fmt.Sprint("address 10.0.1.", i), always(tc.each))
			}
			c.run(5)
			for k := range 40 { // as newcomers, and later
				demand, unproven := total(c.run(1))
				if demand < tc.demand || demand > tc.above {
					t.Fatalf("after %d reports demand is %.0f, want %.0f to %.0f", k+6, demand, tc.demand, tc.above)
				}
				if proven := demand - unproven; proven > 60 {
					t.Fatalf("after %d reports %.0f of the demand may raise drops", k+6, proven)
				}
			}
		})
	}
}

// Growth that comes with failing requests raises no drops while it may be retries.
func TestRetriesRaiseNoDrops(t *testing.T) {
	c := honest(1200)
	for _, m := range c.members {
		m.rate, m.errors = always(20), always(15) // three of four attempts fail
	}
	for k := range 4 {
		if demand, unproven := total(c.run(1)); demand-unproven > 660 {
			t.Fatalf("after %d reports %.0f requests/s may raise drops; all growth is of failing requests", k+1, demand-unproven)
		}
	}
}

// A client that shows a certificate has the history of its node.id; who shows another
// one, or none, has not.
func TestNodeIDsBelongToCertificates(t *testing.T) {
	edge := isobar.MustLocality("us-east/d")
	for _, tc := range []struct {
		name, account string
		identified    bool
		least, most   float64 // requests/s of the heir that count
	}{
		{name: "the same certificate", account: "identity edge", identified: true, least: 2000, most: 3000},
		{name: "another certificate", account: "identity web", identified: true, most: 370},
		{name: "no certificate", account: "address 192.0.2.1", most: 370},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := honest(1200)
			m := c.join(edge, "identity edge", always(300))
			m.identified = true
			c.run(250)
			m.until = c.k + 1
			heir := c.join(edge, tc.account, always(2900))
			heir.from, heir.open = c.k+1, moment(c.k+1)
			heir.node.ID, heir.identified = m.node.ID, tc.identified
			got := c.run(4).Source(edge).Demand
			if got < tc.least || got > tc.most {
				t.Errorf("%.0f requests/s of the heir count, want %.0f to %.0f", got, tc.least, tc.most)
			}
		})
	}
}

// TestNodeIDsOfAFleetThatRestarts asserts that one address without a certificate gets the history of few
// clients by their node.ids, and that a fleet whose address changes keeps its own.
func TestNodeIDsOfAFleetThatRestarts(t *testing.T) {
	const each = 600.0 / 90
	c := honest(1200)
	for i := range 30 {
		old := c.members[i]
		old.until = c.k + 1
		thief := c.join(old.node.Locality, "address 192.0.2.1", always(5800))
		thief.from, thief.open, thief.node.ID = c.k+1, moment(c.k+1), old.node.ID
	}
	for k := range 12 { // the 30 clients sent 200 requests/s
		if demand, unproven := total(c.run(1)); demand > 600+2*60 || demand-unproven > 620 {
			t.Errorf("after %d reports demand is %.0f and %.0f may raise drops; the clients sent 600", k+1, demand, demand-unproven)
		}
	}
	c = &gathering{tab: table()}
	for range 30 {
		c.join(zoneA, "address 10.0.0.1", always(2*each))
	}
	c.run(60)
	for i := range 30 {
		old := c.members[i]
		old.until = c.k + 1
		heir := c.join(zoneA, "address 10.0.0.2", always(4*each))
		heir.from, heir.open, heir.node.ID = c.k+1, moment(c.k+1), old.node.ID
	}
	if demand, unproven := total(c.run(6)); demand < 780 || unproven > 10 {
		t.Errorf("the fleet sends 800 from its new address, demand is %.0f and %.0f of it raises no drops", demand, unproven)
	}
}

// Names that many addresses invent prove together a fifth of what the clients with a long
// history send, and no more by leaving and coming back under other names.
func TestInventedAddressesProveLittle(t *testing.T) {
	const each = 600.0 / 90
	for _, tc := range []struct {
		name                   string
		addresses, names, life int // life: reports after which others take the place of a name; 0 = it stays
		proven                 float64
	}{
		{"200 names of 50 addresses", 50, 200, 0, 240},
		{"300 names of 300 addresses", 300, 300, 0, 240},
		{"300 names of 300 addresses, others each 15 reports", 300, 300, 15, 240},
		{"300 names of 300 addresses, others each 30 reports", 300, 300, 30, 240},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := honest(1200)
			for at := c.k; at < c.k+60; at += max(1, tc.life) {
				for i := range tc.names {
					m := c.join(zoneA, fmt.Sprint("address 192.0.2.", i%tc.addresses), always(2*each))
					m.from, m.open = at, moment(at)
					if tc.life > 0 {
						m.until = at + tc.life
					}
				}
				if tc.life == 0 {
					break
				}
			}
			for k := range 60 {
				demand, unproven := total(c.run(1))
				if proven := demand - unproven; proven > 600+tc.proven {
					t.Fatalf("after %d reports %.0f requests/s may raise drops, want at most %.0f", k+1, proven, 600+tc.proven)
				}
			}
		})
	}
}

// What newcomers claim is proven soon once the clients with a history notice it, too: some
// of their requests fail.
func TestOverloadProvesNewcomers(t *testing.T) {
	const each = 600.0 / 90
	for _, tc := range []struct {
		newcomers, reports int
		fails              bool
	}{{45, 8, true}, {90, 16, true}, {45, 8, false}, {90, 16, false}} {
		t.Run(fmt.Sprintf("%d newcomers, %d reports later, requests of others fail: %v", tc.newcomers, tc.reports, tc.fails), func(t *testing.T) {
			c := honest(1200)
			for i := range tc.newcomers {
				c.join([]isobar.Locality{zoneA, zoneB, zoneC}[i%3], fmt.Sprint("address 10.0.1.", i), always(each))
			}
			c.run(15)
			if tc.fails {
				for _, m := range c.members {
					m.errors = func(int) float64 { return each / 5 }
				}
			}
			want := 600 + each*float64(tc.newcomers)
			demand, unproven := total(c.run(tc.reports))
			if demand < 0.97*want || tc.fails != (unproven < 0.03*want) {
				t.Errorf("demand is %.0f and %.0f of it may raise drops, all clients send %.0f", demand, demand-unproven, want)
			}
		})
	}
}
