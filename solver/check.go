package solver

import (
	"fmt"
	"math"
)

const (
	// checkSlack is the relative error that sums of many flows may carry.
	checkSlack = 1e-9
	// headroomRounding is the rounding of a room, relative to the ceiling and the
	// background that it is the difference of. Where demand fills all rooms, it may be
	// found in any of them.
	headroomRounding = 8 * 0x1p-52
)

// Check tells whether a solution keeps all constraints of its service: flows
// are finite, not negative and only where they may be; every source's demand is
// served, shed or unreachable (less than 1e-9
// requests/s is no demand); no load is above its (raised) ceiling; shedding
// stays within MaxShed. It says nothing about quality: see Objective and Bound.
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

// withinHeadrooms tells whether a load is above its ceiling.
func (sol *ServiceSolution) withinHeadrooms(s Service, load []float64) error {
	rounding := 0.0
	for l := range load {
		c := newCurve(s.Localities[l])
		rounding += headroomRounding * (sol.Scale[l]*c.ceiling*c.capacity + c.background)
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
