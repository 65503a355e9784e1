package control_test

import (
	"errors"
	"testing"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestTheLastPlanHasAVersionOfItsOwn: the plan that takes drops back has a
// version that no successor uses again, also where it is the first one beyond
// those that were reserved.
func TestTheLastPlanHasAVersionOfItsOwn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newParts()
		service, east := web("web", 1), isobar.MustLocality("east/a")
		service.MaxShed = 0.5
		p.topology.Services = []isobar.Service{service}
		p.stored = &plan.Saved{Version: 41, Reserved: 50, Services: []plan.SavedService{{
			Name: "web", Drop: 0.2, Sites: []isobar.Locality{east, isobar.MustLocality("east/b")},
			Sources: []plan.SavedSource{{Source: east, Demand: 3000, Shares: []float64{0.5, 0.5}}},
		}}}
		l, stop := start(t, p, slowTicks)
		p.mu.Lock()
		reserved := p.saved[len(p.saved)-1].Reserved
		p.saveErr = errors.New("write: no space left on device") // so that no more are reserved ahead
		p.mu.Unlock()
		for l.Current().Version < reserved {
			p.change()
			pass(control.DefaultHoldOff)
		}
		if s, _ := l.Current().Service("web"); s.Result.Drop != 0.2 {
			t.Fatalf("version %d drops %v", l.Current().Version, s.Result.Drop)
		}
		p.mu.Lock()
		p.saveErr = nil
		p.mu.Unlock()
		stop()
		last := l.Current()
		if s, _ := last.Service("web"); s.Result.Drop != 0 || last.Version != reserved+1 {
			t.Errorf("the last version is %d and drops %v; %d were reserved", last.Version, s.Result.Drop, reserved)
		}
		p.stored = &p.saved[len(p.saved)-1]
		l, stop = start(t, p, slowTicks)
		if first := l.Current().Version; first <= last.Version {
			t.Errorf("version %d follows %d", first, last.Version)
		}
		stop()
	})
}
