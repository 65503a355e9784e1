package capacity

import "math"

// Rules of windows.
const (
	leastWindow = 20.0 // requests in a window, below which it is skipped
	diedWithin  = 0.05 // part that fails of a window in which a locality dies
	sigmas      = 3    // standard deviations that are no longer chance
)

// Window holds the observations of one report interval. Rates are requests/s.
type Window struct {
	Rate float64 // of attempts
	// Sampled is the part of Rate of the clients whose requests are counted in
	// InProgress; Network is how many of these are expected on the network. 0 =
	// there is no sample.
	Sampled, InProgress, Network float64
	Goodput                      float64 // requests/s that succeeded
	Failing                      float64 // part of the requests that failed or were given up, 0 to 1
	Utilization                  float64 // as reported by the servers; 0 = not reported
	Seconds                      float64 // length of the window
	Units                        float64 // the serving units: the weight of the endpoints that take traffic
	Queues                       float64 // endpoints that take traffic, each with a queue of its own; 0 = as many as units
	// Varies is the standard deviation of the rate within windows, as a part of it: the
	// requests in progress are counted at one moment of it.
	Varies  float64
	Timeout float64 // of the requests, in seconds; 0 = not known
}

// Prior is the estimate without evidence.
type Prior struct {
	PerUnit float64 // capacity of one unit, requests/s
	Width   float64 // factor within which two thirds of the probability lie; above 1
	Assumed bool    // PerUnit is not declared: plans don't use it
	Service float64 // service time in seconds
	// Shedding is the probability that the servers refuse excess requests, 0 to 1; 0 = unknown.
	Shedding float64
}

func (w *Window) valid() bool {
	for _, v := range [...]float64{w.Rate, w.Sampled, w.InProgress, w.Network, w.Goodput, w.Failing, w.Utilization, w.Seconds,
		w.Units, w.Queues, w.Varies, w.Timeout,
	} {
		if !(v >= 0 && v < 1e12) {
			return false
		}
	}
	return w.Seconds > 0 && w.Units > 0 && w.Failing <= 1
}

// dead reports whether requests fail although far fewer are in progress than those that
// succeed explain: nothing listens any more, or did in a part of the window only. That
// tells nothing about how many a locality can serve. Full servers have more in progress.
func (w *Window) dead(p *Prior) bool {
	held, explained := w.InProgress-w.Network, w.Sampled*p.Service
	if w.Failing > collapsed {
		return held <= explained
	}
	explained *= 1 - w.Failing
	return w.Failing > diedWithin && held < explained-sigmas*math.Sqrt(explained)
}

// queues is the number of queues that requests wait in.
func (w *Window) queues() float64 {
	if w.Queues > 0 {
		return w.Queues
	}
	return w.Units
}

func (p *Prior) valid() bool {
	return p.Shedding >= 0 && p.Shedding <= 1 && p.PerUnit > 1e-9 && p.PerUnit < 1e12 && p.Width > 1 && p.Width < 1e3 && p.Service > 1e-9 && p.Service < 1e6
}

// modes are the probabilities of the ways in which servers behave.
func (p *Prior) modes() [modes]float64 {
	shed := sheddingPrior
	if p.Shedding > 0 {
		shed = min(surelySheds, max(1-surelySheds, p.Shedding))
	}
	return [modes]float64{queueing: 1 - shed, shedding: shed}
}
