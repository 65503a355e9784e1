package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

// Client is one connected xDS client as operators see it.
type Client struct {
	ID             string                `json:"id"` // node.id; not unique
	Cluster        string                `json:"cluster"`
	Locality       string                `json:"locality"`
	Agent          string                `json:"agent"`       // user agent and its version
	APIVersion     string                `json:"api_version"` // transport API version of the client: v3, v2 or 2017
	Peer           string                `json:"peer"`        // remote address
	ConnectedSince time.Time             `json:"connected_since"`
	Streams        int                   `json:"streams"`         // for discovery, on its connection
	Types          map[string]ClientType `json:"types"`           // by short name: lds, rds, cds, eds
	Polls          bool                  `json:"polls,omitempty"` // it has no stream, but polls, and names the accepted versions in each poll
	InSync         bool                  `json:"in_sync"`         // everything sent was acknowledged
	LRS            *ClientLRS            `json:"lrs,omitempty"`
	ReportsTo      string                `json:"reports_to,omitempty"` // the other replica of the group that its load report stream goes to
	// Missing lists services that the client subscribes to and that do not exist, sorted, at most 10
	// for each resource type of a stream.
	Missing []MissingService `json:"missing,omitempty"`
	// Deviates lists the services whose weights the client does not follow, according to its load
	// reports.
	Deviates []ClientDeviates `json:"deviates,omitempty"`
}

// ClientNode is what clients call themselves. Several may call themselves the same.
type ClientNode struct{ ID, Locality string }

// RemoteReports is what other replicas of the group tell about the clients of a node.
type RemoteReports struct {
	Replica string // that gets its load reports; one of them where several do
	Streams int    // with reports, of all replicas
	All     bool   // all replicas that are heard have told
}

// MissingService is a service that a client subscribes to and that does not exist.
type MissingService struct {
	Name    string   `json:"name"`
	Nearest []string `json:"nearest,omitempty"` // services that may be meant, the nearest first
}

// String says what is wrong, with the names that may be meant.
func (m *MissingService) String() string {
	text := fmt.Sprintf("service %q does not exist", m.Name)
	if len(m.Nearest) > 0 {
		text += "; did you mean " + strings.Join(m.Nearest, " or ") + "?"
	}
	return text
}

// ClientType is the state of one resource type of a client. If the client has several streams for
// the type, versions and age are those of the stream that is furthest behind or, if none is behind,
// of the stream that got the last response.
type ClientType struct {
	Subscribed   int      `json:"subscribed"`      // number of names; -1 for a wildcard
	Names        []string `json:"names,omitempty"` // sorted; only if they are few
	SentVersion  string   `json:"sent_version"`
	AckedVersion string   `json:"acked_version"`
	AgeSeconds   float64  `json:"age_seconds"`       // since the last acknowledgement; before the first one, since the response
	InSync       bool     `json:"in_sync"`           // it accepted all resources that it should have
	Waiting      bool     `json:"waiting,omitempty"` // the client has not answered the last response yet
	// WaitingSeconds is the time for which the client has not answered it.
	WaitingSeconds float64 `json:"waiting_seconds,omitempty"`
	Rejected       int     `json:"rejected,omitempty"`  // resources that the client has rejected and not accepted since
	NACK           *NACK   `json:"last_nack,omitempty"` // the last refusal, even after the client has recovered
	Missing        int     `json:"missing,omitempty"`   // names of no service
}

// Join adds what another stream of the client says of the same type.
func (t *ClientType) Join(other *ClientType) {
	first, second := *t, *other
	if second.Late(&first) {
		first, second = second, first
	}
	*t = first
	if first.Subscribed >= 0 && second.Subscribed >= 0 {
		t.Subscribed = first.Subscribed + second.Subscribed
	} else {
		t.Subscribed = -1
	}
	t.Names = nil
	if len(first.Names)+len(second.Names) == t.Subscribed && t.Subscribed <= mostNames {
		t.Names = slices.Compact(slices.Sorted(slices.Values(slices.Concat(first.Names, second.Names))))
	}
	t.InSync = first.InSync && second.InSync
	t.Waiting = first.Waiting || second.Waiting
	t.WaitingSeconds = max(first.WaitingSeconds, second.WaitingSeconds)
	t.Rejected = first.Rejected + second.Rejected
	t.Missing = first.Missing + second.Missing
	if second.NACK != nil && (t.NACK == nil || second.NACK.At.After(t.NACK.At)) {
		t.NACK = second.NACK
	}
}

// mostNames bounds the names that are listed of the joined streams of a client.
const mostNames = 20

