//go:build !race

package load_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/isobar-xds/isobar"
)

// grows sends what others do for some reports, and then more with each.
func grows(rate, by float64, after int) func(int) float64 {
	return func(k int) float64 { return min(1e6, rate*math.Pow(1+by, float64(max(0, k-after)))) }
}

// Many clients that behave as others do until they have a history, and then claim more
// with each report, count for what they could have grown by a hundredth a report, whether
// they are of one address or of many, unless they have behaved for ten minutes.
func TestManyThatGrowTogether(t *testing.T) {
	const each = 600.0 / 90
	for _, accounts := range []int{1, 40} {
		for _, by := range []float64{0.02, 0.05, 0.2} {
			t.Run(fmt.Sprintf("40 clients of %d addresses by %v", accounts, by), func(t *testing.T) {
				c := honest(1200)
				for i := range 40 {
					c.join(zoneA, fmt.Sprint("address 192.0.2.", i%accounts), grows(each, by, 15))
				}
				bounded(t, c, 60, 1450, 1150)
				bounded(t, c, 120, 3400, 2400)
			})
		}
	}
	t.Run("60 clients of one address, each at a place of its own", func(t *testing.T) {
		c := honest(1200)
		for i := range 60 {
			c.join(isobar.MustLocality(fmt.Sprintf("x%d/a", i)), "address 192.0.2.1", grows(each, 0.1, 15))
		}
		bounded(t, c, 60, 1900, 1420)
	})
	t.Run("20 clients of one address that behave for a quarter of an hour", func(t *testing.T) {
		c := honest(1200)
		for range 20 {
			c.join(zoneA, "address 192.0.2.1", grows(each, 0.1, 180))
		}
		bounded(t, c, 180, 740, 740)
		bounded(t, c, 60, 1300, 1100)
	})
	t.Run("20 clients of one address that claim 50 times as much now and then", func(t *testing.T) {
		c := honest(1200)
		for range 20 {
			c.join(zoneA, "address 192.0.2.1", func(k int) float64 {
				if k%25 < 5 {
					return 50 * each
				}
				return each
			})
		}
		bounded(t, c, 200, 950, 900)
	})
}

// bounded lets intervals pass in which demand and what may raise drops stay below bounds.
func bounded(t *testing.T, c *gathering, intervals int, most, mostProven float64) {
	t.Helper()
	for k := range intervals {
		demand, unproven := total(c.run(1))
		if demand > most || demand-unproven > mostProven {
			t.Fatalf("after %d reports demand is %.0f and %.0f may raise drops, want at most %.0f and %.0f", k+1, demand, demand-unproven, most, mostProven)
		}
	}
}

// mixed is a service of 60 clients with addresses of their own, and 30 that share one.
func mixed() *gathering {
	c := &gathering{tab: table()}
	for i := range 60 {
		c.join([]isobar.Locality{zoneA, zoneB}[i%2], fmt.Sprint("address 10.0.0.", i), always(600.0/90))
	}
	for range 30 {
		c.join(zoneC, "address 192.0.2.1", always(600.0/90))
	}
	c.tab.SetCapacity("checkout", 1200)
	c.run(60)
	return c
}

