package replica

import (
	"fmt"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// Status is a replica's state of its group, for operators. The admin API serves it.
type Status struct {
	Group  string    `json:"group"`
	Name   string    `json:"name"`
	Role   string    `json:"role"`
	Since  time.Time `json:"since"` // of the role
	Leader string    `json:"leader,omitempty"`
	// LedSince is when the leader's first plan came to this replica; zero if it came before this
	// replica started, or did not come here.
	LedSince time.Time `json:"led_since,omitzero"`
	// Awaits says, where no leader is known, which replica the engine names, and what has to happen.
	Awaits string `json:"awaits,omitempty"`

	Epoch   uint64 `json:"epoch"` // of the newest claim that is known
	Engine  bool   `json:"engine_reached"`
	Behind  bool   `json:"engine_behind,omitempty"` // the engine lost claims that replicas saw
	Removes bool   `json:"removes"`                 // the replica may send clients removals
	// Spare is how many more replicas may fail before none is left that can lead: one that does not
	// reach the engine can't.
	Spare    int            `json:"failures_to_spare"`
	Replicas []MemberStatus `json:"replicas"` // sorted by name
	Alarms   []string       `json:"alarms,omitempty"`
	Events   []string       `json:"recent_events,omitempty"` // those of the alarms that happened once, within the last hour
}

// MemberStatus is one replica as the one that answers sees it.
type MemberStatus struct {
	Name    string  `json:"name"`
	Live    bool    `json:"live"`
	Leads   bool    `json:"leads,omitempty"`
	Cares   bool    `json:"caretaker,omitempty"` // it leads without the engine: health counts, and weights stay
	Heard   float64 `json:"heard_seconds_ago,omitempty"`
	Failure string  `json:"failure,omitempty"` // why it can't be reached from here
	Version string  `json:"isobar_version,omitempty"`
	Engine  bool    `json:"engine_reached"`
	Plan    uint64  `json:"plan_version"`
	PlanAge float64 `json:"plan_age_seconds"`

	DiscoveryStreams  uint32   `json:"discovery_streams"`
	LoadReportStreams uint32   `json:"load_report_streams"`
	Checkers          uint32   `json:"checkers"`
	Clients           uint32   `json:"clients"`
	ClientsInSync     uint32   `json:"clients_in_sync"`
	ConfigDigest      string   `json:"config_digest,omitempty"`
	Unreachable       []string `json:"unreachable,omitempty"`      // replicas that it does not hear
	Takeover          string   `json:"takeover_failure,omitempty"` // why it could not take over when it led last, until a replica can
}

// awaits says which replica holds leadership as the engine says, for a replica that knows of no
// leader; empty where the engine names none, or does not answer.
func awaits(v *group.View) string {
	switch name := v.Holder.Name; {
	case name == "" || !v.Engine:
		return ""
	case v.Holder == v.Self:
		return "this replica is about to take over"
	case name == v.Self.Name:
		return "the lease of its process before the restart has to run out first"
	case v.LeaseLeft > 0:
		return fmt.Sprintf("the lease of replica %s, which it does not hear, counts for up to %s more; then another replica takes over",
			name, v.LeaseLeft.Round(time.Second))
	default:
		return fmt.Sprintf("the election engine says that replica %s leads, which can't be reached from here", name)
	}
}

// Status returns the replica's state of its group.
func (r *Replica) Status() Status {
	r.mu.Lock()
	now := r.clock()
	v, leader := r.node.View(now), r.node.Leader(now)
	s := Status{
		Group: r.opts.Group, Name: r.self.Name, Role: v.Role.String(), Since: r.since, Leader: leader, Epoch: v.Newest.Epoch,
		Engine: v.Engine, Behind: v.Behind, Removes: r.node.Removes(now), Spare: spare(&v),
	}
	if leader == "" {
		s.Awaits = awaits(&v)
	}
	for _, a := range r.alarms {
		s.Alarms = append(s.Alarms, a.text)
		if a.of == a.text && time.Since(a.at) < recentEvent {
			s.Events = append(s.Events, a.text)
		}
	}
	if leader != "" && r.served.Claim == v.Newest {
		s.LedSince = r.ledAt
	}
	r.mu.Unlock()
	own := MemberStatus{Name: r.self.Name, Live: true, Leads: leader == r.self.Name, Version: r.opts.Version, Engine: v.Engine, Plan: v.Version}
	own.Cares = v.Role == group.Caretaker
	own.summarise(r.summary())
	s.Replicas = append(s.Replicas, own)
	for i := range v.Peers {
		s.Replicas = append(s.Replicas, r.peerStatus(&v.Peers[i], leader))
	}
	sortReplicas(s.Replicas)
	return s
}

// recentEvent is how long an alarm about something that happened once is recent.
const recentEvent = time.Hour

// spare returns how many more replicas may fail before none is left that can lead.
func spare(v *group.View) int {
	n := 0
	if v.Engine {
		n++
	}
	for i := range v.Peers {
		if p := &v.Peers[i]; p.Live && p.Status.Engine {
			n++
		}
	}
	return max(0, n-1)
}

func (r *Replica) peerStatus(p *group.PeerView, leader string) MemberStatus {
	out := MemberStatus{Name: p.Name, Live: p.Live, Leads: p.Name == leader, Failure: r.peers[p.Name].state()}
	if p.Ever {
		out.Heard, out.Engine, out.Plan = p.Age.Seconds(), p.Status.Engine && p.Live, p.Status.Version
	}
	out.Cares = out.Leads && p.Status.Caretaker
	version, summary, connected := r.server.reported(p.Name)
	if connected {
		out.Version = version
		out.summarise(summary)
	}
	if out.Plan > 0 { // it was that old when it told so; a replica that is not connected has told nothing
		out.PlanAge += out.Heard
	}
	return out
}

func (s *MemberStatus) summarise(m *peerv1.Summary) {
	s.PlanAge = float64(m.GetPlanAgeUs()) / 1e6
	s.DiscoveryStreams, s.LoadReportStreams, s.Checkers = m.GetDiscoveryStreams(), m.GetLoadReportStreams(), m.GetCheckers()
	s.Clients, s.ClientsInSync = m.GetClients(), m.GetClientsInSync()
	s.ConfigDigest, s.Takeover = bounded(m.GetConfigDigest()), clipped(m.GetTakeoverFailure())
	for _, name := range m.GetUnreachable() {
		if len(s.Unreachable) < group.MaxReplicas {
			s.Unreachable = append(s.Unreachable, bounded(name))
		}
	}
}

// maxFailure bounds a reason that another replica tells, in bytes.
const maxFailure = 1000

func clipped(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxFailure)], "?") }

