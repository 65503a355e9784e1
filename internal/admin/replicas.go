package admin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/isobar-xds/isobar"
)

// Replicas is the group of replicas that the server belongs to.
type Replicas interface {
	// State is what this replica knows of the group.
	State() ReplicaGroup
	// StepDown has the leader give up leadership, whichever replica it is, and returns
	// its name.
	StepDown(who string) (leader string, err error)
	// AcceptConfig puts the configuration file of this replica, which has to lead, in force
	// although fewer than half of the group have it. digest names it.
	AcceptConfig(digest string) error
	// Order brings a write to the leader. It reports false where this replica leads
	// itself, or knows of no leader. An error says that the leader did not answer.
	Order(ctx context.Context, o Forwarded) (status int, body []byte, forwarded bool, err error)
}

// Forwarded is a write that the leader of the group has to carry out.
type Forwarded struct {
	Method, Path string
	Body         []byte // JSON
	Remote       string // the address that it came from
	IfMatch      string // the header of this name; "" = none
}

// replicaAPI has the leader of the group carry out writes, and shows the group.
type replicaAPI struct {
	*core

	passed *http.ServeMux // the writes that replicas of a group pass on
}

// byLeader has the leader of the group carry out a write. A write that another replica
// passed on comes by [Server.CarryOut], and is not passed on again: where the group has
// another leader by now, it is refused.
func (s *replicaAPI) byLeader(h writeFunc) writeFunc {
	if s.opts.Replicas == nil {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request, body []byte) {
		status, answer, forwarded, err := s.opts.Replicas.Order(r.Context(), Forwarded{
			Method: r.Method, Path: r.URL.RequestURI(), Body: body, Remote: r.RemoteAddr, IfMatch: r.Header.Get("If-Match"),
		})
		switch {
		case err != nil:
			fail(w, http.StatusBadGateway, Problem{
				Error: err.Error(), Fix: "look whether the write is in force (`isobar status`), then try again; `isobar replicas status` shows the group",
			})
		case !forwarded:
			h(w, r, body)
		default:
			w.Header().Set("Content-Type", mediaJSON)
			w.WriteHeader(status)
			_, _ = w.Write(answer) // the client may be gone; there is nobody to tell
		}
	}
}

// carryOut answers a write that another replica of the group passed on. That replica has
// checked that the operator may write.
func (s *replicaAPI) carryOut(ctx context.Context, o Forwarded) (status int, body []byte) {
	r, err := http.NewRequestWithContext(ctx, o.Method, o.Path, bytes.NewReader(o.Body))
	a := &answer{header: http.Header{}, code: http.StatusOK}
	if err != nil || !s.carries(r) {
		fail(a, http.StatusNotFound, Problem{Error: "replicas do not pass on such a request", Place: o.Path})
		return a.code, a.body.Bytes()
	}
	r.RemoteAddr = o.Remote
	if o.IfMatch != "" {
		r.Header.Set("If-Match", o.IfMatch)
	}
	if len(o.Body) > 0 {
		r.Header.Set("Content-Type", mediaJSON)
	}
	s.passed.ServeHTTP(a, r)
	return a.code, a.body.Bytes()
}

// carries reports whether a request is one that replicas pass on.
func (s *replicaAPI) carries(r *http.Request) bool {
	_, pattern := s.passed.Handler(r)
	return pattern != ""
}

// RoleAlone is the role of a server that belongs to no group.
const RoleAlone = "alone"

// ReplicaGroup is a group of replicas as one of them sees it.
type ReplicaGroup struct {
	Group          string         `json:"group"`
	Name           string         `json:"name"`               // of the replica that answers
	Role           string         `json:"role"`               // "alone" without a group: the rest is empty then
	Since          time.Time      `json:"since"`              // of the role
	Leader         string         `json:"leader,omitempty"`   // missing if no leader is known
	LedSince       time.Time      `json:"led_since,omitzero"` // when the leader's first plan came to this replica; missing if it did not see it
	Awaits         string         `json:"awaits,omitempty"`   // if no leader is known and the engine names one: which one, and what has to happen
	Epoch          uint64         `json:"epoch"`              // newest known epoch
	Engine         bool           `json:"engine_reached"`
	Behind         bool           `json:"engine_behind,omitempty"`    // the engine lost claims that replicas saw
	EngineWarnings []string       `json:"engine_warnings,omitempty"`  // warnings about the engine, such as little space
	Removes        bool           `json:"removes"`                    // the replica may send clients removals
	Spare          int            `json:"failures_to_spare"`          // number of replicas that may fail before none is left that can lead
	Agreed         bool           `json:"configuration_agreed"`       // more than half of the group have the configuration of this replica
	InForce        string         `json:"config_in_force,omitempty"`  // digest of the configuration that the plan is made with
	Replicas       []ReplicaState `json:"replicas"`                   // sorted by name
	Takeover       string         `json:"takeover_failure,omitempty"` // why the leader makes no plan
	Alarms         []string       `json:"alarms,omitempty"`           // the last ones
	Events         []string       `json:"recent_events,omitempty"`    // those of the alarms that happened once, within the last hour
}

