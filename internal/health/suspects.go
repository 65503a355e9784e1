package health

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plural"
)

const (
	suspectAfter  = 3                // ends for which one service can be the reason
	suspectWithin = 10 * time.Minute // of each other
	suspectRest   = 30 * time.Second // before a suspected service is tried, doubled with each end
	suspectMost   = 10 * time.Minute // that this grows to
	suspectTrial  = 30 * time.Second // that a checker has for its first word on a suspected service
	suspectFor    = time.Hour        // without an end, after which a service that is probed is no longer suspected
)

// Ended says that a checker ended its stream soon after it got a new designation, and before it
// reported.
type Ended struct {
	Checker  string    `json:"checker"`
	Services []string  `json:"services"` // new or changed since its last report, sorted
	At       time.Time `json:"at"`
}

// Bar keeps a checker from the endpoints of a service.
type Bar struct {
	Checker string `json:"checker"`
	Service string `json:"service"`
}

// Suspicion says that checkers exited after Isobar assigned a service to them.
type Suspicion struct {
	Ends     int       `json:"ends"`
	Checkers []string  `json:"checkers"` // that ended, sorted
	Last     time.Time `json:"last"`     // end
	Trial    string    `json:"trial,omitempty"`
	Probing  []string  `json:"probing"` // checkers that probe it without exiting, sorted
}

// Text describes it in a sentence.
func (s *Suspicion) Text() string {
	return fmt.Sprintf("checkers disconnected %s after Isobar assigned this service to them (%s): Isobar now assigns it to one checker at a time",
		plural.Count(s.Ends, "time", "times"), strings.Join(s.Checkers, ", "))
}

// suspects are the services that may end their checkers. What a checker was
// told last is held against it when it ends; for a service that is common to
// enough ends, checkers are tried one at a time, each with one such service.
type suspects struct {
	ends []*ends    // sorted by checker
	list []*suspect // sorted by service
}

// ends are those of one checker without a report between them.
type ends struct {
	checker  string
	services []string // told before each of them
	count    int
	last     time.Time
}

type suspect struct {
	Suspicion

	service string
	checks  []isobar.HealthCheck // as they were
	next    time.Time            // when it may be tried
	since   time.Time            // of the trial
	tried   string               // the last checker that was
}

// suspicion is the input of the suspects from an observation.
type suspicion struct {
	*Event

	topology *isobar.Topology              // of services with checks
	voters   func(service string) []string // checkers with a fresh vote, sorted
}

// observe takes an event in, and reports whether it changed the result of Bars; found lists the
// services that are suspected from now on.
func (s *suspects) observe(e *suspicion) (changed bool, found []string) {
	if len(e.Ended) == 0 && len(s.ends) == 0 && len(s.list) == 0 {
		return false, nil
	}
	s.ends = slices.DeleteFunc(s.ends, func(x *ends) bool { return e.Now.Sub(x.last) > suspectWithin })
	s.list = slices.DeleteFunc(s.list, func(x *suspect) bool {
		gone := x.over(e)
		changed = changed || gone
		return gone
	})
	changed = s.hear(e.Reports) || changed
	for i := range e.Ended {
		changed = s.end(&e.Ended[i], e.Now) || changed
	}
	if len(e.Ended) > 0 {
		found = s.accuse(e)
	}
	return s.try(e) || changed || len(found) > 0, found
}

// over reports whether a service is no longer suspected: its checks changed, or
// enough checkers bear it, among them those that ended, or for some time.
func (x *suspect) over(e *suspicion) bool {
	spec, ok := e.topology.Service(x.service)
	if !ok || !slices.EqualFunc(spec.HealthChecks, x.checks, sameCheck) {
		return true
	}
	count, _ := wanted(spec)
	quiet := e.Now.Sub(x.Last)
	borne := !slices.ContainsFunc(x.Checkers, func(id string) bool { return !slices.Contains(x.Probing, id) })
	return len(x.Probing) >= count && (borne || quiet > suspectWithin) || len(x.Probing) > 0 && quiet > suspectFor
}

// sameCheck reports whether two health checks say the same.
func sameCheck(a, b isobar.HealthCheck) bool {
	http, tcp := sameHTTP(a.HTTP, b.HTTP), sameTCP(a.TCP, b.TCP)
	grpc, redis := same(a.GRPC, b.GRPC), same(a.Redis, b.Redis)
	for _, c := range []*isobar.HealthCheck{&a, &b} {
		c.HTTP, c.TCP, c.GRPC, c.Redis = nil, nil, nil, nil
	}
	return http && tcp && grpc && redis && a == b
}

func same[T comparable](a, b *T) bool { return a == b || (a != nil && b != nil && *a == *b) }

func sameHTTP(a, b *isobar.HTTPCheck) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Path == b.Path && a.Host == b.Host && a.Method == b.Method && a.HTTP2 == b.HTTP2 &&
		slices.Equal(a.Expected, b.Expected) && slices.Equal(a.Headers, b.Headers)
}

func sameTCP(a, b *isobar.TCPCheck) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(a.Send, b.Send) && slices.EqualFunc(a.Receive, b.Receive, bytes.Equal)
}

// hear takes the reports of checkers: a checker that reports is alive.
func (s *suspects) hear(reports []Report) (changed bool) {
	for i := range reports {
		r := &reports[i]
		if k, ok := s.endsOf(r.Checker); ok && r.Arrived.After(s.ends[k].last) {
			s.ends = slices.Delete(s.ends, k, k+1)
		}
		k, ok := s.find(r.Service)
		if !ok || s.list[k].Trial != r.Checker || r.Arrived.Before(s.list[k].since) {
			continue
		}
		x := s.list[k]
		x.Trial, x.next, changed = "", time.Time{}, true
		insert(&x.Probing, r.Checker)
	}
	return changed
}

