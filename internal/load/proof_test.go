//go:build !race

package load_test

import (
	"fmt"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// Invented clients that send little for a while, and then as much as others, prove no
// more by it than those that claim much from the start.
func TestQuietLiarsProveLittle(t *testing.T) {
	const each = 600.0 / 90
	claims := func(little func(k int) bool, rate float64) func(k int) float64 {
		return func(k int) float64 {
			if little(k) {
				return rate
			}
			return 2 * each
		}
	}
	for _, tc := range []struct {
		name string
		rate func(k int) float64
	}{
		{"one quiet report", claims(func(k int) bool { return k == 20 }, 0.6)},
		{"a quiet minute", claims(func(k int) bool { return k >= 20 && k < 32 }, 0.6)},
		{"little at first", claims(func(k int) bool { return k <= 15 }, 0.6)},
		{"little in every third report", claims(func(k int) bool { return k%3 == 0 }, 0.6)},
		{"much in every third report", claims(func(k int) bool { return k%3 != 0 }, 0.6)},
		{"little and much for a minute each", claims(func(k int) bool { return k/12%2 == 0 }, 0.6)},
		{"nothing at first", claims(func(k int) bool { return k <= 15 }, 0)},
		{"nothing for two minutes", claims(func(k int) bool { return k <= 24 }, 0)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := honest(1200)
			for i := range 200 {
				c.join(zoneA, fmt.Sprint("address 192.0.2.", i%50), tc.rate)
			}
			for k := range 60 {
				demand, unproven := total(c.run(1))
				if proven := demand - unproven; proven > 870 {
					t.Fatalf("after %d reports %.0f requests/s may raise drops, want at most 870", k+1, proven)
				}
			}
		})
	}
}

// A name that reports nothing for a while has no history when it begins to claim.
func TestIdleNameIsNew(t *testing.T) {
	for _, account := range []string{"address 192.0.2.1", "identity web"} {
		c := honest(1200)
		c.join(zoneA, account, func(k int) float64 {
			if k <= 20 {
				return 0
			}
			return 2300
		})
		for k := range 80 {
			if demand, unproven := total(c.run(1)); demand > 720 || demand-unproven > 640 {
				t.Fatalf("%s: after %d reports demand is %.0f and %.0f may raise drops", account, k+1, demand, demand-unproven)
			}
		}
	}
}

// The other name of a client that leaves has no more proof than the one before.
func TestQuietLiarsComeBack(t *testing.T) {
	const each = 600.0 / 90
	c := honest(1200)
	for round := range 4 {
		for i := range 200 {
			m := c.join(zoneA, fmt.Sprint("address 192.0.2.", i%50), func(k int) float64 {
				if k == 14 {
					return 0.6
				}
				return 2 * each
			})
			m.node.ID = fmt.Sprint("liar-", i)
			m.from = c.k + 17*round
			m.open, m.until = moment(m.from), m.from+16
		}
	}
	for k := range 66 {
		demand, unproven := total(c.run(1))
		if proven := demand - unproven; proven > 900 {
			t.Fatalf("after %d reports %.0f requests/s may raise drops, want at most 900", k+1, proven)
		}
	}
}

// When all clients with a history send more, invented ones prove more in proportion only.
func TestQuietLiarsInASurge(t *testing.T) {
	const each = 600.0 / 90
	c := honest(2400)
	for i := range 200 {
		c.join(zoneA, fmt.Sprint("address 192.0.2.", i%50), func(k int) float64 {
			if k < 30 {
				return 0.6
			}
			return 4 * each
		})
	}
	c.run(30)
	for _, m := range c.members[:90] {
		m.rate = always(2 * each)
	}
	for k := range 40 {
		demand, unproven := total(c.run(1))
		if proven := demand - unproven; proven > 1750 {
			t.Fatalf("after %d reports %.0f requests/s may raise drops, want at most 1750", k+1, proven)
		}
	}
}

// A quiet window takes from new clients nothing of what they have proven, whether requests
// fail or not, and whether all are quiet at once or one after the other.
func TestQuietWindowKeepsProof(t *testing.T) {
	const each = 600.0 / 90
	for _, tc := range []struct {
		name    string
		account func(i int) string
		fails   bool
		quiet   func(i int) int
	}{
		{"at once", func(int) string { return "identity web" }, false, func(int) int { return 41 }},
		{"one after the other", func(int) string { return "identity web" }, false, func(i int) int { return 41 + i%10 }},
		{"at once while requests fail", func(int) string { return "identity web" }, true, func(int) int { return 41 }},
		{"without certificates, one after the other, while requests fail", func(i int) string { return fmt.Sprint("address 10.0.1.", i) }, true, func(i int) int { return 25 + i%10 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := honest(1200)
			for i := range 90 {
				c.join([]isobar.Locality{zoneA, zoneB, zoneC}[i%3], tc.account(i), func(k int) float64 {
					if k == tc.quiet(i) {
						return 0.2
					}
					return each
				})
			}
			c.run(20)
			if tc.fails {
				for _, m := range c.members {
					m.errors = always(each / 5)
				}
			}
			c.run(31)
			demand, unproven := total(c.run(1))
			if demand < 1150 || unproven > 0.03*demand {
				t.Errorf("demand is %.0f and %.0f of it may raise drops, all clients send 1200", demand, demand-unproven)
			}
		})
	}
}

