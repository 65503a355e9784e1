package load

import (
	"slices"

	"github.com/isobar-xds/isobar"
)

// Clients with a voice are those that were there before others had a history, those that took over
// what others had proven, and after ten minutes those with a certificate. What requests experience
// in a locality does not depend on who sends them: where clients with a voice send enough, the
// requests of the others count as if they experienced the same. So invented clients take no capacity
// from a locality, and empty none. All clients count where those with a voice are fewer than three,
// or send less than this.
const enoughVoices = 20.0 // requests of a window to a locality

// voice is what clients with a voice experience in a locality in their newest windows.
type voice struct {
	locality isobar.Locality
	clients  int
	ended    float64 // requests
	failed   float64 // of them, without success
	worst    float64 // failed ones of the client with the most, and
	worstOf  float64 // its requests
	sampled  float64 // requests/s of the clients that report requests in progress
	atServer float64 // their requests in progress, without those on the network
}

// findVoices decides which clients of a service have a voice, as of now.
func (o *observer) findVoices(c *comparison) {
	svc := c.service
	svc.doubtful = false
	for _, src := range svc.sources {
		for _, f := range src.flows {
			f.quiet = f.compared && alikeness*min(f.proof, f.replaces) < f.counted(c.now, c.interval) && (c.young(f) || f.anonymous())
			svc.doubtful = svc.doubtful || f.quiet
		}
	}
}

// hear adds up what clients with a voice experience, by locality, where the service has others.
func (o *observer) hear(svc *service) {
	svc.voices = svc.voices[:0]
	if !svc.doubtful {
		svc.voices = nil // clients may have named many localities
		return
	}
	for _, src := range svc.sources {
		for _, f := range src.flows {
			_, fresh := f.trust(o.now, o.interval)
			if weight := f.counting(o.now, o.interval); !f.quiet && fresh && weight > 0 {
				o.hearFlow(svc, f, weight)
			}
		}
	}
}

func (o *observer) hearFlow(svc *service, f *flow, weight float64) {
	seconds := f.window.length.Seconds() * weight
	for i := range f.window.sites {
		s := &f.window.sites[i]
		if s.left {
			continue
		}
		where := s.where()
		k, found := svc.voices.find(where)
		if !found {
			svc.voices = slices.Insert(svc.voices, k, voice{locality: where})
		}
		v, failed := &svc.voices[k], s.errors+s.abandoned
		if ended := (s.succeeded + failed) * seconds; ended > 0 {
			v.clients++
			v.ended, v.failed = v.ended+ended, v.failed+failed*seconds
			if v.clients == 1 || failed*seconds > v.worst {
				v.worst, v.worstOf = failed*seconds, ended
			}
		}
		if delay, assumed := o.network.Latency(f.source.locality, where); !assumed && f.gauge.left == "" {
			v.sampled += s.issued * weight
			v.atServer += max(0, s.inProgress-s.issued*delay/1000) * weight
		}
	}
}

// voices are sorted by locality.
type voices []voice

func (v voices) find(l isobar.Locality) (int, bool) {
	return slices.BinarySearchFunc(v, l, func(v voice, l isobar.Locality) int { return v.locality.Compare(l) })
}

// at returns what clients with a voice experience in a locality; nil where they tell too little.
func (v voices) at(l isobar.Locality) *voice {
	if i, found := v.find(l); found && v[i].clients >= jury && v[i].ended-v[i].worstOf >= enoughVoices {
		return &v[i]
	}
	return nil
}

// failing is the part of the requests that fails, without the client with the most failures: a fault
// of its own says nothing about the locality.
func (v *voice) failing() float64 { return (v.failed - v.worst) / (v.ended - v.worstOf) }

// doubted is by how many fewer requests failed in a client's newest window than it tells; negative: by
// how many more, requests/s. As many fail as those of clients with a voice do.
func (v voices) doubted(f *flow, s *siteWindow) float64 {
	if !f.quiet {
		return 0
	}
	x := v.at(s.where())
	if x == nil {
		return 0
	}
	failed, failing := s.errors+s.abandoned, x.failing()
	if failed > failing*(s.succeeded+failed) { // what did not fail did not take place
		return failed - s.succeeded*failing/(1-failing)
	}
	return failed - failing*(s.succeeded+failed)
}

// join adds what clients without a voice report about a locality.
func (o *Observation) join(told *Observation, v *voice) {
	if v != nil && v.sampled > negligible && told.Sampled > 0 {
		told.InProgress = told.Network + told.Sampled*v.atServer/v.sampled
	}
	o.Rate += told.Rate
	o.Goodput += told.Goodput
	o.Errors += told.Errors
	o.Abandoned += told.Abandoned
	o.Sampled += told.Sampled
	o.InProgress += told.InProgress
	o.Network += told.Network
	o.Clipped += told.Clipped
}

// joinAll adds what clients without a voice tell to what the others do.
func joinAll(out, told []Observation, svc *service) []Observation {
	for i := range told {
		k, found := slices.BinarySearchFunc(out, told[i].Locality, func(x Observation, l isobar.Locality) int { return x.Locality.Compare(l) })
		if !found {
			out = slices.Insert(out, k, Observation{Locality: told[i].Locality})
		}
		out[k].join(&told[i], svc.voices.at(told[i].Locality))
	}
	return out
}
