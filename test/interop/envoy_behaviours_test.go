package interop

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
)

// drops: what a service can't serve is dropped by every Envoy alike, as told.
func (m *matrix) drops() {
	const (
		rate = 40 // requests/s of each
		span = 6 * time.Second
	)
	t := m.t
	stop := m.steady("small", rate)
	var told float64
	await(t, "drops", func() error {
		before := told
		service, _, err := m.source("small")
		if err != nil {
			return err
		}
		if told = service.Drop; told < 0.3 || math.Abs(told-before) > 0.005 {
			pause(t.Context(), time.Second)
			return fmt.Errorf("dropping %.3f, a second before %.3f", told, before)
		}
		return nil
	})
	stop()
	stop = m.steady("small", rate)
	pause(t.Context(), span)
	for i, o := range stop() {
		n := float64(o.calls())
		share, sd := float64(total(o.Failed))/n, math.Sqrt(told*(1-told)/n)
		if math.Abs(share-told) > 4*sd+0.02 {
			t.Errorf("%s: told to drop %.3f, dropped %.3f of %.0f", m.gateways[i].name(), told, share, n)
		}
		for text := range o.Failed {
			if !strings.HasPrefix(text, "503 ") {
				t.Errorf("%s: a request failed by something else than a drop: %s", m.gateways[i].name(), text)
			}
		}
	}
}

// steady lets every Envoy make so many requests a second of a service, and returns
// what became of those of each once it is stopped.
func (m *matrix) steady(service string, rate int) (stop func() []outcome) {
	m.t.Helper()
	var stops []func() outcome
	for _, g := range m.gateways {
		stops = append(stops, g.steady(m.t.Context(), service, rate))
	}
	return func() (all []outcome) {
		for _, stop := range stops {
			all = append(all, stop())
		}
		return all
	}
}

// many: every Envoy answers requests of 20 services and reports the load of each.
func (m *matrix) many() {
	t := m.t
	var all sync.WaitGroup
	for _, g := range m.gateways {
		all.Go(func() {
			for _, name := range manyNames() {
				if o := g.requests(t.Context(), name, 20); len(o.Failed) > 0 {
					t.Errorf("%s, %s: %+v", g.name(), name, o)
				}
			}
		})
	}
	all.Wait()
	for _, g := range m.gateways {
		await(t, "load of 20 services from "+g.name(), func() error {
			var missing []error
			for _, name := range manyNames() {
				_ = g.requests(t.Context(), name, 4)
				e, err := m.explain(name, g)
				if err == nil && e.Demand.Rate < 0.5 {
					err = fmt.Errorf("demand %g", e.Demand.Rate)
				}
				if err != nil {
					missing = append(missing, fmt.Errorf("%s: %w", name, err))
				}
			}
			return errors.Join(missing...)
		})
	}
}

// returns: requests of a service that is away fail, and are answered again soon
// after its return, twice.
func (m *matrix) returns() {
	t := m.t
	whole := m.servicesText()
	rest := servicesWithout(t, whole, "leaving")
	for _, away := range []time.Duration{awayLong, awayShort} {
		stop := m.steady("leaving", 10)
		m.demand("leaving")
		stop()
		m.services(rest)
		m.confirm(m.holds("leaving"))
		m.each("no answers of a service that is away", func(g *gateway) error {
			if o := g.requests(t.Context(), "leaving", 4); len(o.Served) > 0 {
				return fmt.Errorf("%+v", o)
			}
			return nil
		})
		pause(t.Context(), away)
		m.services(whole)
		await(t, "the service that is back", func() error {
			_, err := m.plan("leaving")
			return err
		})
		back := time.Now()
		m.each("answers of a service that is back", func(g *gateway) error {
			if o := g.requests(t.Context(), "leaving", 4); len(o.Failed) > 0 {
				return fmt.Errorf("%+v", o)
			}
			if d := time.Since(back); d > returned {
				t.Errorf("%s answers again after %s, want %s at most", g.name(), d, returned)
			}
			return nil
		})
	}
}

// each waits until a condition holds for every Envoy.
func (m *matrix) each(what string, missing func(g *gateway) error) {
	m.t.Helper()
	var all sync.WaitGroup
	for _, g := range m.gateways {
		all.Go(func() {
			if err := poll(m.t, func() error { return missing(g) }); err != nil {
				m.t.Errorf("%s: %s: %v", g.name(), what, err)
			}
		})
	}
	all.Wait()
}
