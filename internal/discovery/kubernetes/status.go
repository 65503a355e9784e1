package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isobar-xds/isobar/internal/discovery/keep"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/table"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/v1alpha1"
)

// State of a service.
type State string

// The states.
const (
	Waiting State = "waiting" // it has settings, and the cluster was not listed yet
	Missing State = "missing" // it has settings, and the cluster has no such Service or port
	Current State = "current" // as the cluster has it
	Kept    State = "kept"    // as it was known before; the cluster can't be watched
	Refused State = "refused" // what the cluster lists breaks a rule; the one before stays
	Empty   State = "empty"   // no endpoint can be used
)

var states = [...]State{Waiting, Missing, Current, Kept, Refused, Empty}

// Status is the state of everything, for operators.
type Status struct {
	Server      string          `json:"server,omitempty"`
	Listed      bool            `json:"listed"`                  // the cluster was listed since the start, or since the configuration named it
	Unconfirmed time.Time       `json:"doubtful_since,omitzero"` // since when the cluster may have changed unseen
	Failure     string          `json:"failure,omitempty"`       // why it can't be watched
	Watches     []WatchStatus   `json:"watches"`
	Services    []ServiceStatus `json:"services"` // sorted by name
	// Policies has an entry for each target of each LoadBalancingPolicy, sorted by policy.
	Policies      []PolicyStatus `json:"policies,omitempty"`
	StatusFailure string         `json:"status_failure,omitempty"` // why the statuses of policies can't be written
}

// PolicyStatus is what became of one target of a LoadBalancingPolicy.
type PolicyStatus struct {
	Policy    string `json:"policy"`            // NAMESPACE/NAME
	Service   string `json:"service"`           // the target
	Port      string `json:"port,omitempty"`    // empty = all ports
	InForce   bool   `json:"in_force"`          // clients are balanced by it
	Condition string `json:"condition"`         // the first that is false, or Programmed
	Reason    string `json:"reason"`            // that of the condition
	Message   string `json:"message,omitempty"` // what to do, if it is not in force
}

// WatchState is the state of a watch.
type WatchState string

// The states of watches.
const (
	WatchListed  WatchState = "listed"  // it has listed, and follows
	WatchWaiting WatchState = "waiting" // it has not listed yet
	WatchFailing WatchState = "failing" // requests fail
	WatchWithout WatchState = "without" // it is not permitted, and can be done without
)

func (f *feedState) state() WatchState {
	switch {
	case f.without():
		return WatchWithout
	case !f.failing.IsZero():
		return WatchFailing
	case f.synced:
		return WatchListed
	default:
		return WatchWaiting
	}
}

// WatchStatus is the state of the watch of one resource.
type WatchStatus struct {
	Resource  string     `json:"resource"`
	Namespace string     `json:"namespace,omitempty"` // empty = all
	State     WatchState `json:"state"`
	Objects   int        `json:"objects"`
	Failing   time.Time  `json:"failing_since,omitzero"`
	Failure   string     `json:"failure,omitempty"`
}

// ServiceStatus is the state of one service.
type ServiceStatus struct {
	Name     string    `json:"name"`
	State    State     `json:"state"`
	Settings bool      `json:"settings,omitempty"`  // the configuration names it
	Policy   string    `json:"policy,omitempty"`    // name of the LoadBalancingPolicy that is in force
	Changed  time.Time `json:"changed,omitzero"`    // when what is in force was listed
	Ready    int       `json:"ready"`               // endpoints
	Draining int       `json:"draining,omitempty"`  // they end soon
	Held     int       `json:"held,omitempty"`      // lost with most others at once: used where nothing else is left
	NotReady int       `json:"not_ready,omitempty"` // listed in slices and not served
	LeftOut  int       `json:"left_out,omitempty"`  // can't be used
	Reason   string    `json:"left_out_reason,omitempty"`
	Refused  string    `json:"refused,omitempty"`
}

// Status returns how things stand; false when no cluster is watched.
func (p *Provider) Status() (Status, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg == nil {
		return Status{}, false
	}
	s := Status{Listed: p.synced, Watches: []WatchStatus{}, Services: make([]ServiceStatus, 0, len(p.entries))}
	s.Unconfirmed, s.Failure = p.unconfirmed()
	if p.session != nil {
		s.Server = p.session.host
		for _, f := range p.session.feeds {
			s.Watches = append(s.Watches, WatchStatus{
				Resource: f.resource, Namespace: f.namespace, State: f.state(), Objects: f.objects, Failing: f.failing, Failure: f.failure,
			})
		}
	}
	for _, name := range p.names() {
		e := p.entries[name]
		_, settings := p.cfg.Services[name]
		one := ServiceStatus{Name: name, State: p.state(e), Settings: settings}
		if e != nil {
			one.Changed, one.Refused, one.Reason = e.at, e.refused, e.Reason
			if e.policy != nil && !settings {
				one.Policy = e.policy.Name
			}
			one.Ready, one.Draining, one.Held, one.NotReady, one.LeftOut = e.Counts.Ready, e.Counts.Draining, e.Counts.Held, e.Counts.NotReady, e.Counts.LeftOut
		}
		s.Services = append(s.Services, one)
	}
	s.Policies = p.policyStates()
	if p.session != nil {
		s.StatusFailure = p.session.statusFailure
	}
	return s, true
}

