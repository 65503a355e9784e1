package health_test

import (
	"strings"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

func TestUnhealthyFromTheStartTakesTime(t *testing.T) {
	w := newWorld(t, topology(service("web", 1, zoneA)), checkersIn(1, zoneA, zoneB, zoneC))
	w.all(isobar.Unhealthy)
	w.step()
	began := w.now
	for w.status("web", first) == isobar.Unknown && w.now.Sub(began) < time.Minute {
		w.step()
	}
	// 3 x (5 s + 1 s)
	if took := w.now.Sub(began); took < 18*time.Second || took > 18*time.Second+interval {
		t.Errorf("down after %s, want 18 s after the first report", took)
	}
	w.all(isobar.Healthy)
	w.step()
	if w.status("web", first) != isobar.Healthy {
		t.Error("healthy votes count at once")
	}
	w.all(isobar.Unhealthy)
	w.step()
	if w.status("web", first) != isobar.Unhealthy {
		t.Error("a checker that saw it healthy is believed at once")
	}
}

func TestACheckerThatStartsAnewBeginsWithUnhealthy(t *testing.T) {
	w := newWorld(t, topology(service("web", 1, zoneA)), checkersIn(1, zoneA, zoneB, zoneC))
	w.run(10 * time.Second)
	for i := range w.checkers { // all of them, at once: a release
		w.checkers[i].Since = w.now.Add(time.Millisecond)
	}
	w.all(isobar.Unhealthy)
	w.run(16 * time.Second)
	v := w.verdict("web", first)
	if v.Status != isobar.Healthy || !v.Frozen || v.Votes[0].Counts || !v.Votes[0].Fresh {
		t.Errorf("%+v, want votes that don't count yet", v)
	}
	w.run(4 * time.Second)
	if got := w.status("web", first); got != isobar.Unhealthy {
		t.Errorf("%s after its time, want unhealthy", got)
	}
}

func TestAddedEndpointsWait(t *testing.T) {
	w := one(t)
	w.run(10 * time.Second)
	bigger := service("web", 2, zoneA, zoneB, zoneC)
	const added = "10.0.0.1:80"
	w.topology = topology(bigger)
	w.says = func(_ string, k health.Key) isobar.HealthStatus {
		if k.Address == added {
			return isobar.Unhealthy
		}
		return isobar.Healthy
	}
	if changed := w.step(); len(changed) != 1 {
		t.Errorf("changed %v, want the service", changed)
	}
	v := w.verdict("web", added)
	if !v.Pending || v.Status != isobar.Unknown || w.status("web", added) != isobar.Unhealthy || !strings.Contains(v.Why, "new: gets no traffic") {
		t.Errorf("%+v, served as %s; want pending, without traffic", v, w.status("web", added))
	}
	w.run(10 * time.Second)
	w.all(isobar.Healthy)
	w.step()
	if v := w.verdict("web", added); v.Pending || v.Status != isobar.Healthy {
		t.Errorf("%+v, want healthy by its first quorum", v)
	}

	// One that nobody reports on is used after 30 s.
	w.topology = topology(service("web", 3, zoneA, zoneB, zoneC))
	const unseen = "10.0.0.2:80"
	w.says = func(_ string, k health.Key) isobar.HealthStatus {
		if k.Address == unseen {
			return isobar.Unknown
		}
		return isobar.Healthy
	}
	w.run(28 * time.Second)
	if got := w.status("web", unseen); got != isobar.Unhealthy {
		t.Errorf("%s after 28 s, want no traffic", got)
	}
	w.run(4 * time.Second)
	if _, found := w.book.Verdicts().Status("web", unseen); found {
		t.Error("after 30 s the configured status should count")
	}
}

func TestTheFirstEndpointsOfAServiceDoNotWait(t *testing.T) {
	w := newWorld(t, topology(service("web", 2, zoneA)), checkersIn(1, zoneA, zoneB, zoneC))
	w.all(isobar.Unknown)
	w.run(4 * time.Second)
	if _, found := w.book.Verdicts().Status("web", first); found {
		t.Error("before the first verdict the configured status should count")
	}
	w.topology = topology(service("web", 4, zoneA))
	w.step()
	if v := w.verdict("web", "10.0.0.3:80"); v.Pending {
		t.Error("an endpoint waits though no other has a verdict")
	}
}

func TestAServiceThatMovesAltogetherDoesNotWait(t *testing.T) {
	w := newWorld(t, topology(service("web", 2, zoneA)), checkersIn(1, zoneA, zoneB, zoneC))
	w.run(4 * time.Second)
	moved := service("web", 2, zoneA)
	moved.Localities[0].Endpoints[0].Address = "10.7.0.0:80"
	w.topology = topology(moved)
	w.all(isobar.Unhealthy)
	w.step()
	if got := w.status("web", "10.7.0.0:80"); got != isobar.Unknown {
		t.Errorf("%s, want its configured status: the only other endpoint is down", got)
	}
	moved.Localities[0].Endpoints = []isobar.Endpoint{{Address: "10.8.0.0:80"}, {Address: "10.8.0.1:80"}}
	w.topology = topology(moved)
	w.step()
	if got := w.status("web", "10.8.0.0:80"); got != isobar.Unknown || w.verdict("web", "10.8.0.0:80").Pending {
		t.Errorf("%s, want its configured status: there is no other endpoint", got)
	}
	// Once the first is known to be healthy, the other has to wait again.
	w.says = func(_ string, k health.Key) isobar.HealthStatus {
		if k.Address == "10.8.0.0:80" {
			return isobar.Healthy
		}
		return isobar.Unhealthy
	}
	w.step()
	if got := w.status("web", "10.8.0.1:80"); got != isobar.Unhealthy || !w.verdict("web", "10.8.0.1:80").Pending {
		t.Errorf("%s, want it to wait", got)
	}
}

func TestAllDownFailsOpen(t *testing.T) {
	w := newWorld(t, topology(service("web", 2, zoneA)), checkersIn(1, zoneA, zoneB, zoneC))
	w.run(4 * time.Second)
	w.all(isobar.Unhealthy)
	w.step()
	for _, v := range w.book.Explain("web") {
		if v.Status != isobar.Unhealthy || !v.FailOpen || !strings.Contains(v.Why, "clients may use them all the same") {
			t.Errorf("%+v, want unhealthy, failing open", v)
		}
	}
	if s := w.book.Summary("web"); !s.FailOpen || s.Down != 2 {
		t.Errorf("%+v", s)
	}
}

func TestAnEndpointThatServesDoesNotWaitForItsCheck(t *testing.T) {
	s := service("web", 2, zoneA, zoneB, zoneC)
	s.Localities[0].Endpoints[0].Check = &isobar.EndpointCheck{Disabled: true}
	o := newOffice(t, topology(s), checkersIn(1, zoneA, zoneB, zoneC))
	o.run(10 * time.Second)
	o.change(func(s *isobar.Service) { s.Localities[0].Endpoints[0].Check = nil })
	for range 10 {
		if o.step(interval); !o.told(first).Usable() {
			t.Fatalf("%s because its check was switched on", o.told(first))
		}
	}
	o.dead(first)
	o.step(interval)
	if got := o.told(first); got != isobar.Unhealthy {
		t.Errorf("%s, want unhealthy", got)
	}
}

func TestWhatIsNotProbedKeepsAServiceFromFailingOpen(t *testing.T) {
	s := service("web", 2, zoneA)
	s.Localities[0].Endpoints[1].Check = &isobar.EndpointCheck{Disabled: true}
	o := newOffice(t, topology(s), checkersIn(1, zoneA, zoneB, zoneC))
	o.run(10 * time.Second)
	o.dead(first)
	o.run(10 * time.Second)
	if v := o.verdict(first); v.Status != isobar.Unhealthy || v.FailOpen || o.keeper.VerdictTable().Summary("web").FailOpen {
		t.Errorf("%+v: clients use the endpoint that is not probed", v)
	}
	o.operators = o.operators.With(health.Override{Key: health.Key{Service: "web", Address: "10.0.0.1:80"}, Status: isobar.Draining})
	o.look()
	if v := o.verdict(first); !v.FailOpen || !o.keeper.VerdictTable().Summary("web").FailOpen {
		t.Errorf("%+v: nothing else is left", v)
	}
}
