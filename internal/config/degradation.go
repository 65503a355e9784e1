package config

import (
	"time"

	"github.com/isobar-xds/isobar/internal/config/strict"
)

// Degradation says what happens as inputs of decisions go missing.
type Degradation struct {
	Reports, Health, Topology DegradationSteps
}

// DegradationSteps are the ages of an input at which decisions get more careful;
// 0 = the default, [Never] = it never happens.
type DegradationSteps struct {
	Cautious time.Duration // smaller steps
	Hold     time.Duration // weights are held
	Decay    time.Duration // shares move towards a split by capacity
}

// Never stands for a step that is not taken.
const Never = time.Duration(-1)

// MaxAge bounds the ages of Degradation.
const MaxAge = 7 * 24 * time.Hour

func readDegradation(v strict.Value, d *Degradation) {
	v.Object([]strict.Field{
		{Name: "reports", Read: func(v strict.Value) { readSteps(v, &d.Reports) }},
		{Name: "health", Read: func(v strict.Value) { readSteps(v, &d.Health) }},
		{Name: "topology", Read: func(v strict.Value) { readSteps(v, &d.Topology) }},
	})
}

func readSteps(v strict.Value, s *DegradationSteps) {
	type given struct {
		name string
		age  time.Duration
	}
	var before []given
	step := func(name string, into *time.Duration) strict.Field {
		return strict.Field{Name: name, Read: func(v strict.Value) {
			if v.IsText() {
				if text, _ := v.Text(); text == "never" {
					*into = Never
					return
				}
			}
			age, ok := v.Duration(MinInterval, MaxAge)
			if !ok {
				return
			}
			for _, b := range before {
				if age < b.age {
					v.Errorf("give it "+b.age.String()+" or more, or never", "%s is less than %s, and comes after it", age, b.name)
					return
				}
			}
			before, *into = append(before, given{name, age}), age
		}}
	}
	v.Object([]strict.Field{
		step("cautious_after", &s.Cautious), step("hold_after", &s.Hold), step("decay_after", &s.Decay),
	})
}
