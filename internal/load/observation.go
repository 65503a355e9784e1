package load

import (
	"math"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
)

// Observation is the experience of requests in one locality of a service, summed over all
// clients.
type Observation struct {
	Locality isobar.Locality
	// Rate is the attempts/s that reach the locality. A client that is left out
	// because its figures disagree counts with at most twice the mean of the other
	// clients of its source.
	Rate      float64
	Goodput   float64 // requests/s that succeeded
	Errors    float64 // requests/s
	Abandoned float64 // requests/s that ended without success or error
	// Sampled is the part of Rate, in requests/s, whose clients reported their requests in
	// progress since the previous observation. 0 = no client did, and InProgress means nothing.
	Sampled float64
	// InProgress is the number of requests of these clients. Network is the part of it in
	// transit, expected by Little's law. Clipped is the reported part that is implausible beside
	// the other clients of the same source. All are in requests.
	InProgress, Network, Clipped float64
}

// AtServer is the number of requests of the sampled clients at the server.
func (o *Observation) AtServer() float64 { return max(0, o.InProgress-o.Network) }

// Failing is the part of the requests that ended without success, 0 to 1.
func (o *Observation) Failing() float64 {
	failed := o.Errors + o.Abandoned
	if ended := o.Goodput + failed; ended > 0 {
		return failed / ended
	}
	return 0
}

// LeftOutReason says why a client's requests in progress are not counted.
type LeftOutReason string

// The reasons.
const (
	LeftOutMute     LeftOutReason = "it never reports requests in progress"
	LeftOutDisagree LeftOutReason = "its requests in progress do not fit its rate"
)

// LeftOut is a client whose requests in progress are not counted.
type LeftOut struct {
	Source isobar.Locality
	Node   string // node.id
	Reason LeftOutReason
}

// Rules of observations. The expected number of requests in progress of a client
// is its rate times the requests in progress per request/s of the other clients.
const (
	memoryGauges = 16.0  // windows over which a client is compared with the others
	longMemory   = 120.0 // the same, for clients with so few requests in progress that those tell nothing
	leastGauges  = 8.0   // requests that have to be expected of a client before it is judged by none
	leastShown   = 4.0   // requests in progress of a client that others are compared with
	jury         = 3     // clients of a source from which on they are compared with their median
	disagrees    = 3.0   // factor from the median beyond which a client is left out
	mostLeftOut  = 64    // clients of a service that are named
)

// clip is the largest accepted number of requests in progress for an expected number.
func clip(expected float64) float64 { return 2*expected + 3*math.Sqrt(expected) + 1 }

// gauge compares the requests in progress that a flow reports with its rate,
// over the last windows.
type gauge struct {
	short   gaugeSums // over memoryGauges
	long    gaugeSums // over longMemory
	sampled time.Time
	at      time.Time // of the snapshot that counted the newest window
	left    LeftOutReason
	fits    float64 // part of its rate that its requests in progress explain; 0 = not known
	bound   bool    // its rate counts in part, because of that
}

// gaugeSums are sums over windows that forget.
type gaugeSums struct {
	held float64 // requests in progress
	rate float64 // requests/s
}

// add adds a window to the sums, which forget over so many windows.
func (s *gaugeSums) add(held, rate, memory float64) {
	keep := 1 - 1/memory
	s.held, s.rate = s.held*keep+held, s.rate*keep+rate
}

// perRate is the requests in progress per request/s; ok is false without requests.
func (s *gaugeSums) perRate() (ratio float64, ok bool) {
	if s.rate <= 0 {
		return 0, false
	}
	return s.held / s.rate, true
}

// siteView sums the reports of the clients of one source about one locality.
type siteView struct {
	locality *isobar.Locality
	delay    float64 // on the network, seconds; below 0 = not looked up yet
	assumed  bool    // delay is a guess, so nothing can be taken off by it
	rate     float64 // requests/s of the clients with a new sample that are not left out
	held     float64 // requests in progress that they tell
	all      float64 // requests/s of all clients
	clients  int     // that send there
}

// views are the localities of one source, sorted. The memory is used again for
// the next source.
type views struct {
	list []siteView
	next int // where the search begins: windows list localities in the same order
}

func (v *views) reset() { v.list, v.next = v.list[:0], 0 }

// find finds or makes the view of a locality that counts.
func (v *views) find(l *isobar.Locality) *siteView {
	for range 2 {
		if v.next < len(v.list) && v.list[v.next].locality == l {
			v.next++
			return &v.list[v.next-1]
		}
		v.next = 0
	}
	i, found := slices.BinarySearchFunc(v.list, l, func(x siteView, l *isobar.Locality) int { return compareLocalities(x.locality, l) })
	if !found {
		v.list = slices.Insert(v.list, i, siteView{locality: l, delay: -1})
	}
	v.next = i + 1
	return &v.list[i]
}