// ReplicaState is one replica as the one that answers sees it.
type ReplicaState struct {
	Name    string  `json:"name"`
	Live    bool    `json:"live"` // heard within the last two heartbeats
	Leads   bool    `json:"leads,omitempty"`
	Cares   bool    `json:"caretaker,omitempty"` // it leads without the engine: health counts, and weights stay
	Heard   float64 `json:"heard_seconds_ago,omitempty"`
	Failure string  `json:"failure,omitempty"` // why it can't be reached from here
	Version string  `json:"isobar_version,omitempty"`
	Engine  bool    `json:"engine_reached"`
	Plan    uint64  `json:"plan_version"` // 0 = none
	PlanAge float64 `json:"plan_age_seconds"`

	DiscoveryStreams  uint32   `json:"discovery_streams"`
	LoadReportStreams uint32   `json:"load_report_streams"`
	Checkers          uint32   `json:"checkers"`
	Clients           uint32   `json:"clients"`         // xDS clients that are connected to it
	ClientsInSync     uint32   `json:"clients_in_sync"` // those of them that have accepted all responses
	ConfigDigest      string   `json:"config_digest,omitempty"`
	Unreachable       []string `json:"unreachable,omitempty"`      // replicas that it does not hear
	Takeover          string   `json:"takeover_failure,omitempty"` // why it could not take over when it led last, until a replica can
}

// Live counts the replicas that are heard, the one that answers included.
func (g *ReplicaGroup) Live() int {
	n := 0
	for i := range g.Replicas {
		if g.Replicas[i].Live {
			n++
		}
	}
	return n
}

// Reaching counts the live replicas that reach the election engine.
func (g *ReplicaGroup) Reaching() int {
	n := 0
	for i := range g.Replicas {
		if g.Replicas[i].Live && g.Replicas[i].Engine {
			n++
		}
	}
	return n
}

// Caretaker returns the name of the replica that leads without the election engine; "" if none does.
func (g *ReplicaGroup) Caretaker() string {
	for i := range g.Replicas {
		if g.Replicas[i].Cares {
			return g.Replicas[i].Name
		}
	}
	return ""
}

// Troubles tells what is wrong with the group at the moment, one sentence each; nil if nothing is.
func (g *ReplicaGroup) Troubles() []string {
	var out []string
	for _, a := range g.Attention() {
		if a.Code != GroupEvent {
			out = append(out, a.Text)
		}
	}
	return out
}

