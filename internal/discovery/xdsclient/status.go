package xdsclient

import (
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/keep"
)

// State of a service.
type State string

// The states.
const (
	Waiting State = "waiting" // nothing is known: the service has no assignment yet
	Current State = "current" // as the server has listed it on the present stream
	Kept    State = "kept"    // as it was known before; on the present stream, if any, the server has not answered for it
	Held    State = "held"    // the server says that it is empty; its endpoints stay for now
	Refused State = "refused" // the last assignment broke a rule; the one before stays
	Empty   State = "empty"   // the server lists no endpoints
)

var states = [...]State{Waiting, Current, Kept, Held, Refused, Empty}

func (e *entry) state() State {
	switch {
	case e.refused != "":
		return Refused
	case !e.emptySince.IsZero():
		return Held
	case !e.known && !e.answered:
		return Waiting
	case e.endpoints() == 0:
		return Empty
	case !e.answered:
		return Kept
	default:
		return Current
	}
}

// Status is the state of everything, for operators.
type Status struct {
	Server     string          `json:"server"`
	Service    string          `json:"service"` // eds or ads
	Connected  bool            `json:"connected"`
	Since      time.Time       `json:"since"`                // of the connection, or of its loss
	LastUpdate time.Time       `json:"last_update,omitzero"` // when a response was accepted last
	Failure    string          `json:"failure,omitempty"`    // why there is no stream
	ACKs       uint64          `json:"acks"`                 // since the start
	NACKs      uint64          `json:"nacks"`                // since the start
	LastNACK   string          `json:"last_nack,omitempty"`  // what was told to the server
	LastNACKAt time.Time       `json:"last_nack_at,omitzero"`
	Services   []ServiceStatus `json:"services"` // sorted by EDS name
}

// ServiceStatus is the state of one service.
type ServiceStatus struct {
	Name       string            `json:"name"`
	EDSName    string            `json:"eds_name"`
	State      State             `json:"state"`
	Listed     time.Time         `json:"listed,omitzero"` // when what is in force was listed
	Localities int               `json:"localities"`
	Endpoints  int               `json:"endpoints"`
	EmptySince time.Time         `json:"empty_since,omitzero"`          // of state held
	Refused    string            `json:"refused,omitempty"`             // of state refused
	LeftOut    int               `json:"left_out,omitempty"`            // endpoints that can't be used
	Reason     string            `json:"left_out_reason,omitempty"`     // of the first of them
	Unlisted   []isobar.Locality `json:"unlisted_localities,omitempty"` // they have settings, but the server lists nothing there
}

// Status tells how things stand; false when there is no other control plane.
func (c *Client) Status() (Status, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cfg == nil {
		return Status{}, false
	}
	s := Status{
		Server: c.cfg.Server, Service: "eds", Connected: c.link.connected, Since: c.link.since, LastUpdate: c.link.lastUpdate,
		ACKs: c.link.acks, NACKs: c.link.nacks, LastNACK: c.link.lastNACK, LastNACKAt: c.link.lastNACKAt,
		Services: make([]ServiceStatus, 0, len(c.table.entries)),
	}
	if c.cfg.ADS {
		s.Service = "ads"
	}
	if !c.link.connected {
		s.Failure = c.link.failure
	}
	for _, e := range c.table.entries {
		s.Services = append(s.Services, ServiceStatus{
			Name: e.Settings.Name, EDSName: e.EDSName, State: e.state(), Listed: e.at,
			Localities: len(e.listed), Endpoints: e.endpoints(), EmptySince: e.emptySince, Refused: e.refused,
			LeftOut: e.leftOut, Reason: e.reason, Unlisted: e.unlisted(),
		})
	}
	return s, true
}

// Outdated lists the services whose endpoints are the previous ones, sorted: the
// server can't be reached or has not answered for them yet, what it says is
// refused, or it calls them empty.
// It waits for nobody, so a disk that is slow to take a change holds no decision up.
func (c *Client) Outdated() []keep.Outdated {
	if list := c.outdated.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}