// compareLocalities compares localities by their content; nil is the zero one.
func compareLocalities(a, b *isobar.Locality) int {
	s := siteWindow{locality: a}
	return s.compare(b)
}

// observer computes the observations of a service.
type observer struct {
	network *isobar.Network
	// Of the snapshot that is taken.
	now      time.Time
	interval time.Duration

	views  views     // memory
	ratios []float64 // the same
}

// observe computes the observations of a service from the windows of all flows that count.
func (o *observer) observe(svc *service) (out []Observation, left []LeftOut) {
	out = make([]Observation, 0, svc.observed)
	var told []Observation // by clients without a voice
	for _, src := range svc.sources {
		o.views.reset()
		o.tally(src)
		for _, f := range src.flows {
			if weight := f.counting(o.now, o.interval); weight > 0 {
				if f.quiet {
					told = o.addFlow(told, f, weight)
				} else {
					out = o.addFlow(out, f, weight)
				}
				if f.gauge.left != "" && len(left) < mostLeftOut {
					left = append(left, LeftOut{Source: src.locality, Node: f.stream.node.ID, Reason: f.gauge.left})
				}
			}
		}
	}
	out = joinAll(out, told, svc)
	svc.observed = len(out)
	if svc.inProgress <= 0 { // no client reports requests in progress
		for i := range out {
			out[i].Sampled, out[i].InProgress, out[i].Network = 0, 0, 0
		}
	}
	return out, left
}

// judgeGauges decides which clients are left out, and finds the usual number of requests
// in progress per request/s.
func (o *observer) judgeGauges(svc *service) {
	all := o.ratios[:0]
	var voices []float64
	for _, src := range svc.sources {
		for _, f := range src.flows {
			f.sample(o.now)
			if ratio, _ := f.gauge.short.perRate(); ratio > 0 {
				all = append(all, ratio)
				if svc.doubtful && !f.quiet {
					voices = append(voices, ratio)
				}
			}
		}
	}
	o.ratios = all
	if svc.doubtful && len(voices) >= jury {
		all = voices
	}
	service := median(all)
	var own []float64
	for _, src := range svc.sources {
		var short, long float64
		short, own = usualGauge(src, own, func(g *gauge) *gaugeSums { return &g.short })
		long, own = usualGauge(src, own, func(g *gauge) *gaugeSums { return &g.long })
		for _, f := range src.flows {
			f.gauge.judge(short, long, service)
		}
	}
	svc.inProgress = service
}

// usualGauge is the median of the requests in progress per request/s of a source's clients.
// It is 0 where those are too few to be compared, or half of them show next to no requests in
// progress: then the median is chance. It uses the memory of own.
func usualGauge(s *source, own []float64, of func(*gauge) *gaugeSums) (usual float64, memory []float64) {
	own = own[:0]
	shown := 0
	voices := s.hasJury()
	for _, f := range s.flows {
		if voices && f.quiet {
			continue
		}
		sums := of(&f.gauge)
		ratio, ok := sums.perRate()
		if !ok {
			continue
		}
		own = append(own, ratio)
		if sums.held >= leastShown {
			shown++
		}
	}
	if len(own) < jury || 2*shown <= len(own) {
		return 0, own
	}
	return median(own), own
}

// hasJury reports whether enough clients of a source with a voice report requests in progress, so
// that the others are compared with these.
func (s *source) hasJury() bool {
	n := 0
	for _, f := range s.flows {
		if _, ok := f.gauge.short.perRate(); ok && !f.quiet {
			n++
		}
	}
	return s.service.doubtful && n >= jury
}

// judge compares a client with the usual requests in progress per request/s of
// its source, or, where that has too few clients, of the service. Its last windows
// decide if so many requests are expected in them that a wrong rate would show.
// Otherwise its longer history does.
func (g *gauge) judge(short, long, service float64) {
	g.left, g.fits = g.short.judge(short, service)
	if g.left == "" && !tells(max(short*g.short.rate, g.short.held)) {
		g.left, g.fits = g.long.judge(long, service)
	}
}

// tells reports whether so many requests in progress are expected that a rate which is
// wrong by the factor that disagrees shows beyond chance.
func tells(expected float64) bool {
	return expected*(1-1/disagrees) > sigmas*math.Sqrt(expected)+leastGauges
}

