package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/relay"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// join makes the loop one of a group.
func (r *replicas) join(o *control.Options) {
	if r == nil {
		return
	}
	o.Group, o.Topology = r, groupTopology{r}
	o.Reports, o.Clients, o.Checkers = groupReports{r.relay, r.s.lrs}, r.relay, groupCheckers{r.relay}
}

// Changed implements [control.Group].
func (r *replicas) Changed() <-chan struct{} { return r.replica.Changed() }

// Role implements [control.Group].
func (r *replicas) Role() (control.GroupRole, uint64) {
	switch role, epoch := r.replica.Role(); role {
	case group.Leading:
		return control.Leads, epoch
	case group.Caretaker:
		return control.Cares, epoch
	case group.Follower, group.Gathering, group.Claiming:
	}
	return control.Follows, 0
}

// Received implements [control.Group].
func (r *replicas) Received() *plan.Opened {
	if served, ok := r.replica.Served(); ok {
		if o, _ := served.Opened.(*opened); o != nil { // nil for a plan of this replica itself
			return o.Opened
		}
	}
	return nil
}

// opened is a plan of another replica, with what operators wrote.
type opened struct {
	*plan.Opened

	operators written // without the services of the API, which the plan has
	digest    string  // of the configuration in force; empty in plans of earlier programs
}

// base returns the newest plan of the group, which a new leader goes on from; nil where
// there is none.
func (r *replicas) base() *opened {
	if base, ok := r.replica.Base(); ok {
		o, _ := base.Opened.(*opened)
		return o
	}
	return nil
}

// Next implements [control.Group].
func (r *replicas) Next(reapply bool) (uint64, error) {
	version, err := r.replica.Next(reapply)
	return version, r.explained(err)
}

// explained tells operators which replica decides.
func (r *replicas) explained(err error) error {
	if !errors.Is(err, group.ErrNotLeading) {
		return err
	}
	if leader := r.replica.Status().Leader; leader != "" && leader != r.s.fixed.Replicas.Name {
		return fmt.Errorf("%w: replica %s leads the group; ask it", control.ErrFollower, leader)
	}
	return fmt.Errorf("%w: no replica leads the group at the moment", control.ErrFollower)
}

// Publish implements [control.Group].
func (r *replicas) Publish(p *plan.Plan, o plan.Origin, found *health.SavedKeeper, reapply bool) error {
	content, err := r.encode(p, o, found)
	if err != nil {
		return err
	}
	return r.explained(r.replica.Publish(p.Version, content, reapply))
}

// Reserved implements [control.Group].
func (r *replicas) Reserved() uint64 {
	if served, ok := r.replica.Served(); ok {
		return served.Claim.Last()
	}
	return 0
}

// Last implements [control.Group].
func (r *replicas) Last() bool { return r.leads() && r.replica.Parts() }

// Report implements [control.Group].
func (r *replicas) Report(now time.Time, healthOnly bool) {
	r.relay.Forget() // what others told when this replica led
	epoch := r.replica.LeaderEpoch()
	sent := r.replica.Report(r.relay.Observations(now, healthOnly, epoch != r.warmed))
	if sent && !healthOnly {
		r.warmed = epoch
	}
}

// Designate implements [control.Group].
func (r *replicas) Designate(o *plan.Opened) {
	r.s.hds.Designate(o.Plan.Topology, o.Health.Placement.Designations)
}

// groupReports and groupCheckers show the loop what all replicas told.
type groupReports struct {
	*relay.Relay

	own *lrs.Server
}

// Collect implements [control.Reports].
func (g groupReports) Collect(now time.Time) []load.StreamWindow { return g.Windows(now) }

// Refresh implements [control.Reports].
func (g groupReports) Refresh() { g.own.Refresh() }

type groupCheckers struct{ *relay.Relay }

// Collect implements [control.Checkers].
func (g groupCheckers) Collect(now time.Time) []health.Report { return g.Votes(now) }

// encode writes a plan as it goes to other replicas.
func (r *replicas) encode(p *plan.Plan, o plan.Origin, found *health.SavedKeeper) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	shared, err := r.sharer.Share(p, o)
	if err != nil {
		return nil, err
	}
	if found != r.found {
		if r.health, err = json.Marshal(found); err != nil {
			return nil, fmt.Errorf("what checkers found can't be encoded: %w", err)
		}
		r.found = found
	}
	operators, err := r.s.operated.toProto()
	if err != nil {
		return nil, err
	}
	content := &peerv1.PlanContent{
		Format: contentFormat, Header: shared.Header, Health: r.health, Services: make([]*peerv1.ServiceContent, len(shared.Services)),
		Operators: operators, Marks: r.s.sampler.toProto(time.Now()),
	}
	if digest := r.digestInForce.Load(); digest != nil {
		content.ConfigDigest = *digest
	}
	for i := range shared.Services {
		s := &shared.Services[i]
		content.Services[i] = &peerv1.ServiceContent{Name: s.Name, Configuration: s.Configuration, Decision: s.Decision}
	}
	return proto.Marshal(content)
}

// contentFormat is the version of the content of plans that this program writes and
// reads.
const contentFormat = 1

// open reads a plan of another replica.
func (r *replicas) open(data []byte) (any, error) {
	content := &peerv1.PlanContent{}
	if err := proto.Unmarshal(data, content); err != nil {
		return nil, err
	}
	if f := content.GetFormat(); f != contentFormat {
		return nil, fmt.Errorf("the plan has format %d, this program reads %d: %w", f, contentFormat, group.ErrNewerFormat)
	}
	shared := &plan.Shared{Header: content.GetHeader(), Services: make([]plan.SharedService, len(content.GetServices()))}
	for i, s := range content.GetServices() {
		shared.Services[i] = plan.SharedService{Name: s.GetName(), Configuration: s.GetConfiguration(), Decision: s.GetDecision()}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o, err := plan.Open(shared, r.last, time.Now())
	if err != nil {
		return nil, err
	}
	if len(content.GetHealth()) > 0 {
		if err := json.Unmarshal(content.GetHealth(), &o.Health); err != nil {
			return nil, fmt.Errorf("what checkers found: %w", err)
		}
	}
	r.last = o
	r.s.sampler.fromProto(time.Now(), content.GetMarks())
	return &opened{o, operatorsFromProto(content.GetOperators()), content.GetConfigDigest()}, nil
}

// toProto returns what operators wrote as it goes with a plan.
func (o *operated) toProto() (*peerv1.Operators, error) {
	sequence := o.shown.Load()
	marks, err := o.s.registry.Marks()
	if err != nil || sequence == 0 {
		return nil, err
	}
	out := &peerv1.Operators{Sequence: sequence}
	for _, key := range slices.Sorted(maps.Keys(marks)) {
		out.Entries = append(out.Entries, &peerv1.OperatorEntry{Key: key, Data: marks[key]})
	}
	return out, nil
}

func operatorsFromProto(m *peerv1.Operators) written {
	out := written{Sequence: m.GetSequence(), Entries: make(map[string][]byte, len(m.GetEntries()))}
	for _, e := range m.GetEntries() {
		out.Entries[e.GetKey()] = e.GetData()
	}
	return out
}