// summary is the part of this replica's state that other replicas show.
func (r *Replica) summary() *peerv1.Summary {
	m := &peerv1.Summary{}
	if r.opts.Summary != nil {
		m = r.opts.Summary()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.served.IsZero() {
		m.PlanAgeUs = uint64(max(0, time.Since(r.served.At).Microseconds()))
	}
	v := r.node.View(r.clock())
	for i := range v.Peers {
		if !v.Peers[i].Live {
			m.Unreachable = append(m.Unreachable, v.Peers[i].Name)
		}
	}
	return m
}

// Successors returns the live replicas that may be able to take over from this one, which leads:
// they reach the election engine, stay, and have not failed to take over since a replica last led.
func (r *Replica) Successors() []string {
	r.mu.Lock()
	v := r.node.View(r.clock())
	r.mu.Unlock()
	var names []string
	for i := range v.Peers {
		p := &v.Peers[i]
		if _, summary, connected := r.server.reported(p.Name); connected && p.Live && p.Status.Engine && !p.Status.Leaves && summary.GetTakeoverFailure() == "" {
			names = append(names, p.Name)
		}
	}
	return names
}

// Connections returns how many connections of clients each other live replica has, and a
// text that names the live replicas. A replica whose program does not tell has none.
func (r *Replica) Connections() (live string, others []int) {
	r.mu.Lock()
	v := r.node.View(r.clock())
	r.mu.Unlock()
	var names []string
	for i := range v.Peers {
		if !v.Peers[i].Live {
			continue
		}
		if _, summary, connected := r.server.reported(v.Peers[i].Name); connected {
			names = append(names, v.Peers[i].Name)
			others = append(others, int(summary.GetConnections()))
		}
	}
	return strings.Join(names, " "), others
}

// Digests returns the digest of the configuration that each live replica told, by
// name, without this one.
func (r *Replica) Digests() map[string]string {
	r.mu.Lock()
	v := r.node.View(r.clock())
	r.mu.Unlock()
	out := map[string]string{}
	for i := range v.Peers {
		if !v.Peers[i].Live {
			continue
		}
		if _, summary, connected := r.server.reported(v.Peers[i].Name); connected {
			out[v.Peers[i].Name] = summary.GetConfigDigest()
		}
	}
	return out
}