// Invented clients that claim, and go away together, leave no proven demand behind: what
// stands in for the missing reports is proven no more than it was before.
func TestLiarsThatLeaveProveNothing(t *testing.T) {
	const each = 600.0 / 90
	edge := isobar.MustLocality("us-east/d")
	for _, tc := range []struct {
		name      string
		at        isobar.Locality
		connected bool // they keep their discovery streams
	}{
		{"from a place of others", zoneA, false},
		{"from a place of their own", edge, false},
		{"from a place of their own, and stay connected", edge, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := honest(1200)
			for i := range 200 {
				c.join(tc.at, fmt.Sprint("address 192.0.2.", i%50), always(2*each)).until = c.k + 10
			}
			for k := range 40 {
				if tc.connected {
					c.tab.SetSubscribed([]load.Subscription{{Service: "checkout", Source: edge}}, moment(c.k+1))
				}
				demand, unproven := total(c.run(1))
				if proven := demand - unproven; proven > 606 {
					t.Fatalf("after %d reports demand is %.0f and %.0f requests/s may raise drops, want the honest 600", k+1, demand, proven)
				}
			}
		})
	}
}

// What the clients of an honest fleet had proven stays so while their streams are missing.
func TestHeldDemandStaysProven(t *testing.T) {
	c := honest(1200)
	for _, m := range c.members[:60] {
		m.until = c.k + 1
	}
	c.run(1)
	for k := range 2 {
		if demand, unproven := total(c.run(1)); demand < 590 || unproven > 6 {
			t.Fatalf("%d reports after streams were lost demand is %.0f, %.0f of it unproven", k+1, demand, unproven)
		}
	}
}

// Invented clients can't quicken the proof of what others claim by what they say of
// failures, not even with a long history. It takes a third of the clients.
func TestLiarsSeeNoOverload(t *testing.T) {
	const each = 600.0 / 90
	for _, tc := range []struct {
		name   string
		early  int                          // usual names that come 140 reports before the others
		grow   float64                      // with each report, of these
		errors float64                      // part of the requests of the first clients that fails, as ever
		fail   func(c *gathering) []*member // whose requests all fail, once the others have come
	}{
		{"names that behaved for 140 reports fail", 18, 0, 0, func(c *gathering) []*member { return c.members[90:108] }},
		{"names that grew for 140 reports fail", 18, 0.01, 0, func(c *gathering) []*member { return c.members[90:108] }},
		{"a quarter of the first clients fails", 0, 0, 0, func(c *gathering) []*member { return c.members[:22] }},
		{"claims that succeed make usual failures look like more", 0, 0, 0.15, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := honest(1200)
			for _, m := range c.members {
				m.errors = always(tc.errors * each)
			}
			c.run(60)
			for i := range tc.early {
				c.join(zoneA, fmt.Sprint("address 198.51.100.", i), grows(each, tc.grow, 15))
			}
			before, _ := total(c.run(140))
			for i := range 200 {
				c.join(zoneA, fmt.Sprint("address 192.0.2.", i%50), always(2*each))
			}
			c.run(15)
			if tc.fail != nil {
				for _, m := range tc.fail(c) {
					m.errors = m.rate
				}
			}
			for k := range 30 {
				demand, unproven := total(c.run(1))
				if proven := demand - unproven; proven > 1.75*before {
					t.Fatalf("after %d reports %.0f requests/s may raise drops, want at most %.0f", k+1, proven, 1.75*before)
				}
			}
		})
	}
}

// Growth is proven as soon where all clients have replaced others, after a rollout or a
// restart, once they have a long history.
func TestOverloadProvesAfterRollout(t *testing.T) {
	const each = 600.0 / 90
	zones := []isobar.Locality{zoneA, zoneB, zoneC}
	for _, tc := range []struct {
		name string
		prev func() *gathering
	}{
		{"clients were replaced one by one", func() *gathering {
			c := honest(1200)
			for i := range 90 {
				c.members[i].until = c.k + 1 + i
				m := c.join(zones[i%3], fmt.Sprint("address 10.0.2.", i), always(each))
				m.from, m.open = c.k+i, moment(c.k+i)
			}
			c.run(90 + 125)
			return c
		}},
		{"the server started again with known demand", func() *gathering {
			var saved []load.Saved
			for _, l := range zones {
				saved = append(saved, load.Saved{Service: "checkout", Source: l, Rate: 200})
			}
			c := &gathering{tab: table(saved...)}
			for i := range 90 {
				c.join(zones[i%3], fmt.Sprint("address 10.0.0.", i), always(each))
			}
			c.tab.SetCapacity("checkout", 1200)
			c.run(125)
			return c
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := tc.prev()
			for i := range 90 {
				c.join(zones[i%3], fmt.Sprint("address 10.0.1.", i), always(each))
			}
			c.run(15)
			for _, m := range c.members {
				m.errors = always(each / 5)
			}
			if demand, unproven := total(c.run(16)); demand < 1150 || unproven > 0.03*demand {
				t.Errorf("demand is %.0f and %.0f of it may raise drops, all clients send 1200", demand, demand-unproven)
			}
		})
	}
}