// An honest fleet of which many clients share an address is seen.
func TestHonestCrowds(t *testing.T) {
	const each = 600.0 / 90
	all := func(c *gathering, from int, rate float64) {
		for _, m := range c.members[from:] {
			m.rate = always(rate)
		}
	}
	for _, tc := range []struct {
		name     string
		change   func(c *gathering)
		at       int     // reports later
		demand   float64 // that is seen at least then
		proven   float64 // of it, that may raise drops
		demandUp float64 // at most
	}{
		{"nothing changes", func(*gathering) {}, 1, 590, 590, 610},
		{"everybody sends three times as much", func(c *gathering) { all(c, 0, 3*each) }, 6, 1700, 1700, 1810},
		{"those of one address send twice as much", func(c *gathering) { all(c, 60, 2*each) }, 6, 780, 780, 810},
		{"they send three times as much", func(c *gathering) { all(c, 60, 3*each) }, 36, 980, 600, 1010},
		{"the others send three times as much", func(c *gathering) {
			for _, m := range c.members[:60] {
				m.rate = always(3 * each)
			}
		}, 6, 1350, 1350, 1410},
		{"those of one address are replaced, and then everybody sends three times as much", func(c *gathering) {
			for i := range 30 {
				c.members[60+i].until = c.k + 1 + i
				c.join(zoneC, "address 192.0.2.1", always(each)).from = c.k + i
			}
			c.run(50)
			all(c, 0, 3*each)
		}, 6, 1700, 1400, 1810},
		{"20 more clients of the address", func(c *gathering) {
			for range 20 {
				c.join(zoneC, "address 192.0.2.1", always(each))
			}
		}, 16, 720, 700, 740},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := mixed()
			tc.change(c)
			demand, unproven := total(c.run(tc.at))
			if demand < tc.demand || demand > tc.demandUp || demand-unproven < tc.proven {
				t.Errorf("after %d reports demand is %.0f and %.0f may raise drops; want %.0f to %.0f, and %.0f",
					tc.at, demand, demand-unproven, tc.demand, tc.demandUp, tc.proven)
			}
		})
	}
}

// Where the clients of a service have few addresses, as behind proxies, an address is no
// crowd, however many addresses the clients of other services have.
func TestFleetOfFewAddresses(t *testing.T) {
	const each = 600.0 / 90
	for _, tc := range []struct{ direct, others int }{{0, 0}, {10, 0}, {10, 60}} {
		t.Run(fmt.Sprintf("%d clients with addresses of their own and %d of another service", tc.direct, tc.others), func(t *testing.T) {
			c := &gathering{tab: table()}
			for i := range 90 {
				c.join([]isobar.Locality{zoneA, zoneB, zoneC}[i%3], fmt.Sprint("address 192.0.2.", i%3), always(each))
			}
			for i := range tc.direct {
				c.join(zoneA, fmt.Sprint("address 10.0.0.", i), always(each))
			}
			for i := range tc.others {
				c.join(zoneA, fmt.Sprint("address 10.0.1.", i), always(each)).service = "cart"
			}
			c.tab.SetCapacity("checkout", 1200)
			c.run(60)
			for i := range 30 {
				c.members[3*i].rate = always(4 * each) // those of one address and zone
			}
			want := (90+3*30)*each + float64(tc.direct)*each
			if demand, unproven := total(c.run(6)); demand < 0.96*want || demand-unproven < 0.96*want {
				t.Errorf("demand is %.0f and %.0f may raise drops, want %.0f of each", demand, demand-unproven, want)
			}
		})
	}
}

// behind is a service of 90 clients that share some addresses and send 1,800 requests/s.
func behind(addresses int) *gathering {
	c := &gathering{tab: table()}
	for i := range 90 {
		c.join([]isobar.Locality{zoneA, zoneB, zoneC}[i%3], fmt.Sprint("address 10.0.0.", i%addresses), always(20))
	}
	c.tab.SetCapacity("checkout", 3000)
	c.run(130)
	return c
}

// A fleet that shares a few addresses is no crowd because an attacker comes with many: the
// attacker's clients are compared with those of the fleet as before, not with each other. Nor
// do they speak for others because their claims were accepted in the end.
func TestManyAddressesSilenceNoFleet(t *testing.T) {
	for _, addresses := range []int{1, 3, 10, 90} {
		t.Run(fmt.Sprint(addresses, " addresses of the fleet"), func(t *testing.T) {
			c := behind(addresses)
			for i := range 60 {
				c.join(zoneA, fmt.Sprint("address 192.0.2.", i), grows(5, 0.05, 0))
			}
			bounded(t, c, 120, 4250, 3150)
			bounded(t, c, 180, 14600, 9800) // a hundredth a report
		})
	}
}
