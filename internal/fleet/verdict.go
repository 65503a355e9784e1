package fleet

import (
	"fmt"
	"time"

	"github.com/isobar-xds/isobar"
)

// Verdict is how the modes of a demo fared, beside each other.
type Verdict struct {
	Outcomes []Outcome `json:"outcomes"` // in the order in which they ran
	OK       bool      `json:"ok"`
	// Why lists what was not as it should be; empty when OK.
	Why []string `json:"why,omitempty"`
}

// Outcome is how one mode fared.
type Outcome struct {
	Mode isobar.Mode  `json:"mode"`
	Step PhaseOutcome `json:"step"` // from the step of the load until its end
	Loss PhaseOutcome `json:"loss"` // from the loss of a zone until the end
}

// PhaseOutcome is how a mode fared after one event. Latency is that of the
// requests that were answered.
type PhaseOutcome struct {
	Zone             isobar.Locality `json:"zone"` // where it happened
	Seconds          float64         `json:"seconds"`
	Requests         uint64          `json:"requests"`
	MeanMS           float64         `json:"mean_ms"`
	P99MS            float64         `json:"p99_ms"`
	FinalMeanMS      float64         `json:"final_mean_ms"` // over the last third
	FinalP99MS       float64         `json:"final_p99_ms"`
	FullestZone      isobar.Locality `json:"fullest_zone"` // over the last third
	FullestLoad      float64         `json:"fullest_load"` // requests that arrive there / its capacity
	Failed           uint64          `json:"failed"`       // after a loss: from 2 s on
	FailedAtOnce     uint64          `json:"failed_at_once"`
	Unavoidable      uint64          `json:"unavoidable"` // failures for lack of capacity in the whole fleet
	CrossRegion      float64         `json:"cross_region"`
	Settled          bool            `json:"settled"`
	SecondsToSettle  float64         `json:"seconds_to_settle"` // 0 when it has not settled
	SettledBelowLoad float64         `json:"settled_below_load"`
	LateMS           float64         `json:"late_ms"` // how late the load generator was at worst
}

const (
	// graceAfterLoss is how long requests may fail for the loss itself: no
	// control plane can take back what a dying zone was working on.
	graceAfterLoss = 2 * time.Second
	// settledSlack is added to the ceiling for the randomness of arrivals.
	settledSlack = 0.1
)

// Outcome sums up a run that was played to its end.
func (r *Run) Outcome() Outcome {
	s := &r.scenario
	return Outcome{
		Mode: r.mode,
		Step: r.phaseOutcome(s.Step.Zone, s.WarmUp, s.WarmUp+s.OnStep, 0, isobar.Locality{}),
		Loss: r.phaseOutcome(s.Loss.Zone, s.lossAt(), s.Length(), graceAfterLoss, s.Loss.Zone),
	}
}

// phaseOutcome sums up what followed an event at an offset; dead is the zone
// that has no capacity any more (zero = none).
func (r *Run) phaseOutcome(zone isobar.Locality, event, end, grace time.Duration, dead isobar.Locality) PhaseOutcome {
	grace = min(grace, end-event)
	whole := r.recorder.Window(event, end)
	final := r.recorder.Window(end-(end-event)/3, end)
	counted := r.recorder.Window(event+grace, end)
	demand, capacity := 0.0, 0.0
	for i, z := range r.scenario.Zones {
		demand += r.scenario.rate(i, event)
		if z.Locality != dead {
			capacity += float64(z.Backends) * r.scenario.backendCapacity()
		}
	}
	out := PhaseOutcome{
		Zone: zone, Seconds: (end - event).Seconds(), Requests: whole.Requests,
		MeanMS: inMS(whole.Mean), P99MS: inMS(whole.P99),
		FinalMeanMS: inMS(final.Mean), FinalP99MS: inMS(final.P99),
		Failed: counted.Failed, FailedAtOnce: whole.Failed - counted.Failed,
		Unavoidable:      uint64(max(0, demand-capacity) * (end - event - grace).Seconds()),
		CrossRegion:      whole.CrossRegion,
		LateMS:           inMS(whole.Late),
		SettledBelowLoad: max(isobar.DefaultCeiling, demand/capacity) + settledSlack,
	}
	out.FullestZone, out.FullestLoad = final.Fullest()
	after, ok := r.recorder.Settled(event, end, out.SettledBelowLoad)
	out.Settled, out.SecondsToSettle = ok, after.Seconds()
	return out
}

// Judge says whether Isobar did its work: in mode full the fleet settled after
// both events and, from the time allowed after the loss, served all that
// capacity allows.
func Judge(outcomes []Outcome) Verdict {
	v := Verdict{Outcomes: outcomes}
	judged := false
	for i := range outcomes {
		if outcomes[i].Mode != isobar.ModeFull {
			continue
		}
		judged = true
		v.Why = append(v.Why, outcomes[i].Step.unsettled("the step")...)
		v.Why = append(v.Why, outcomes[i].Loss.unsettled("the loss")...)
		if l := &outcomes[i].Loss; l.Failed > l.Unavoidable {
			v.Why = append(v.Why, fmt.Sprintf("%d requests failed from %v after the loss, where capacity allows to serve all but %d",
				l.Failed, graceAfterLoss, l.Unavoidable))
		}
	}
	if !judged {
		v.Why = append(v.Why, "mode full was not run")
	}
	v.OK = len(v.Why) == 0
	return v
}

func (p *PhaseOutcome) unsettled(event string) []string {
	if p.Settled {
		return nil
	}
	return []string{fmt.Sprintf("not settled %.0f s after %s in %s: %s is loaded at %.0f%%, %d requests failed",
		p.Seconds, event, p.Zone, p.FullestZone, 100*p.FullestLoad, p.Failed)}
}

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
