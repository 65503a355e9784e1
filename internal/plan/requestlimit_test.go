package plan_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/plan"
)

// newBounded is two zones that declare and serve 1000 requests/s each, whose clients
// give up after a second. Plans use the declarations, so that limits are known exactly.
func newBounded(t *testing.T, declared float64) *queued {
	t.Helper()
	c := newQueued(t, declared, isobar.TrustDeclared)
	c.serves["us/a"] = 1000
	c.top.Services[0].RequestTimeout = isobar.RequestTimeout(time.Second)
	return c
}

func (c *queued) limit() uint32 { return c.plan.RequestLimit("checkout") }

func (c *queued) ticks(n int, rate float64) {
	for range n {
		c.tick(rate)
	}
}

// A third of 2000 requests/s for 0.3 s are 200 requests in progress: that is the
// limit of each of three clients that send alike. It stays while capacity and
// clients change by less than half, and over a restart.
func TestRequestLimit(t *testing.T) {
	c := newBounded(t, 1000)
	c.ticks(5, 600) // there is no plan at the first
	if got := c.limit(); got != 0 {
		t.Errorf("the limit is %d before limits have fitted for five decisions", got)
	}
	c.ticks(1, 600)
	if got := c.limit(); got != 200 {
		t.Errorf("the limit is %d, want 200", got)
	}
	e, err := c.plan.Explain("checkout", loc("us/a"))
	if err != nil || e.RequestLimit != 200 {
		t.Errorf("explain tells a limit of %d, error %v", e.RequestLimit, err)
	}
	c.ticks(10, 2500) // an overload is no reason for another limit
	if got := c.limit(); got != 200 {
		t.Errorf("the limit is %d in an overload, want 200", got)
	}

	saved := c.plan.Save()
	data, err := json.Marshal(&saved)
	if err != nil {
		t.Fatal(err)
	}
	saved = plan.Saved{}
	if err := json.Unmarshal(data, &saved); err != nil {
		t.Fatal(err)
	}
	again, err := plan.Restore(&saved, c.top, health.NewTable(nil), c.now, 0)
	if err != nil || again.RequestLimit("checkout") != 200 {
		t.Errorf("the limit is %d after a restart, error %v", again.RequestLimit("checkout"), err)
	}
	shared, err := (&plan.Sharer{}).Share(c.plan, plan.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	if opened, err := plan.Open(shared, nil, c.now); err != nil || opened.Plan.RequestLimit("checkout") != 200 {
		t.Errorf("another replica serves another limit, error %v", err)
	}

	c.declare(800)
	c.ticks(20, 600)
	if got := c.limit(); got != 200 {
		t.Errorf("the limit is %d with a fifth less capacity, want 200", got)
	}
	c.declare(500) // 100: less than 200/1.5
	c.ticks(4, 600)
	if got := c.limit(); got != 200 {
		t.Errorf("the limit is %d after four decisions with half of the capacity, want 200", got)
	}
	c.ticks(1, 600)
	if got := c.limit(); got != 100 {
		t.Errorf("the limit is %d after five decisions with half of the capacity, want 100", got)
	}
	c.declare(1100) // 220: clients may need it
	c.ticks(1, 600)
	if got := c.limit(); got != 220 {
		t.Errorf("the limit is %d with more than twice the capacity, want 220 at once", got)
	}
}

// While clients connect, the first one seems to send everything: that is no limit for
// all of them.
func TestRequestLimitWhileClientsConnect(t *testing.T) {
	c := newBounded(t, 1000)
	c.clients = 1
	c.ticks(3, 600)
	c.clients = 3
	c.ticks(4, 600)
	if got := c.limit(); got != 0 {
		t.Errorf("the limit is %d after four decisions with all clients", got)
	}
	c.ticks(3, 600)
	if got := c.limit(); got < 200 || got > 300 {
		t.Errorf("the limit is %d, want about 200", got)
	}
}

// declare sets the declared capacity of both zones, requests/s.
func (c *queued) declare(rate float64) {
	s := c.top.Services[0]
	s.Localities = append([]isobar.ServiceLocality(nil), s.Localities...)
	for i := range s.Localities {
		s.Localities[i].MaxRate = rate
	}
	c.top = &isobar.Topology{Network: c.top.Network, Services: []isobar.Service{s}}
	c.top.Normalize()
}

func TestNoRequestLimit(t *testing.T) {
	for name, change := range map[string]func(*isobar.Service){
		"timeout not known": func(s *isobar.Service) { s.RequestTimeout = 0 },
		"mode observe":      func(s *isobar.Service) { s.Mode = isobar.ModeObserve },
		"limit of the user": func(s *isobar.Service) { s.CircuitBreakers.MaxRequests = 7 },
		"limit of less than 10 requests": func(s *isobar.Service) {
			s.RequestTimeout = isobar.RequestTimeout(30 * time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newBounded(t, 1000)
			c.ticks(10, 600)
			if c.limit() == 0 {
				t.Fatal("there is no limit before")
			}
			s := c.top.Services[0]
			change(&s)
			c.top = &isobar.Topology{Network: c.top.Network, Services: []isobar.Service{s}}
			c.ticks(10, 600)
			if got := c.limit(); got != 0 {
				t.Errorf("the limit is %d", got)
			}
		})
	}
	c := newBounded(t, 0)
	c.ticks(10, 600)
	if got := c.limit(); got != 0 {
		t.Errorf("the limit is %d without declared capacity", got)
	}
}
