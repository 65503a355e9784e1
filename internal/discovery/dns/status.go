package dns

import (
	"time"

	"github.com/isobar-xds/isobar"
)

// State of a name.
type State string

// The states.
const (
	Waiting State = "waiting" // no endpoints are known, and no server has answered
	Current State = "current" // as the last answer has it
	Kept    State = "kept"    // as it was known before: no server has answered since
	Held    State = "held"    // there are no records any more; the endpoints stay for now
	Empty   State = "empty"   // there are no records
)

var states = [...]State{Waiting, Current, Kept, Held, Empty}

func (n *name) state() State {
	switch {
	case !n.emptySince.IsZero():
		return Held
	case len(n.endpoints) == 0 && n.answered:
		return Empty
	case len(n.endpoints) == 0:
		return Waiting
	case !n.answered:
		return Kept
	default:
		return Current
	}
}

// Status is the state of everything, for operators.
type Status struct {
	Servers  []string        `json:"servers"`
	System   bool            `json:"system"`            // the servers are those of the system's file
	Failure  string          `json:"failure,omitempty"` // why the servers are not known
	Services []ServiceStatus `json:"services"`          // sorted by name
}

// ServiceStatus is the state of one service.
type ServiceStatus struct {
	Name        string         `json:"name"`
	Endpoints   int            `json:"endpoints"`
	Unconfirmed time.Time      `json:"doubtful_since,omitzero"` // since when some of them are not as DNS says
	Refused     string         `json:"refused,omitempty"`       // why what DNS lists is not in force
	LeftOut     int            `json:"left_out,omitempty"`      // endpoints that the service has already, or too many
	Reason      string         `json:"left_out_reason,omitempty"`
	Lookups     []LookupStatus `json:"lookups"` // in the order of the configuration
}

// LookupStatus is the state of one name.
type LookupStatus struct {
	Locality   isobar.Locality `json:"locality"`
	Name       string          `json:"name"`
	SRV        bool            `json:"srv,omitempty"`
	State      State           `json:"state"`
	Resolved   time.Time       `json:"resolved,omitzero"` // when the endpoints were resolved
	Due        time.Time       `json:"due,omitzero"`      // when it is asked for again
	Endpoints  int             `json:"endpoints"`
	EmptySince time.Time       `json:"empty_since,omitzero"`      // of state held
	Failure    string          `json:"failure,omitempty"`         // why the last attempt gave no answer, or one that lacks a host
	LeftOut    int             `json:"left_out,omitempty"`        // records that can't be used
	Reason     string          `json:"left_out_reason,omitempty"` // of the first of them
}

// Status tells how things stand; false when no names are resolved.
func (p *Provider) Status() (Status, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg == nil {
		return Status{}, false
	}
	s := Status{Servers: p.cfg.Servers, Services: make([]ServiceStatus, 0, len(p.table.services))}
	if len(s.Servers) == 0 {
		s.System = true
		servers, err := p.system.list()
		s.Servers = append([]string{}, servers...)
		if err != nil {
			s.Failure = err.Error()
		}
	}
	for _, svc := range p.table.services {
		s.Services = append(s.Services, svc.status())
	}
	return s, true
}

func (s *service) status() ServiceStatus {
	out := ServiceStatus{
		Name: s.Settings.Name, Unconfirmed: s.unconfirmed, Refused: s.refused, LeftOut: s.leftOut, Reason: s.reason, Lookups: []LookupStatus{},
	}
	for i, names := range s.names {
		for _, n := range names {
			out.Endpoints += len(n.endpoints)
			out.Lookups = append(out.Lookups, LookupStatus{
				Locality: s.Settings.Localities[i].Locality, Name: n.Name, SRV: n.SRV, State: n.state(), Resolved: n.at, Due: n.due,
				Endpoints: len(n.endpoints), EmptySince: n.emptySince, Failure: n.failure, LeftOut: n.last.leftOut, Reason: n.last.reason,
			})
		}
	}
	out.Endpoints -= s.leftOut
	return out
}
