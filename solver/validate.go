package solver

import (
	"fmt"
	"math"
)

const (
	defaultCeiling = 0.8

	maxLatency = 1e9  // ms
	minDemand  = 1e-9 // less counts as no demand
)

// Ranges of what a problem may hold. No fleet is near these limits; within them no
// sum overflows and no product loses its meaning.
const (
	MaxRate    = 1e12 // largest demand, unmanaged load and capacity, requests/s
	MinRate    = 1e-6 // smallest capacity that is not 0, requests/s
	MinCeiling = 1e-3 // smallest ceiling
	MaxServers = 1e9  // most servers of a locality
)

// Validate reports whether a problem can be solved: every number in its range,
// all slices of matching lengths, and no calls in a circle. The error wraps
// ErrInvalid, and ErrCycle if that is why, and names the place.
func (p Problem) Validate() error {
	_, err := p.checked()
	return err
}

// checked is the graph of a problem that can be solved.
func (p Problem) checked() (*callGraph, error) {
	g, err := p.graph()
	if err != nil {
		return nil, err
	}
	for i := range p.Services {
		if err := p.Services[i].validate(p.Sources(i)); err != nil {
			return nil, fmt.Errorf("services[%d]%w", i, err)
		}
	}
	return g, p.validateCalls(g)
}

func invalid(place string, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", place, ErrInvalid, fmt.Sprintf(format, args...))
}

// within says what is wrong with a number that must lie in [lo, hi].
func within(place string, v, lo, hi float64) error {
	if v >= lo && v <= hi { // false for NaN
		return nil
	}
	return invalid(place, "%v is not between %g and %g", v, lo, hi)
}

func (s *Service) validate(sources int) error {
	for i, d := range s.Demand {
		if err := within(fmt.Sprintf(".demand[%d]", i), d, 0, MaxRate); err != nil {
			return err
		}
	}
	for l, loc := range s.Localities {
		if err := loc.validate(fmt.Sprintf(".localities[%d]", l)); err != nil {
			return err
		}
	}
	if err := within(".max_shed", s.MaxShed, 0, 1); err != nil {
		return err
	}
	if err := within(".ties", s.Ties, 0, 1); err != nil {
		return err
	}
	if err := s.validateMatrices(sources); err != nil {
		return err
	}
	if err := s.validateVariability(sources); err != nil {
		return err
	}
	if s.WarmPrices != nil && len(s.WarmPrices) != len(s.Localities) {
		return invalid(".warm_prices", "%d entries for %d localities", len(s.WarmPrices), len(s.Localities))
	}
	for l, p := range s.WarmPrices {
		if math.IsNaN(p) || math.IsInf(p, 0) {
			return invalid(fmt.Sprintf(".warm_prices[%d]", l), "%v is not a number", p)
		}
	}
	return nil
}

