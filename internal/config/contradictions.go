package config

import (
	"math"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config/strict"
)

// contradictions warns of numbers of one locality that are fine each but do
// not fit together. at is where to point.
type contradictions struct {
	at    strict.Value
	given bool // endpoints were given, as a list
}

// slack is how far numbers that should be equal may differ unremarked.
const slack = 0.01

func (c contradictions) check(l *isobar.ServiceLocality) {
	if !c.given {
		return
	}
	if len(l.Endpoints) == 0 {
		c.at.Warnf("add endpoints, or remove the locality", "no endpoints: no traffic will go here")
		return
	}
	rates, allRates := total(l.Endpoints, func(e *isobar.Endpoint) float64 { return e.MaxRate })
	slots, _ := total(l.Endpoints, func(e *isobar.Endpoint) float64 { return e.Concurrency })
	if l.Concurrency+slots > 0 && l.MaxRate+rates == 0 {
		c.at.Warnf("add max_rate, to the locality or to endpoints", "concurrency has no effect without a rate")
	}
	switch {
	case l.MaxRate > 0 && rates > l.MaxRate*(1+slack):
		c.at.Warnf("raise the locality's max_rate, or lower theirs",
			"the endpoints' max_rate add up to %g, above the locality's %g", rates, l.MaxRate)
	case l.MaxRate > 0 && allRates && rates < l.MaxRate*(1-slack):
		c.at.Warnf("remove the locality's max_rate, or let it be their sum",
			"the endpoints' max_rate add up to %g, below the locality's %g, and none is left to take the rest", rates, l.MaxRate)
	}
	if l.Concurrency > 0 && slots > l.Concurrency*(1+slack) {
		c.at.Warnf("raise the locality's concurrency, or lower theirs",
			"the endpoints' concurrency add up to %g, above the locality's %g", slots, l.Concurrency)
	}
	c.background(l, rates, allRates)
	if allRates {
		c.weights(l, rates)
	}
}

func (c contradictions) background(l *isobar.ServiceLocality, rates float64, allRates bool) {
	capacity := l.MaxRate
	if capacity == 0 && allRates {
		capacity = rates
	}
	ceiling, scaler := l.Ceiling, l.CapacityScaler
	if ceiling == 0 {
		ceiling = isobar.DefaultCeiling
	}
	if scaler == 0 {
		scaler = 1
	}
	if limit := ceiling * scaler * capacity; capacity > 0 && l.UnmanagedLoad >= limit {
		c.at.Warnf("lower background or raise max_rate",
			"background of %g leaves nothing of the %g requests/s that the ceiling allows", l.UnmanagedLoad, limit)
	}
}

// weights warns where configured weights send endpoints other shares than the
// rates they are said to carry.
func (c contradictions) weights(l *isobar.ServiceLocality, rates float64) {
	const most = 0.1 // relative difference
	var sum float64
	set := false
	weight := func(e *isobar.Endpoint) float64 { return float64(max(1, e.Weight)) }
	for i := range l.Endpoints {
		sum += weight(&l.Endpoints[i])
		set = set || l.Endpoints[i].Weight > 0
	}
	if !set {
		return // weights follow the rates then
	}
	for i := range l.Endpoints {
		e := &l.Endpoints[i]
		byWeight, byRate := weight(e)/sum, e.MaxRate/rates
		if math.Abs(byWeight-byRate) > most*byRate {
			c.at.Warnf("leave the weights out, so that they follow max_rate",
				"weight sends %s %.0f%% of the locality's traffic, max_rate says %.0f%%", e.Address, 100*byWeight, 100*byRate)
			return
		}
	}
}

// total sums a number over endpoints and tells whether all have it.
func total(endpoints []isobar.Endpoint, of func(*isobar.Endpoint) float64) (sum float64, all bool) {
	all = true
	for i := range endpoints {
		x := of(&endpoints[i])
		sum += x
		all = all && x > 0
	}
	return sum, all
}
