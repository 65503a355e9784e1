package load

import (
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// dimension is one limit of a service in one locality, while it is learned. The
// quantity is taken as a part of its limit.
type dimension struct {
	Dimension

	line    line
	windows int     // so far, in this process
	rate    float64 // of the last few windows, requests/s of an endpoint
	part    float64 // the same of the quantity

	aboveFor  float64 // windows since the quantity came above its limit
	aboveRate float64 // mean rate in the first of them, requests/s of an endpoint
	slowRate  float64 // the same recently

	told      int       // windows in a row that could tell
	off       int       // windows in a row that disagree with the rate in use
	saturated int       // windows in a row in which the quantity can't grow any more
	released  time.Time // when the value in use was last lowered a step because reports are missing
}

// observe takes a window, unless one of this interval was taken before, or it lacks the quantity.
func (x *dimension) observe(now time.Time, l *SiteLoad, site *Site, interval time.Duration) {
	value, told := quantity(l, x.Limit.Metric, site.Size)
	if !told || (!x.At.IsZero() && now.Sub(x.At) < interval*9/10) {
		return
	}
	x.At, x.Value = now, value
	x.windows++
	rate, part := l.Issued/site.Size, min(mostPart, value/x.Limit.Max)
	by := max(recentPart, 1/float64(x.windows))
	x.rate += (rate - x.rate) * by
	x.part += (part - x.part) * by
	x.aboveFor++
	if x.aboveFor <= enterWindows {
		x.aboveRate += (rate - x.aboveRate) / x.aboveFor
		x.slowRate = x.aboveRate
	}
	x.slowRate += (rate - x.slowRate) / enterWindows
	x.draw(rate, value, part, 1/(site.Size*interval.Seconds()))
	x.judge()
	x.follow(site, rate, part)
}

// quantity reads the limited quantity of one endpoint from the landed load.
func quantity(l *SiteLoad, metric string, endpoints float64) (value float64, told bool) {
	switch metric {
	case isobar.MetricInFlight:
		return l.InProgress / endpoints, true
	case isobar.MetricUtilization:
		return l.Utilization, l.Utilization > 0
	}
	name := strings.TrimPrefix(metric, isobar.NamedMetrics)
	i, found := slices.BinarySearchFunc(l.Metrics, name, func(m Metric, n string) int { return strings.Compare(m.Name, n) })
	if !found || l.Metrics[i].Mean < 0 {
		return 0, false // a quantity with an upper limit is not negative
	}
	return l.Metrics[i].Mean, true
}

// draw adds the window and draws the line again. A utilization close to 1 is
// left out: it can't grow any more with the rate.
func (x *dimension) draw(rate, value, part, chance float64) {
	if x.Limit.Ratio() && value > mostUtilized {
		x.saturated++
		return
	}
	x.saturated = 0
	if x.line.take(&x.Fit, x.State == LimitLearned, rate, part) {
		var state CapacityState
		state, x.PerEndpoint, x.Low, x.High = x.Fit.solve(chance, limitRules)
		x.State = limitStates[state]
	}
}

// judge looks at quantities that are above their limit while the line is inconclusive. Only less
// load shows whether less load helps: a quantity that does not follow small changes of the rate
// may move for other reasons. A proportional reduction is exact if the quantity is proportional
// to the rate. If a part of it does not depend on load, the reduction is too small, and is
// repeated. It also varies the rate, which shows whether the quantity follows.
func (x *dimension) judge() {
	above := x.part > 1
	switch {
	case !above || x.State == LimitLearned:
		x.Refuted, x.aboveFor = false, 0
	case x.State == LimitPoor && x.aboveFor > enterWindows && x.slowRate <= tried*x.aboveRate:
		x.Refuted = true
	}
	if !above && x.State == LimitAssumed { // the line was not drawn again
		x.State, x.PerEndpoint = LimitConstant, 0
	}
	if !above || x.Refuted || x.windows < enterWindows {
		return
	}
	if proportional := x.rate / x.part; x.State != LimitLearned || (x.saturated >= enterWindows && proportional < x.PerEndpoint) {
		x.State, x.PerEndpoint, x.Low, x.High = LimitAssumed, proportional, 0, 0
	}
}

// follow moves the rate in use: gently towards the known rate, and away when nothing is known and
// the reports contradict it. It starts from the rate in force, and never goes below the rate that
// a locality keeps whatever is reported.
func (x *dimension) follow(site *Site, rate, part float64) {
	switch {
	case x.State.Tells():
		x.told, x.off = min(x.told+1, enterWindows), 0
		if x.told < enterWindows || x.PerEndpoint <= 0 { // a quantity above its limit without any load is not lowered by less load
			break
		}
		if x.InUse <= 0 {
			x.InUse = x.PerEndpoint
			if site.Allowed > 0 {
				x.InUse = site.Allowed / site.Size
			}
		}
		x.InUse *= 1 + max(-paceStep, min(paceStep, followGain*(x.PerEndpoint/x.InUse-1)))
	case x.InUse > 0:
		x.told = 0
		if x.agrees(rate, part) {
			x.off = 0
		} else if x.off++; x.off > dropWindows {
			x.release(site)
		}
	}
	x.bound(site)
}

// bound keeps the rate in use between the rate that the locality keeps anyway and a little above
// its rate without limits: from farther away it could not return in time.
func (x *dimension) bound(site *Site) {
	if x.InUse <= 0 || site.Size <= 0 {
		return
	}
	if site.Headroom > 0 {
		x.InUse = min(x.InUse, headroomAbove*site.Headroom/site.Size)
	}
	x.InUse = max(x.InUse, site.Least/site.Size)
}

// agrees reports whether a window fits the rate in use, while nothing else is known.
func (x *dimension) agrees(rate, part float64) bool {
	if x.State == LimitPoor {
		return false
	}
	off := part - (x.Fit.Offset + (1-x.Fit.Offset)*rate/x.InUse)
	return max(off, -off) <= disagreement*max(part, leastPart)
}

// release raises the rate in use, a step at a time, until it limits nothing.
func (x *dimension) release(site *Site) {
	if x.InUse *= 1 + paceStep; x.InUse*site.Size >= site.Headroom {
		x.InUse, x.off = 0, 0
	}
}

// expire counts intervals without reports. The rate in use stays in force for a while, and is
// then released.
func (x *dimension) expire(now time.Time, site *Site, interval time.Duration) {
	if x.At.IsZero() || now.Sub(x.At) <= staleWindows*interval {
		return
	}
	x.State, x.PerEndpoint, x.Low, x.High, x.told = LimitStale, 0, 0, 0, 0
	if x.InUse > 0 && now.Sub(x.At) > holdLimit*interval && now.Sub(x.released) >= interval*9/10 {
		x.released = now
		x.release(site)
		x.bound(site)
	}
}