func (s *Service) validateVariability(sources int) error {
	switch {
	case s.Variability == nil:
		return nil
	case len(s.Calls) > 0 || sources != len(s.Demand):
		return invalid(".variability", "calls connect the service with others")
	case len(s.Variability) != sources:
		return invalid(".variability", "%d entries for %d sources", len(s.Variability), sources)
	}
	for i, v := range s.Variability {
		if err := within(fmt.Sprintf(".variability[%d]", i), v, 0, 1); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) validateMatrices(sources int) error {
	if err := s.matrix(".latency", s.Latency, sources, maxLatency); err != nil {
		return err
	}
	if s.Price != nil {
		if err := s.matrix(".price", s.Price, sources, maxLatency); err != nil {
			return err
		}
	}
	if s.Last != nil {
		if err := s.matrix(".last", s.Last, sources, math.MaxFloat64/1e6); err != nil {
			return err
		}
	}
	if s.Previous != nil {
		// Flows of any size: only their shares count.
		if err := s.matrix(".previous", s.Previous, sources, math.MaxFloat64/1e6); err != nil {
			return err
		}
	}
	if s.Allowed == nil {
		return nil
	}
	if len(s.Allowed) != sources {
		return invalid(".allowed", "%d rows for %d sources", len(s.Allowed), sources)
	}
	for i, row := range s.Allowed {
		if len(row) != len(s.Localities) {
			return invalid(fmt.Sprintf(".allowed[%d]", i), "%d entries for %d localities", len(row), len(s.Localities))
		}
	}
	return nil
}

func (s *Service) matrix(place string, m [][]float64, sources int, limit float64) error {
	if len(m) != sources {
		return invalid(place, "%d rows for %d sources", len(m), sources)
	}
	for i, row := range m {
		if len(row) != len(s.Localities) {
			return invalid(fmt.Sprintf("%s[%d]", place, i), "%d entries for %d localities", len(row), len(s.Localities))
		}
		for l, v := range row {
			if v >= 0 && v <= limit {
				continue
			}
			return within(fmt.Sprintf("%s[%d][%d]", place, i, l), v, 0, limit)
		}
	}
	return nil
}

func (l Locality) validate(place string) error {
	if l.Capacity != 0 {
		if err := within(place+".capacity", l.Capacity, MinRate, MaxRate); err != nil {
			return err
		}
	}
	if err := within(place+".servers", l.Servers, 0, MaxServers); err != nil {
		return err
	}
	if l.Queues != 0 {
		if err := within(place+".queues", l.Queues, 1, MaxServers); err != nil {
			return err
		}
	}
	if l.Ceiling != 0 {
		if err := within(place+".ceiling", l.Ceiling, MinCeiling, 1); err != nil {
			return err
		}
	}
	return within(place+".unmanaged", l.Unmanaged, 0, MaxRate)
}

const (
	// checkSlack is the relative error that sums of many flows may carry.
	checkSlack = 1e-9
	// headroomRounding is the rounding of a headroom, relative to the ceiling and the
	// unmanaged load that it is the difference of. Where demand fills all headrooms, it may be
	// found in any of them.
	headroomRounding = 8 * 0x1p-52
)

// Check reports whether a solution keeps all constraints of its service: flows
// are finite, not negative and only where they may be; every source's demand is
// served, shed or unreachable (less than 1e-9
// requests/s is no demand); no load is above its (raised) ceiling; shedding
// stays within MaxShed. It says nothing about quality: see [Objective] and
// [TotalBound].
func Check(s Service, sol ServiceSolution) error {
	if len(sol.Flows) != len(s.Demand) || len(sol.Shed) != len(s.Demand) || len(sol.Unreachable) != len(s.Demand) ||
		len(sol.Scale) != len(s.Localities) {
		return fmt.Errorf("the solution's slices do not fit %d sources and %d localities", len(s.Demand), len(s.Localities))
	}
	load := make([]float64, len(s.Localities))
	demand, shed := 0.0, 0.0
	for i, row := range sol.Flows {
		if len(row) != len(s.Localities) {
			return fmt.Errorf("flows[%d] has %d entries for %d localities", i, len(row), len(s.Localities))
		}
		sum := sol.Shed[i] + sol.Unreachable[i]
		for l, x := range row {
			switch {
			case !(x >= 0) || math.IsInf(x, 1):
				return fmt.Errorf("flows[%d][%d] is %v", i, l, x)
			case x > 0 && !s.open(i, l):
				return fmt.Errorf("flows[%d][%d] is %v where nothing may flow", i, l, x)
			}
			sum += x
			load[l] += x
		}
		if !(math.Abs(sum-s.Demand[i]) <= checkSlack*s.Demand[i]+minDemand) {
			return fmt.Errorf("source %d: %v of %v is served, shed or unreachable", i, sum, s.Demand[i])
		}
		if sol.Shed[i] < 0 || sol.Unreachable[i] < 0 {
			return fmt.Errorf("source %d: negative shed %v or unreachable %v", i, sol.Shed[i], sol.Unreachable[i])
		}
		demand += s.Demand[i]
		shed += sol.Shed[i]
	}
	if shed > s.MaxShed*demand*(1+checkSlack) {
		return fmt.Errorf("%v is shed of %v: more than the fraction %v", shed, demand, s.MaxShed)
	}
	return sol.withinHeadrooms(s, load)
}

// withinHeadrooms reports whether a load is above its ceiling.
func (sol *ServiceSolution) withinHeadrooms(s Service, load []float64) error {
	rounding := 0.0
	for l := range load {
		c := newCurve(s.Localities[l])
		rounding += headroomRounding * (sol.Scale[l]*c.ceiling*c.capacity + c.unmanaged)
	}
	for l, y := range load {
		c := newCurve(s.Localities[l])
		if headroom := c.headroom(sol.Scale[l]); y > headroom+checkSlack*sol.Scale[l]*c.ceiling*c.capacity+rounding {
			return fmt.Errorf("locality %d: load %v is above its room %v", l, y, headroom)
		}
		if !(sol.Scale[l] >= 1) || math.IsInf(sol.Scale[l], 1) {
			return fmt.Errorf("locality %d: scale %v", l, sol.Scale[l])
		}
	}
	return nil
}
