package config

import (
	"time"

	"github.com/isobar-xds/isobar/internal/config/strict"
)

var (
	noiseRange    = strict.Range{Max: 1, LargeHint: "it is a fraction: write 0.05 for 5%"}
	dollarRange   = strict.Range{Max: 1e6, Unit: "dollars per million requests"}
	factorRange   = strict.Range{Max: 1000}
	outageRange   = strict.Range{AboveMin: true, Max: 1, LargeHint: "it is a fraction: write 0.5 for half of the endpoints"}
	lieRange      = strict.Range{Max: 1e6}
	endpointCount = strict.Range{Min: 1, Max: maxScenarioEndpoints, ZeroHint: "remove the locality"}
	clientCount   = strict.Range{Min: 1, Max: maxScenarioClients, ZeroHint: "remove the source"}
	fewClients    = strict.Range{Max: maxScenarioClients}
)

func spanField(name string, into *time.Duration, lo, hi time.Duration) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		if d, ok := v.Duration(lo, hi); ok {
			*into = d
		}
	}}
}

// requiredSpan is a duration without a default.
func requiredSpan(name string, into *time.Duration, lo time.Duration) strict.Field {
	f := spanField(name, into, lo, maxScenarioLength)
	f.Required = true
	return f
}

func wholeField(name string, into *int, r strict.Range) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		if n, ok := v.Int(r); ok {
			*into = int(n)
		}
	}}
}

// delayField reads a duration, or an object with base and jitter.
func delayField(name string, into *ScenarioDelay) strict.Field {
	return strict.Field{Name: name, Read: func(v strict.Value) {
		if !v.IsObject() {
			if d, ok := v.Duration(0, MaxInterval); ok {
				*into = ScenarioDelay{Base: d}
			}
			return
		}
		*into = ScenarioDelay{}
		v.Object([]strict.Field{
			spanField("base", &into.Base, 0, MaxInterval),
			spanField("jitter", &into.Jitter, 0, MaxInterval),
		})
	}}
}