// Attention tells what is wrong with the group.
func (g *ReplicaGroup) Attention() []Attention {
	const see = "isobar replicas status"
	if g.Role == RoleAlone {
		return nil
	}
	var out []Attention
	if g.Leader == "" && g.Awaits != "" {
		out = append(out, NewAttention(GroupLeaderless, "replica %s finds no leader of group %s, so weights do not change: %s",
			g.Name, g.Group, g.Awaits).See(see))
	} else if g.Leader == "" {
		out = append(out, NewAttention(GroupLeaderless, "no replica leads group %s, so weights do not change", g.Group).See(see))
	}
	if name := g.Caretaker(); name != "" {
		out = append(out, NewAttention(ElectionLost, "replica %s leads group %s without the election engine: it applies health changes, keeps the weights, "+
			"and refuses writes", name, g.Group).See(see))
	}
	if !g.Engine {
		out = append(out, NewAttention(ElectionLost, "replica %s does not reach the election engine", g.Name).See(see))
	}
	if g.Behind {
		out = append(out, NewAttention(ElectionLost, "the election engine has an older state than the replicas have seen: "+
			"the engine was restored from a backup").See(see))
	}
	if g.Takeover != "" {
		out = append(out, NewAttention(TakeoverFailed, "replica %s leads group %s but can't make a plan, so it refuses writes: %s",
			g.Leader, g.Group, g.Takeover).See(see))
	}
	for _, text := range g.EngineWarnings {
		out = append(out, NewAttention(ElectionFull, "%s", text).See(see))
	}
	for _, text := range g.Events {
		out = append(out, NewAttention(GroupEvent, "%s", text).See(see))
	}
	digests := map[string]bool{}
	for i := range g.Replicas {
		r := &g.Replicas[i]
		switch {
		case !r.Live && r.Failure != "":
			out = append(out, NewAttention(ReplicaLost, "replica %s can't be reached from %s: %s", r.Name, g.Name, r.Failure).See(see))
		case !r.Live:
			out = append(out, NewAttention(ReplicaLost, "replica %s sends nothing to %s", r.Name, g.Name).See(see))
		case r.ConfigDigest != "":
			digests[r.ConfigDigest] = true
		}
	}
	if len(digests) > 1 {
		text := "replicas have different configuration files; a change takes effect when the leader and more than half of the group have it"
		out = append(out, NewAttention(ReplicasDiffer, "%s", text).See(see))
	}
	return out
}

// SteppedDown answers POST /v1/replicas/step-down.
type SteppedDown struct {
	Leader string `json:"leader"` // the replica that was asked
}

// AcceptedConfig answers POST /v1/replicas/accept-config.
type AcceptedConfig struct {
	Digest string `json:"digest"` // of the configuration in force
	Leader string `json:"leader"` // leader that has this file
}

// AcceptConfigRequest is the body of POST /v1/replicas/accept-config.
type AcceptConfigRequest struct {
	Digest string `json:"digest"` // as GET /v1/replicas shows it
	Who    string `json:"who,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func (s *replicaAPI) postAcceptConfig(w http.ResponseWriter, r *http.Request, body []byte) {
	var o AcceptConfigRequest
	if err := decodeOne(body, &o); err != nil || o.Digest == "" {
		fail(w, http.StatusBadRequest, Problem{Error: "the body names no digest", Place: "body", Fix: `send {"digest": "..."}, as GET /v1/replicas shows it`})
		return
	}
	if err := s.opts.Replicas.AcceptConfig(o.Digest); err != nil {
		code := http.StatusConflict
		if errors.Is(err, isobar.ErrUnavailable) {
			code = http.StatusServiceUnavailable
		}
		fail(w, code, Problem{Error: err.Error(), Fix: "GET /v1/replicas (`isobar replicas status`) shows the leader, and the digest of each replica's file"})
		return
	}
	who := cmp.Or(oneLine(o.Who), r.RemoteAddr)
	s.audit(r).Info("a configuration was accepted without a majority of the group", "digest", o.Digest, "who", who, "reason", oneLine(o.Reason))
	reply(w, http.StatusOK, AcceptedConfig{Digest: o.Digest, Leader: s.opts.Replicas.State().Name})
}

// getReplicas answers GET /v1/replicas. A server without a group answers, too: its console
// asks whether there is one.
func (s *replicaAPI) getReplicas(w http.ResponseWriter, _ *http.Request) {
	if s.opts.Replicas == nil {
		reply(w, http.StatusOK, ReplicaGroup{Role: RoleAlone, Replicas: []ReplicaState{}})
		return
	}
	reply(w, http.StatusOK, s.opts.Replicas.State())
}

func (s *replicaAPI) postStepDown(w http.ResponseWriter, r *http.Request, body []byte) {
	o, ok := operatorRequest(w, r, body)
	if !ok {
		return
	}
	leader, err := s.opts.Replicas.StepDown(o.Who)
	if err != nil {
		fail(w, http.StatusServiceUnavailable, Problem{Error: err.Error(), Fix: "GET /v1/replicas (`isobar replicas status`) shows the group"})
		return
	}
	s.audit(r).Info("the leader was asked to step down", "leader", leader, "who", o.Who, "reason", o.Reason)
	reply(w, http.StatusOK, SteppedDown{Leader: leader})
}