// What invented clients claimed raises no drops after a restart either.
func TestClaimsAreNotProvenByARestart(t *testing.T) {
	const each = 600.0 / 90
	join := func(c *gathering) {
		for i := range 200 {
			c.join(zoneA, fmt.Sprint("address 192.0.2.", i%50), always(2*each))
		}
	}
	c := honest(1200)
	join(c)
	c.run(10)
	before := c.tab.Snapshot(moment(c.k))
	after := &gathering{tab: table(before.Saved()...)}
	for i := range 90 {
		after.join([]isobar.Locality{zoneA, zoneB, zoneC}[i%3], fmt.Sprint("address 10.0.0.", i), always(each))
	}
	join(after)
	after.tab.SetCapacity("checkout", 1200)
	for k := range 40 {
		demand, unproven := total(after.run(1))
		if proven := demand - unproven; proven < 400 || proven > 900 {
			t.Fatalf("%d reports after the restart demand is %.0f and %.0f may raise drops, 90 honest clients send 600", k+1, demand, proven)
		}
	}
}

// A server that starts again soon, and again, forgets nothing of what was proven.
func TestRestartsKeepProof(t *testing.T) {
	saved := honest(1200).tab.Snapshot(moment(60)).Saved()
	for range 6 {
		c := &gathering{tab: table(saved...)}
		for i := range 90 {
			c.join([]isobar.Locality{zoneA, zoneB, zoneC}[i%3], fmt.Sprint("address 10.0.0.", i), always(600.0/90))
		}
		c.tab.SetCapacity("checkout", 1200)
		c.run(12)
		saved = c.tab.Snapshot(moment(c.k)).Saved()
		if demand, unproven := total(c.run(3)); demand < 590 || unproven > 6 {
			t.Fatalf("demand is %.0f, %.0f of it unproven", demand, unproven)
		}
	}
}

// What joins after one restart is not proven by the next one.
func TestSecondRestartProvesNothing(t *testing.T) {
	const each = 600.0 / 90
	for _, gap := range []int{6, 11, 14} {
		saved := honest(1200).tab.Snapshot(moment(60)).Saved()
		for restart := range 4 {
			c := &gathering{tab: table(saved...)}
			for i := range 90 {
				c.join(zones[i%3], fmt.Sprint("address 10.0.0.", i), always(each))
			}
			for i := range 200 {
				c.join(zoneA, fmt.Sprint("address 192.0.2.", i%50), always(2*each))
			}
			c.tab.SetCapacity("checkout", 1200)
			c.run(gap)
			saved = c.tab.Snapshot(moment(c.k)).Saved()
			proven := 0.0
			for _, x := range saved {
				proven += x.Rate - x.Unproven
			}
			if proven > 960 {
				t.Errorf("%d intervals after restart %d, %.0f requests/s are saved as proven, honest clients send 600", gap, restart+1, proven)
			}
		}
	}
}

// Names that fall silent as soon as they are known leave what they have proven to no other names.
func TestLiarsThatTakeTurns(t *testing.T) {
	const each = 600.0 / 90
	c := honest(1200)
	resume := c.k + 56
	for group := range 20 {
		for i := range 9 {
			from := c.k + 2*group
			m := c.join(zoneA, fmt.Sprintf("address 192.0.%d.%d", group, i), func(k int) float64 {
				switch {
				case from+k >= resume, k == 12, k == 13:
					return 2 * each
				case k == 1:
					return 0.2
				}
				return 0
			})
			m.from, m.open = from, moment(from)
		}
	}
	for c.k < resume+20 {
		demand, unproven := total(c.run(1))
		if proven := demand - unproven; proven > 900 {
			t.Fatalf("%d reports after all claim, %.0f requests/s may raise drops, want at most 900", c.k-resume, proven)
		}
	}
}

// Clients of one address that claim much prove together what counted of them, and no more when
// each may count alone: what counts of them grows slowly, what raises drops no faster.
func TestStrangersOfOneAddressProveTogether(t *testing.T) {
	c := behind(90)
	for range 30 {
		c.join(zoneA, "address 192.0.2.1", always(400))
	}
	bounded(t, c, 98, 2250, 2250)
	bounded(t, c, 30, 3050, 2350)
}
