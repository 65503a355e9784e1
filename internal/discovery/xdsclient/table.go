package xdsclient

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// table is what is known of every configured service. It is guarded by the
// client's lock.
type table struct {
	entries []*entry // sorted by EDS name
}

// entry is one service.
type entry struct {
	Service

	known    bool                     // its endpoints are known: it is handed over
	listed   []isobar.ServiceLocality // as listed last; Locality and Endpoints alone
	at       time.Time                // when it was listed so; zero = by the file, or not known
	answered bool                     // the server has said something of it on the present stream
	// emptySince is when this stream's server said that there are no endpoints,
	// of a service that has some here; zero = it did not.
	emptySince time.Time

	leftOut int    // endpoints that can't be used
	reason  string // of the first of them
	refused string // why the last assignment was refused; empty = it was not

	unconfirmed time.Time // since when what is in force is not what the server lists; zero = it is
}

// endpoints counts what is listed.
func (e *entry) endpoints() int {
	n := 0
	for i := range e.listed {
		n += len(e.listed[i].Endpoints)
	}
	return n
}

// service joins what is listed with what is configured.
func (e *entry) service() isobar.Service {
	s := e.Settings
	s.Localities = make([]isobar.ServiceLocality, len(e.listed))
	for i := range e.listed {
		where := e.listed[i].Locality
		if j := slices.IndexFunc(e.Settings.Localities, func(l isobar.ServiceLocality) bool { return l.Locality == where }); j >= 0 {
			s.Localities[i] = e.Settings.Localities[j]
		} else {
			s.Localities[i] = isobar.ServiceLocality{Locality: where, Ceiling: e.Ceiling}
		}
		s.Localities[i].Endpoints = e.listed[i].Endpoints
	}
	return s
}

// unlisted names the localities that have settings, but no endpoints.
func (e *entry) unlisted() []isobar.Locality {
	var out []isobar.Locality
	for i := range e.Settings.Localities {
		where := e.Settings.Localities[i].Locality
		if !slices.ContainsFunc(e.listed, func(l isobar.ServiceLocality) bool { return l.Locality == where }) {
			out = append(out, where)
		}
	}
	return out
}

// configured returns the table of another configuration. What is known of a
// service stays, also when it is asked for under another EDS name or of
// another server: until that one has answered, it is the best there is.
func (t *table) configured(cfg *Config, seed func(name string) []isobar.ServiceLocality, now time.Time) table {
	if cfg == nil {
		return table{}
	}
	before := make(map[string]*entry, len(t.entries))
	for _, e := range t.entries {
		before[e.Settings.Name] = e
	}
	var next table
	for i := range cfg.Services {
		e := &entry{Service: cfg.Services[i]}
		if old := before[e.Settings.Name]; old != nil {
			carried := *old
			carried.Service = e.Service
			if old.EDSName != e.EDSName {
				carried.answered, carried.refused, carried.emptySince = false, "", time.Time{}
			}
			e = &carried
		}
		if !e.known {
			if listed := seed(e.Settings.Name); len(listed) > 0 {
				e.known, e.listed, e.at = true, listed, now
			}
		}
		next.entries = append(next.entries, e)
	}
	next.sort()
	return next
}

func (t *table) sort() {
	slices.SortFunc(t.entries, func(a, b *entry) int { return compareNames(a, b.EDSName) })
}

// find returns the service of an EDS name; nil for none.
func (t *table) find(edsName string) *entry {
	if i, found := slices.BinarySearchFunc(t.entries, edsName, compareNames); found {
		return t.entries[i]
	}
	return nil
}

// names lists the EDS names, sorted.
func (t *table) names() []string {
	out := make([]string, len(t.entries))
	for i, e := range t.entries {
		out[i] = e.EDSName
	}
	return out
}

// services returns what is to be in force.
func (t *table) services() []isobar.Service {
	var out []isobar.Service
	for _, e := range t.entries {
		if e.known {
			out = append(out, e.service())
		}
	}
	return out
}

// unknown returns the services of which no endpoints are known, without any.
func (t *table) unknown() []isobar.Service {
	var out []isobar.Service
	for _, e := range t.entries {
		if !e.known {
			s := e.Settings
			s.Localities = nil
			out = append(out, s)
		}
	}
	return out
}

// answered reports whether something is known, or was said, of every service.
func (t *table) answered() bool {
	return !slices.ContainsFunc(t.entries, func(e *entry) bool { return !e.known && !e.answered })
}

