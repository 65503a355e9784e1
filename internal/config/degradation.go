package config

import (
	"fmt"
	"time"

	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/internal/plan"
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

// Plan returns the steps as decisions take them.
func (d *Degradation) Plan() plan.Degradation {
	return plan.Degradation{Reports: d.Reports.plan(), Health: d.Health.plan(), Topology: d.Topology.plan()}
}

func (s DegradationSteps) plan() plan.Steps {
	step := func(age time.Duration) time.Duration {
		if age == Never {
			return plan.Forever
		}
		return age
	}
	return plan.Steps{Cautious: step(s.Cautious), Hold: step(s.Hold), Decay: step(s.Decay)}
}

// readDegradation needs the report interval, in which the defaults are counted.
func readDegradation(v strict.Value, d *Degradation, reports time.Duration) {
	defaults := plan.Degradation{}.Complete(reports)
	v.Object([]strict.Field{
		{Name: "reports", Read: func(v strict.Value) { readSteps(v, &d.Reports, defaults.Reports) }},
		{Name: "health", Read: func(v strict.Value) { readSteps(v, &d.Health, defaults.Health) }},
		{Name: "topology", Read: func(v strict.Value) { readSteps(v, &d.Topology, defaults.Topology) }},
	})
}

// placedStep is a step with where it is given.
type placedStep struct {
	name     string
	into     *time.Duration
	standard time.Duration // the default; 0 = never
	at       *strict.Value // nil = not given
	age      time.Duration // 0 = never, or what is given can't be read
}

func readSteps(v strict.Value, s *DegradationSteps, defaults plan.Steps) {
	steps := []*placedStep{
		{name: "cautious_after", into: &s.Cautious, standard: defaults.Cautious},
		{name: "hold_after", into: &s.Hold, standard: defaults.Hold},
		{name: "decay_after", into: &s.Decay, standard: defaults.Decay},
	}
	fields := make([]strict.Field, len(steps))
	for i, step := range steps {
		fields[i] = strict.Field{Name: step.name, Read: func(v strict.Value) { step.read(v, steps[:i]) }}
	}
	v.Object(fields)
	checkDefaults(steps)
}

// read reads a step that comes after others.
func (p *placedStep) read(v strict.Value, before []*placedStep) {
	p.at = &v
	if v.IsText() {
		if text, _ := v.Text(); text == "never" {
			*p.into = Never
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
	p.age, *p.into = age, age
}

// checkDefaults holds the steps that are given against the defaults of those that
// are not: a hold that begins after the shares have begun to decay never comes.
func checkDefaults(steps []*placedStep) {
	for i, given := range steps {
		for j, other := range steps {
			if given.age == 0 || other.at != nil || other.standard == 0 {
				continue
			}
			hint := fmt.Sprintf("%s is %s by default; give it, too, or never", other.name, other.standard)
			switch {
			case j < i && given.age < other.standard:
				given.at.Errorf(hint, "%s is less than %s, and comes after it", given.age, other.name)
			case j > i && given.age > other.standard:
				given.at.Errorf(hint, "%s is more than %s, and comes before it", given.age, other.name)
			}
		}
	}
}