// end takes the end of a checker. What it ended on each time is the more likely
// reason.
func (s *suspects) end(d *Ended, now time.Time) (changed bool) {
	k, ok := s.endsOf(d.Checker)
	if !ok {
		s.ends = slices.Insert(s.ends, k, &ends{checker: d.Checker, services: d.Services})
	}
	x := s.ends[k]
	common := slices.DeleteFunc(slices.Clone(x.services), func(name string) bool { return !slices.Contains(d.Services, name) })
	if len(common) == 0 {
		common, x.count = d.Services, 0
	}
	x.services, x.count, x.last = common, x.count+1, now
	for _, y := range s.list {
		if y.Trial == d.Checker && slices.Contains(d.Services, y.service) {
			y.Trial, y.Last, changed = "", now, true
			y.Ends++
			y.next = now.Add(restAfter(y.Ends))
			insert(&y.Checkers, d.Checker)
			s.ends = slices.Delete(s.ends, k, k+1) // it is accounted for
			return changed
		}
	}
	return changed
}

// accuse suspects the services that enough ends have in common.
func (s *suspects) accuse(e *suspicion) (found []string) {
	count := map[string]int{}
	for _, x := range s.ends {
		for _, name := range x.services {
			count[name] += x.count
		}
	}
	for i := range e.topology.Services {
		spec := &e.topology.Services[i]
		if count[spec.Name] < suspectAfter {
			continue
		}
		k, known := s.find(spec.Name)
		if !known {
			s.list = slices.Insert(s.list, k, &suspect{service: spec.Name, checks: spec.HealthChecks})
			s.list[k].Probing = e.voters(spec.Name)
		}
		x := s.list[k]
		x.Ends, x.Last, x.next = x.Ends+count[spec.Name], e.Now, e.Now.Add(suspectRest)
		for _, y := range s.ends {
			if slices.Contains(y.services, spec.Name) {
				insert(&x.Checkers, y.checker)
				x.Probing = slices.DeleteFunc(x.Probing, func(id string) bool { return id == y.checker })
			}
		}
		found = append(found, spec.Name)
	}
	if len(found) > 0 {
		s.ends = slices.DeleteFunc(s.ends, func(x *ends) bool {
			return slices.ContainsFunc(x.services, func(name string) bool { return slices.Contains(found, name) })
		})
	}
	return found
}

// try picks a checker for each suspected service that is due for a trial, and
// gives up trials in which nothing is heard.
func (s *suspects) try(e *suspicion) (changed bool) {
	busy := map[string]bool{}
	for _, x := range s.list {
		if x.Trial != "" && e.Now.Sub(x.since) >= suspectTrial {
			x.Trial, x.next, changed = "", e.Now, true
		}
		busy[x.Trial] = true
	}
	for _, x := range s.list {
		spec, ok := e.topology.Service(x.service)
		if x.Trial != "" || e.Now.Before(x.next) || !ok {
			continue
		}
		if id := x.pick(e.Connected, busy, Needs(spec)); id != "" {
			x.Trial, x.tried, x.since, changed = id, id, e.Now, true
			busy[id] = true
		}
	}
	return changed
}

// pick returns the next checker to try, in order of their ids after the last one;
// those that ended on it come last.
func (x *suspect) pick(connected []Checker, busy map[string]bool, needs Protocols) string {
	best, found := trialist{}, false
	for _, c := range connected {
		if busy[c.ID] || slices.Contains(x.Probing, c.ID) || !c.Protocols.Has(needs) {
			continue
		}
		next := trialist{slices.Contains(x.Checkers, c.ID), c.ID <= x.tried, c.ID}
		if !found || next.before(best) {
			best, found = next, true
		}
	}
	return best.id
}

// trialist is a checker that may be tried.
type trialist struct {
	ended bool // on this service, before
	again bool // others are to be tried first
	id    string
}

func (a trialist) before(b trialist) bool {
	if a.ended != b.ended {
		return b.ended
	}
	if a.again != b.again {
		return b.again
	}
	return a.id < b.id
}

// bars returns the services, of those given, that checkers must not be designated to.
func (s *suspects) bars(checkers []Checker) (out []Bar) {
	for _, x := range s.list {
		for i := range checkers {
			id := checkers[i].ID
			if id != x.Trial && !slices.Contains(x.Probing, id) {
				out = append(out, Bar{Checker: id, Service: x.service})
			}
		}
	}
	return out
}

// of describes why a service is suspected; nil if it is not.
func (s *suspects) of(service string) *Suspicion {
	k, ok := s.find(service)
	if !ok {
		return nil
	}
	out := s.list[k].Suspicion
	out.Checkers, out.Probing = slices.Clone(out.Checkers), slices.Clone(out.Probing)
	return &out
}

func (s *suspects) find(service string) (int, bool) {
	return slices.BinarySearchFunc(s.list, service, func(x *suspect, name string) int { return strings.Compare(x.service, name) })
}

func (s *suspects) endsOf(checker string) (int, bool) {
	return slices.BinarySearchFunc(s.ends, checker, func(x *ends, id string) int { return strings.Compare(x.checker, id) })
}

// insert adds a name to a sorted list that may hold it.
func insert(list *[]string, name string) {
	if k, ok := slices.BinarySearch(*list, name); !ok {
		*list = slices.Insert(*list, k, name)
	}
}