// policyStates says what became of each target of each policy. p.mu is held.
func (p *Provider) policyStates() []PolicyStatus {
	if p.session == nil || !p.synced || !p.cfg.Policies {
		return nil
	}
	facts := p.policyFacts()
	verdicts := p.session.table.Verdicts()
	out := make([]PolicyStatus, len(verdicts))
	for i := range verdicts {
		v := &verdicts[i]
		conditions := facts.conditions(v)
		at := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Status == metav1.ConditionFalse })
		one := PolicyStatus{Policy: v.Policy.String(), Service: v.Target.Service, Port: v.Target.Port, InForce: at < 0}
		if at < 0 {
			at = len(conditions) - 1
		}
		one.Condition, one.Reason, one.Message = conditions[at].Type, conditions[at].Reason, conditions[at].Message
		out[i] = one
	}
	return out
}

// names lists the services that are known and those that have settings, sorted.
func (p *Provider) names() []string {
	out := slices.Collect(maps.Keys(p.entries))
	for name := range p.cfg.Services {
		if p.entries[name] == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// state is that of an entry; nil = there is none. p.mu is held.
func (p *Provider) state(e *entry) State {
	since, _ := p.unconfirmed()
	switch {
	case e == nil && p.synced:
		return Missing
	case e == nil:
		return Waiting
	case e.refused != "":
		return Refused
	case !since.IsZero():
		return Kept
	case len(e.Localities) == 0:
		return Empty
	default:
		return Current
	}
}

// policyFacts are what the statuses of policies follow from now. p.mu is held, also while
// they are used.
func (p *Provider) policyFacts() policyFacts {
	return policyFacts{settings: p.cfg.Services, entries: p.entries, fullest: p.opts.Fullest}
}

// writeStatuses writes what became of policies into their statuses, until ctx ends.
func (p *Provider) writeStatuses(ctx context.Context) {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if p.opts.MayWrite != nil && !p.opts.MayWrite() {
			continue
		}
		for _, w := range p.dueStatuses(time.Now()) {
			p.writeStatus(ctx, w)
		}
	}
}

// statusWrite is the status of one policy that has to be written.
type statusWrite struct {
	session *session
	key     table.Key
	version string
	status  v1alpha1.LoadBalancingPolicyStatus
	fullest bool // it has a new fullest zone
}

// dueStatuses lists the policies whose statuses differ from what was found.
func (p *Provider) dueStatuses(now time.Time) []statusWrite {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.session
	if p.cfg == nil || s == nil || !p.synced || !s.cluster.Policies {
		return nil
	}
	var out []statusWrite
	facts := p.policyFacts()
	verdicts := s.table.Verdicts()
	for len(verdicts) > 0 && len(out) < maxStatuses {
		k := verdicts[0].Policy
		n := 1
		for n < len(verdicts) && verdicts[n].Policy == k {
			n++
		}
		object := s.policies[k]
		if object != nil {
			if w, due := facts.statusOf(object, verdicts[:n], now); due {
				w.session, w.key = s, k
				out = append(out, w)
			}
		}
		verdicts = verdicts[n:]
	}
	return out
}

// writeStatus patches the status of one policy. If the policy has changed meanwhile, the
// API server refuses the patch, and the next round writes again.
func (p *Provider) writeStatus(ctx context.Context, w statusWrite) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]string{"resourceVersion": w.version}, "status": w.status})
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		err = w.session.clients.parts[v1alpha1.GroupVersion].Patch(types.MergePatchType).Namespace(w.key.Namespace).Resource(v1alpha1.Policies).
			Name(w.key.Name).SubResource("status").Body(body).Do(ctx).Error()
	}
	if ctx.Err() != nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != w.session {
		return
	}
	if err == nil {
		w.session.statusFailure = ""
		if o := w.session.policies[w.key]; o != nil && w.fullest {
			o.fullestAt = time.Now()
		}
		return
	}
	p.metrics.failures.WithLabelValues(statusResource).Inc()
	was := w.session.statusFailure
	w.session.statusFailure = keep.Short(explainStatus(err))
	if was == "" {
		p.warn("the status of a LoadBalancingPolicy can't be written", "policy", w.key.String(), "error", w.session.statusFailure)
	}
}

const (
	policyResource = v1alpha1.Policies + ".isobar.dev"
	statusResource = v1alpha1.Policies + "/status.isobar.dev"
)

func explainStatus(err error) string {
	if apierrors.IsForbidden(err) {
		return fmt.Sprintf("not permitted: give the service account patch of %s: %v", statusResource, err)
	}
	return err.Error()
}
