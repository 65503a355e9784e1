package admin

import (
	"net/http"
	"time"
)

// Client is one connected xDS client as operators see it.
type Client struct {
	ID             string                `json:"id"` // node.id; not unique
	Cluster        string                `json:"cluster"`
	Locality       string                `json:"locality"`
	Agent          string                `json:"agent"` // user agent and its version
	Form           string                `json:"form"`  // of the API that it speaks: v3, v2 or 2017
	Peer           string                `json:"peer"`  // remote address
	ConnectedSince time.Time             `json:"connected_since"`
	Types          map[string]ClientType `json:"types"`           // by short name: lds, rds, cds, eds
	Polls          bool                  `json:"polls,omitempty"` // it has no stream, but asks again and again, and shows then what it accepted
	InSync         bool                  `json:"in_sync"`         // everything sent was acknowledged
	LRS            *ClientLRS            `json:"lrs,omitempty"`
}

// ClientType is the state of one resource type on a client's stream.
type ClientType struct {
	Subscribed   int     `json:"subscribed"` // names; -1 for a wildcard
	SentVersion  string  `json:"sent_version"`
	AckedVersion string  `json:"acked_version"`
	AgeSeconds   float64 `json:"age_seconds"`         // since the last acknowledgement; of what was sent while there was none
	InSync       bool    `json:"in_sync"`             // it accepted everything that it should have
	Waiting      bool    `json:"waiting,omitempty"`   // what was sent last is not answered yet
	Rejected     int     `json:"rejected,omitempty"`  // resources that the client has rejected and not accepted since
	NACK         *NACK   `json:"last_nack,omitempty"` // the last refusal, also after the client recovered
}

// State says in a word or two how far the client is: it refuses something now,
// is behind, or in sync.
func (t *ClientType) State() string {
	switch {
	case t.Rejected > 0:
		return "NACK"
	case !t.InSync:
		return "behind"
	}
	return "in sync"
}

// NACK is a version that a client refused.
type NACK struct {
	Version string    `json:"version"`
	Text    string    `json:"text"` // as the client gave it
	At      time.Time `json:"at"`
}

// ClientLRS is the state of a client's load reports.
type ClientLRS struct {
	LastReport time.Time `json:"last_report"` // zero: none yet
	Rejected   uint64    `json:"rejected"`    // entries that were dropped
	Reason     string    `json:"reason,omitempty"`
	Excess     uint64    `json:"excess,omitempty"` // reports that were ignored because they came far too often
}

// ClientList is the body of GET /v1/clients.
type ClientList struct {
	Version string   `json:"version,omitempty"` // of the published plan
	Clients []Client `json:"clients"`
}

func (s *Server) getClients(w http.ResponseWriter, _ *http.Request) {
	list := ClientList{Clients: s.opts.Clients()}
	if list.Clients == nil {
		list.Clients = []Client{}
	}
	if p := s.opts.Planner.Current(); p != nil {
		list.Version = p.VersionString()
	}
	reply(w, http.StatusOK, list)
}
