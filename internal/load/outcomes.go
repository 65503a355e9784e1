package load

import "time"

// Outcomes counts the newest requests of a source: of as many windows as it takes to
// judge by, so that a service with few requests is judged, too.
type Outcomes struct {
	Attempts, Failed float64 // requests
}

const (
	// enoughOutcomes is how many requests are remembered, where the newest window does
	// not hold more.
	enoughOutcomes = 400
	// outcomesTimes is the time constant with which they are forgotten, intervals.
	outcomesTimes = 24.0
)

// add takes in the requests of newly measured time, in which so many a second were
// sent and failed.
func (o *Outcomes) add(landed []LandedLoad, news, interval time.Duration) {
	if news <= 0 {
		return
	}
	attempts, failed := 0.0, 0.0
	for i := range landed {
		l := &landed[i]
		attempts += max(l.Issued, l.Succeeded+l.Errors) * news.Seconds()
		failed += l.Errors * news.Seconds()
	}
	keep := 1 - gain(news, outcomesTimes, interval)
	if o.Attempts > 0 {
		keep = min(keep, max(0, enoughOutcomes-attempts)/o.Attempts)
	}
	o.Attempts = o.Attempts*keep + attempts
	o.Failed = o.Failed*keep + failed
}