// take puts what the server lists into an entry and reports whether that changes
// what is to be in force. An empty listing of a service that has endpoints is
// only noted; see release. One of a service that never had any leaves it out:
// clients then wait for it, instead of being told that there is nothing.
func (e *entry) take(l resource.Listing, now time.Time) bool {
	e.answered, e.refused = true, ""
	if l.Endpoints == 0 {
		if e.endpoints() > 0 && e.emptySince.IsZero() {
			e.emptySince = now
		}
		return false
	}
	e.leftOut, e.reason = l.LeftOut, l.Reason
	e.known, e.listed, e.at, e.emptySince = true, l.Localities, now, time.Time{}
	return true
}

// release believes that services are empty which the server has called so for
// long enough, and returns them. While more than half of all services (of at
// least two) are said to be empty at once, none is believed: that is how a
// control plane looks that has lost its own view. With hold 0 all are believed.
func (t *table) release(hold time.Duration, now time.Time) (emptied []*entry) {
	if hold > 0 && t.massEmpty() {
		return nil
	}
	for _, e := range t.entries {
		if e.emptySince.IsZero() || now.Sub(e.emptySince) < hold {
			continue
		}
		e.emptySince, e.at, e.leftOut, e.reason = time.Time{}, now, 0, ""
		e.listed = keep.Bare(e.listed)
		for i := range e.listed {
			e.listed[i].Endpoints = nil
		}
		emptied = append(emptied, e)
	}
	return emptied
}

// massEmpty reports whether more than half of what has endpoints is held.
func (t *table) massEmpty() bool {
	held, all := 0, 0
	for _, e := range t.entries {
		if e.endpoints() > 0 {
			all++
		}
		if !e.emptySince.IsZero() {
			held++
		}
	}
	return keep.TooMany(held, all)
}

// nextRelease tells when release has something to do; false = never, as things
// stand.
func (t *table) nextRelease(hold time.Duration) (at time.Time, ok bool) {
	if hold > 0 && t.massEmpty() {
		return at, false
	}
	for _, e := range t.entries {
		if due := e.emptySince.Add(hold); !e.emptySince.IsZero() && (!ok || due.Before(at)) {
			at, ok = due, true
		}
	}
	return at, ok
}

// forget drops what only the stream that ended has said: a new one has to say
// again that a service is empty, or what is wrong.
func (t *table) forget() {
	for _, e := range t.entries {
		e.answered, e.refused, e.emptySince = false, "", time.Time{}
	}
}

func compareNames(e *entry, name string) int {
	switch {
	case e.EDSName < name:
		return -1
	case e.EDSName > name:
		return 1
	default:
		return 0
	}
}

// outdated is the list for [Client.Outdated].
func (t *table) outdated() []keep.Outdated {
	var out []keep.Outdated
	for _, e := range t.entries {
		if !e.unconfirmed.IsZero() {
			out = append(out, keep.Outdated{Service: e.Settings.Name, Since: e.unconfirmed})
		}
	}
	slices.SortFunc(out, func(a, b keep.Outdated) int { return strings.Compare(a.Service, b.Service) })
	return out
}

// noteUnconfirmed notes since when the endpoints in force differ from the server's list.
func (t *table) noteUnconfirmed(now time.Time) {
	for _, e := range t.entries {
		switch e.state() {
		case Kept, Held, Refused:
			if e.unconfirmed.IsZero() {
				e.unconfirmed = now
			}
		case Waiting, Current, Empty:
			e.unconfirmed = time.Time{}
		}
	}
}

const (
	storeKey = "xds-source"
	// savedFormat is the version of saved; a newer one is refused.
	savedFormat = 1
)

// saved is what is known of the services.
type saved struct {
	Format   int            `json:"format"`
	Services []savedService `json:"services"` // sorted by EDS name
}

type savedService struct {
	Name       string                   `json:"name"`
	EDSName    string                   `json:"eds_name"`
	At         time.Time                `json:"at,omitzero"`
	Localities []isobar.ServiceLocality `json:"localities"`
}

// restore fills the table with what was saved.
func (t *table) restore(data []byte) error {
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("the saved services of discovery.xds can't be read: %w", err)
	}
	if s.Format > savedFormat {
		return fmt.Errorf("the saved services of discovery.xds were written by a newer version (format %d, this one reads up to %d)", s.Format, savedFormat)
	}
	for _, from := range s.Services {
		t.entries = append(t.entries, &entry{
			Service: Service{EDSName: from.EDSName, Settings: isobar.Service{Name: from.Name}},
			known:   true, listed: keep.Bare(from.Localities), at: from.At,
		})
	}
	t.sort()
	return nil
}

func (t *table) snapshot() saved {
	s := saved{Format: savedFormat, Services: []savedService{}}
	for _, e := range t.entries {
		if e.known { // what is listed is never written again, so it is shared
			s.Services = append(s.Services, savedService{Name: e.Settings.Name, EDSName: e.EDSName, At: e.at, Localities: e.listed})
		}
	}
	return s
}

func (s *saved) encode() ([]byte, error) { return json.Marshal(s) }