// judge returns the reason why a client is left out, if it is, and the part of its rate that
// its requests in progress explain (0 = not known).
func (s *gaugeSums) judge(usual, service float64) (left LeftOutReason, fits float64) {
	reference := usual
	if reference <= 0 {
		reference = service
	}
	expected := reference * s.rate
	switch {
	case s.held <= 0 && expected >= leastGauges:
		return LeftOutMute, 0
	case usual <= 0 || expected < 1:
		// With two clients it is unknown which of them is wrong.
	case max(s.held, expected) > disagrees*min(s.held, expected) && math.Abs(s.held-expected) > sigmas*math.Sqrt(expected)+leastGauges:
		return LeftOutDisagree, s.held / expected
	}
	return "", 0
}

// boundByGauges limits the counted load of clients whose requests in progress explain only a part
// of their rate: twice that part, and as much as two of the other clients of their source. A
// gateway that sends ten times as much as others has ten times as many requests in progress, too;
// and requests that occupy servers for a fifth of the usual time need a fifth of the capacity. It
// returns the part of all requests that counted until now and does no longer.
func (s *service) boundByGauges() (misled float64) {
	all, off := 0.0, 0.0
	for _, src := range s.sources {
		usual := src.agreed()
		for _, f := range src.flows {
			rate := f.window.rate()
			all += rate
			most := alikeness * max(f.gauge.fits*rate, usual)
			bound := f.gauge.fits > 0 && rate > most
			if bound {
				f.weight = min(f.weight, most/rate)
			}
			if bound && !f.gauge.bound {
				off += rate - most
			}
			f.gauge.bound = bound
		}
	}
	if off <= 0 {
		return 0
	}
	return off / all
}

// tally sums the newest windows of a source by locality.
func (o *observer) tally(src *source) {
	for _, f := range src.flows {
		weight := f.counting(o.now, o.interval)
		if weight <= 0 {
			continue
		}
		o.views.next = 0
		sampled := f.gauge.left == "" && f.sample(o.now)
		for i := range f.window.sites {
			s := &f.window.sites[i]
			if s.left {
				continue
			}
			v := o.views.find(s.locality)
			if v.delay < 0 {
				ms, assumed := o.network.Latency(src.locality, s.where())
				v.delay, v.assumed = ms/1000, assumed
			}
			v.all += s.issued * weight
			v.clients++
			if sampled {
				v.rate += s.issued * weight
				v.held += s.inProgress * weight
			}
		}
	}
}

// addFlow adds the newest window of one flow to the observations.
func (o *observer) addFlow(out []Observation, f *flow, weight float64) []Observation {
	o.views.next = 0
	sampled := f.gauge.left == "" && f.sample(o.now)
	for i := range f.window.sites {
		s := &f.window.sites[i]
		if s.left {
			continue
		}
		v := o.views.find(s.locality)
		var x *Observation
		out, x = observationOf(out, i, s)
		part := weight
		if f.gauge.left == LeftOutDisagree {
			part = v.bounded(s.issued*weight) / max(negligible, s.issued)
		}
		doubted := f.source.service.voices.doubted(f, s)
		x.Rate += max(0, s.issued-max(0, doubted)) * part
		x.Goodput += (s.succeeded + min(0, doubted)) * part
		x.Errors += max(0, s.errors-doubted) * part
		x.Abandoned += max(0, s.abandoned-max(0, doubted-s.errors)) * part
		if sampled && !v.assumed {
			x.sample(v, s.issued*weight, s.inProgress*weight)
		}
	}
	return out
}

// observationOf finds or makes the observation of a window's locality. It looks
// at guess first.
func observationOf(out []Observation, guess int, s *siteWindow) ([]Observation, *Observation) {
	if guess < len(out) && s.locality != nil && out[guess].Locality == *s.locality {
		return out, &out[guess]
	}
	where := s.where()
	i, found := slices.BinarySearchFunc(out, where, func(x Observation, l isobar.Locality) int { return x.Locality.Compare(l) })
	if !found {
		out = slices.Insert(out, i, Observation{Locality: where})
	}
	return out, &out[i]
}

// bounded is the counted part of a doubted rate: at most twice the mean of the other clients.
func (v *siteView) bounded(rate float64) float64 {
	if v.clients < 2 {
		return rate
	}
	return min(rate, 2*max(0, v.all-rate)/float64(v.clients-1))
}

// sample adds one client's requests in progress. They count as far as they are plausible beside
// the other clients of the same source.
func (o *Observation) sample(v *siteView, rate, held float64) {
	counted := held
	if others := v.rate - rate; others > negligible {
		counted = min(held, clip(rate*max(0, v.held-held)/others))
	}
	o.Sampled += rate
	o.InProgress += counted
	o.Network += rate * v.delay
	o.Clipped += held - counted
}

// Observation returns the observation of a locality; nil if there is none.
func (s *ServiceLoad) Observation(l isobar.Locality) *Observation {
	if s == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(s.Observations, l, func(x Observation, l isobar.Locality) int { return x.Locality.Compare(l) })
	if !found {
		return nil
	}
	return &s.Observations[i]
}
