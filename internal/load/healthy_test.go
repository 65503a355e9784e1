//go:build !race

package load_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/load"
)

// These tests assert that what bounds invented clients does not hide the demand of healthy
// fleets for longer than the documentation says.

var zones = []isobar.Locality{zoneA, zoneB, zoneC}

// accountOf is one identity for all clients, or an address without certificate for each.
func accountOf(identified bool, group, i int) string {
	if identified {
		return "identity web"
	}
	return fmt.Sprintf("address 10.%d.%d.%d", group, i/250, i%250)
}

// Clients of one zone take over what those of another one sent, which have gone or are idle.
// Those that take over were connected before, or come.
func TestFailoverIsSeen(t *testing.T) {
	const each, at = 600.0 / 90, 150
	for _, identified := range []bool{true, false} {
		for _, tc := range []struct {
			name      string
			gone, new bool
		}{
			{"to idle clients, from clients that stay", false, false},
			{"to idle clients, from clients that leave", true, false},
			{"to new clients, from clients that stay", false, true},
			{"to new clients, from clients that leave", true, true},
		} {
			t.Run(fmt.Sprint(tc.name, ", one identity: ", identified), func(t *testing.T) {
				c := &gathering{tab: table()}
				for i := range 90 {
					m := c.join(zoneA, accountOf(identified, 1, i), func(k int) float64 {
						if k > at {
							return 0
						}
						return each
					})
					if tc.gone {
						m.until = at + 1
					}
				}
				for i := range 90 {
					m := c.join(zoneB, accountOf(identified, 2, i), func(k int) float64 {
						if k <= at && !tc.new {
							return 0
						}
						return each
					})
					if tc.new {
						m.from, m.open = at, moment(at)
					}
				}
				c.tab.SetCapacity("checkout", 1200)
				c.run(at + 8)
				if demand, _ := total(c.run(1)); demand < 570 {
					t.Errorf("after 9 reports demand is %.0f of 600", demand)
				}
				c.run(4)
				for range 100 {
					if demand, unproven := total(c.run(1)); demand < 570 || unproven > 30 {
						t.Fatalf("after %d reports demand is %.0f of 600, and %.0f of it is unproven", c.k-at, demand, unproven)
					}
				}
			})
		}
	}
}

// Clients that were connected for ten minutes begin a batch: they send far more than those that
// were busy before.
func TestBatchIsSeen(t *testing.T) {
	for _, identified := range []bool{true, false} {
		c := &gathering{tab: table()}
		for i := range 5 {
			c.join(zoneA, accountOf(false, 1, i), always(0.4))
		}
		for i := range 200 {
			c.join(zoneA, accountOf(identified, 2, i), func(k int) float64 {
				if k <= 150 {
					return 0
				}
				return 10
			})
		}
		c.tab.SetCapacity("checkout", 3000)
		c.run(150 + 20)
		for range 150 {
			if demand, _ := total(c.run(1)); demand < 1900 {
				t.Fatalf("one identity: %t: after %d reports demand is %.0f of 2000", identified, c.k-150, demand)
			}
		}
	}
}

// Clients that send less than a request in a window, or in some windows only, are replaced within
// five minutes, or the process restarts.
func TestRareRequestsAreSeen(t *testing.T) {
	const clients = 300
	poisson := func(rnd *rand.Rand, each float64) func(int) float64 {
		return func(int) float64 {
			n := 0
			for x := rnd.ExpFloat64(); x < each; x += rnd.ExpFloat64() {
				n++
			}
			return float64(n) / 5
		}
	}
	for _, tc := range []struct {
		name string
		mean float64 // requests/s of a client
		rate func(rnd *rand.Rand, i int) func(k int) float64
	}{
		{"half a request in a window", 0.1, func(rnd *rand.Rand, _ int) func(int) float64 { return poisson(rnd, 0.5) }},
		{"two requests in a window", 0.4, func(rnd *rand.Rand, _ int) func(int) float64 { return poisson(rnd, 2) }},
		{"every fifth window", 4, func(_ *rand.Rand, i int) func(int) float64 {
			return func(k int) float64 {
				if (k+7*i)%5 != 0 {
					return 0
				}
				return 20
			}
		}},
	} {
		for _, restart := range []bool{false, true} {
			for _, identified := range []bool{true, false} {
				t.Run(fmt.Sprint(tc.name, ", restart: ", restart, ", one identity: ", identified), func(t *testing.T) {
					rnd, want := rand.New(rand.NewPCG(1, 2)), clients*tc.mean
					gather := func(group int, saved ...load.Saved) *gathering {
						c := &gathering{tab: table(saved...)}
						for i := range clients {
							c.join(zones[i%3], accountOf(identified, group, i), tc.rate(rnd, i))
						}
						c.tab.SetCapacity("checkout", 2*want)
						return c
					}
					c := gather(0)
					c.run(150)
					from := c.k
					if restart {
						c, from = gather(0, c.tab.Snapshot(moment(c.k)).Saved()...), 0
					} else {
						for i := range clients {
							m := c.join(zones[i%3], accountOf(identified, 1, i), tc.rate(rnd, i))
							m.from = c.k + i*60/clients
							m.open, c.members[i].until = moment(m.from), m.from+1
						}
					}
					c.run(75)
					for range 100 {
						if demand, unproven := total(c.run(1)); demand < 0.75*want || unproven > 0.15*want {
							t.Fatalf("after %d reports demand is %.1f of %.1f, and %.1f of it is unproven", c.k-from, demand, want, unproven)
						}
					}
				})
			}
		}
	}
}

// A fleet without certificates whose clients send a request or two in a window doubles, and a fifth of
// all requests fails: the clients with a history notice, and the demand of the others is proven.
func TestRareFailuresAreSeen(t *testing.T) {
	const clients = 200
	for _, mean := range []float64{1, 2, 5, 33} { // requests in a window
		t.Run(fmt.Sprint(mean), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, 2))
			c, fail := &gathering{tab: table()}, 0.0
			join := func(group int) {
				for i := range clients {
					sent := 0
					m := c.join(zones[i%3], accountOf(false, group, i), func(int) float64 {
						sent = 0
						for x := rnd.ExpFloat64(); x < mean; x += rnd.ExpFloat64() {
							sent++
						}
						return float64(sent) / 5
					})
					m.errors = func(int) float64 {
						n := 0
						for range sent {
							if rnd.Float64() < fail {
								n++
							}
						}
						return float64(n) / 5
					}
				}
			}
			join(0)
			c.tab.SetCapacity("checkout", 2*clients*mean/5)
			c.run(150)
			join(1)
			c.run(15)
			fail = 0.2
			if demand, unproven := total(c.run(40)); unproven > 0.1*demand {
				t.Errorf("40 reports after the first failures, %.0f of %.0f requests/s are unproven", unproven, demand)
			}
		})
	}
}