// Late reports whether t tells more of how far a client is than other: it is
// behind for longer or, where none is behind, was acknowledged later.
func (t *ClientType) Late(other *ClientType) bool {
	switch {
	case t.InSync != other.InSync:
		return !t.InSync
	case !t.InSync:
		return t.AgeSeconds > other.AgeSeconds
	case t.SentVersion == "" || other.SentVersion == "": // of names that do not exist nothing is sent
		return t.SentVersion != ""
	}
	return t.AgeSeconds < other.AgeSeconds
}

// answerTime is how long a client may take to answer, and still counts as in sync: after
// each plan all clients owe an answer for a moment.
const answerTime = 2 * time.Second

// Follows reports whether a client accepted everything that it should have, or has only
// just been sent the rest.
func (c *Client) Follows() bool {
	if c.InSync {
		return true
	}
	for name := range c.Types {
		if t := c.Types[name]; !t.follows() {
			return false
		}
	}
	return len(c.Types) > 0
}

func (t *ClientType) follows() bool {
	return t.InSync || (t.Waiting && t.Rejected == 0 && t.WaitingSeconds <= answerTime.Seconds())
}

// InSync is the state of a client that accepted everything that it should have.
const InSync = "in sync"

// State says in a word or two how far the client is: it refuses something now,
// is behind, asks for a service that does not exist, or is in sync.
func (t *ClientType) State() string {
	switch {
	case t.Rejected > 0:
		return "NACK"
	case !t.follows():
		return "behind"
	case t.Missing > 0:
		return "not found"
	}
	return InSync
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
	LastExcess time.Time `json:"last_excess,omitzero"`
}

// ClientList is the body of GET /v1/clients.
type ClientList struct {
	Version string   `json:"version,omitempty"` // of the published plan
	Clients []Client `json:"clients"`
	// Deviating are the localities whose clients do not follow the weights of a service, even if no
	// single client stands out.
	Deviating []DeviatingSource `json:"deviating,omitempty"`
}

// fleetAPI serves the clients and checkers that are connected, and the sources of endpoints.
type fleetAPI struct{ *core }

// getClients answers GET /v1/clients: with ?service=NAME those that
// subscribe to a service.
func (s *fleetAPI) getClients(w http.ResponseWriter, r *http.Request) {
	list := ClientList{}
	if name := r.URL.Query().Get("service"); name == "" {
		list.Clients = s.opts.Fleet.Clients()
	} else {
		list.Clients = s.opts.Fleet.ClientsOf(name)
	}
	if list.Clients == nil {
		list.Clients = []Client{}
	}
	if p := s.opts.Planner.Current(); p != nil {
		list.Version, list.Deviating = p.VersionString(), deviatingSources(p)
		markDeviating(list.Clients, list.Deviating)
	}
	reply(w, http.StatusOK, list)
}

// DeviatingSource is a client locality whose clients do not follow the weights of a service.
type DeviatingSource struct {
	plan.DeviationSeen

	Service  string          `json:"service"`
	Locality isobar.Locality `json:"locality"`
	Text     string          `json:"text"` // a sentence that names the clients that stand out
}

// ClientDeviates reports that the requests of a client do not go where its weights direct them.
type ClientDeviates struct {
	Service string  `json:"service"`
	Points  float64 `json:"points"` // largest difference of a share, percent: at least this part of its requests goes elsewhere

	To      isobar.Locality `json:"to"`       // that gets most of its requests
	ToShare float64         `json:"to_share"` // of its requests, 0 to 1
}

// deviatingSources lists the localities whose clients do not follow their weights, by service.
func deviatingSources(p *plan.Plan) []DeviatingSource {
	var out []DeviatingSource
	for _, svc := range p.Services {
		for _, d := range plan.DeviationsOf(&svc.Deviations) {
			out = append(out, DeviatingSource{DeviationSeen: d.DeviationSeen, Service: svc.Spec.Name, Locality: d.Source, Text: d.String()})
		}
	}
	return out
}

// markDeviating notes at the clients that stand out what they do.
func markDeviating(clients []Client, sources []DeviatingSource) {
	type key struct{ locality, node, cluster string }
	found := map[key][]ClientDeviates{}
	for i := range sources {
		for _, c := range sources[i].Clients {
			k := key{sources[i].Locality.String(), c.Node, c.Cluster}
			found[k] = append(found[k], ClientDeviates{Service: sources[i].Service, Points: c.Points, To: c.To, ToShare: c.ToShare})
		}
	}
	for i := range clients {
		c := &clients[i]
		c.Deviates = found[key{c.Locality, c.ID, c.Cluster}]
	}
}
