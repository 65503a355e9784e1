package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/table"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes/v1alpha1"
)

const (
	// statusEvery is how often Isobar compares the statuses of policies with what it
	// finds, so how often it writes one of them at most.
	statusEvery = 2 * time.Second
	// fullestEvery is how often Isobar writes the fullest zone of a policy at most.
	fullestEvery = time.Minute
	// maxStatuses bounds the writes of one round.
	maxStatuses = 50
	// maxMessage is the length of the longest message of a condition, in bytes.
	maxMessage = 1024
)

// policyOf reads a policy. What breaks a rule of the CRD is left out: the API server
// has refused it, unless the CRD is an older one.
func policyOf(from *v1alpha1.LoadBalancingPolicy) (table.Policy, bool) {
	spec := &from.Spec
	p := table.Policy{
		Key: table.Key{Namespace: shared(from.Namespace), Name: from.Name}, Created: from.CreationTimestamp.Time,
		Settings: table.Settings{Mode: modeOf(spec.Mode), HealthCheck: checkOf(spec.HealthCheck)},
	}
	for _, ref := range spec.TargetRefs {
		p.Targets = append(p.Targets, table.Target{Service: ref.Name, Port: ref.SectionName})
	}
	if spec.MaxShift != nil && spec.Mode == v1alpha1.Bounded {
		p.Settings.MaxShift = float64(*spec.MaxShift)
	}
	if f := spec.Failover; f != nil {
		p.Settings.FailoverThreshold = float64(f.Threshold) / 100
	}
	if c := spec.Capacity; c != nil {
		p.Settings.EndpointRate, p.Settings.Concurrency = number(c.MaxRatePerEndpoint), number(c.ConcurrencyPerEndpoint)
		for _, l := range c.Localities {
			if p.Settings.ZoneRates == nil {
				p.Settings.ZoneRates = map[string]float64{}
			}
			p.Settings.ZoneRates[l.Zone] = float64(l.MaxRate)
		}
	}
	return p, true
}

func number(n *int32) float64 {
	if n == nil {
		return 0
	}
	return float64(*n)
}

func modeOf(m v1alpha1.Mode) isobar.Mode {
	switch m {
	case v1alpha1.Full:
		return isobar.ModeFull
	case v1alpha1.Bounded:
		return isobar.ModeBounded
	case v1alpha1.Auto:
		return isobar.ModeAuto
	case v1alpha1.Observe:
	}
	return isobar.ModeObserve
}

func checkOf(from *v1alpha1.HealthCheck) *isobar.HealthCheck {
	if from == nil {
		return nil
	}
	c := &isobar.HealthCheck{
		Interval: isobar.DefaultCheckInterval, Timeout: isobar.DefaultCheckTimeout,
		UnhealthyThreshold: isobar.DefaultUnhealthyThreshold, HealthyThreshold: isobar.DefaultHealthyThreshold,
	}
	if d, err := time.ParseDuration(string(from.Interval)); err == nil && d > 0 {
		c.Interval = d
	}
	if d, err := time.ParseDuration(string(from.Timeout)); err == nil && d > 0 {
		c.Timeout = d
	}
	c.Timeout = min(c.Timeout, c.Interval)
	switch {
	case from.GRPC != nil:
		c.Protocol, c.GRPC = isobar.CheckGRPC, &isobar.GRPCCheck{Service: from.GRPC.Service}
	case from.HTTP != nil:
		c.Protocol, c.HTTP = isobar.CheckHTTP, &isobar.HTTPCheck{Path: from.HTTP.Path, Host: from.HTTP.Host}
	default:
		c.Protocol, c.TCP = isobar.CheckTCP, &isobar.TCPCheck{}
	}
	return c
}

// policyObject is what the API server has of a policy.
type policyObject struct {
	version    string
	generation int64
	status     v1alpha1.LoadBalancingPolicyStatus
	fullestAt  time.Time // when the fullest zone was written
}

// setPolicy takes a policy with its status. p.mu is held.
func (s *session) setPolicy(o *v1alpha1.LoadBalancingPolicy) {
	k := table.Key{Namespace: o.Namespace, Name: o.Name}
	next := &policyObject{version: o.ResourceVersion, generation: o.Generation, status: o.Status}
	if old := s.policies[k]; old != nil {
		next.fullestAt = old.fullestAt
	}
	s.policies[k] = next
}

// policyFacts are what the statuses of policies follow from.
type policyFacts struct {
	settings map[string]isobar.Service // of the configuration, by service
	entries  map[string]*entry
	fullest  func(service string) (isobar.Locality, float64, bool) // nil = not known
}

// statusOf returns the status of a policy, and whether it has to be written. Entries of
// other controllers stay.
func (p *policyFacts) statusOf(object *policyObject, verdicts []table.Verdict, now time.Time) (statusWrite, bool) {
	w := statusWrite{version: object.version, status: v1alpha1.LoadBalancingPolicyStatus{FullestZone: object.status.FullestZone}}
	before := map[v1alpha1.TargetRef][]metav1.Condition{}
	for _, a := range object.status.Ancestors {
		if a.ControllerName == v1alpha1.ControllerName {
			before[a.AncestorRef] = a.Conditions
		} else {
			w.status.Ancestors = append(w.status.Ancestors, a)
		}
	}
	for i := range verdicts {
		ref := v1alpha1.TargetRef{Kind: "Service", Name: verdicts[i].Target.Service, SectionName: verdicts[i].Target.Port}
		conditions := p.conditions(&verdicts[i])
		for j := range conditions {
			c := &conditions[j]
			c.ObservedGeneration, c.LastTransitionTime = object.generation, metav1.NewTime(now.Truncate(time.Second))
			at := slices.IndexFunc(before[ref], func(b metav1.Condition) bool { return b.Type == c.Type && b.Status == c.Status })
			if at >= 0 {
				c.LastTransitionTime = before[ref][at].LastTransitionTime
			}
		}
		w.status.Ancestors = append(w.status.Ancestors, v1alpha1.AncestorStatus{AncestorRef: ref, ControllerName: v1alpha1.ControllerName, Conditions: conditions})
	}
	if now.Sub(object.fullestAt) >= fullestEvery {
		w.status.FullestZone = p.fullestZone(verdicts)
		w.fullest = w.status.FullestZone != object.status.FullestZone
	}
	return w, !equality.Semantic.DeepEqual(w.status, object.status)
}

// fullestZone names the zone of the services of a policy that uses most of its capacity.
func (p *policyFacts) fullestZone(verdicts []table.Verdict) string {
	if p.fullest == nil {
		return ""
	}
	zone, most := "", -1.0
	for i := range verdicts {
		for _, name := range verdicts[i].Services {
			if l, used, ok := p.fullest(name); ok && used > most {
				zone, most = l.Zone, used
			}
		}
	}
	if zone == "" {
		return ""
	}
	return fmt.Sprintf("%s %.0f%%", zone, most*100)
}

// conditions says what became of a target of a policy.
func (p *policyFacts) conditions(v *table.Verdict) []metav1.Condition {
	return conditionsOf(v, func(name string) bool { _, is := p.settings[name]; return is }, p.programmed)
}

// conditionsOf says what became of a target of a policy. owned reports whether the
// configuration has settings for a service, inForce why services are not balanced.
func conditionsOf(v *table.Verdict, owned func(string) bool, inForce func([]string) (reason, message string)) []metav1.Condition {
	accepted := metav1.Condition{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, Reason: v1alpha1.Accepted, Message: "the policy has the target"}
	resolved := metav1.Condition{Type: v1alpha1.ResolvedRefs, Status: metav1.ConditionTrue, Reason: v1alpha1.ResolvedRefs, Message: "the target exists"}
	programmed := metav1.Condition{Type: v1alpha1.Programmed, Status: metav1.ConditionTrue, Reason: v1alpha1.Programmed}
	fail := func(c *metav1.Condition, reason, format string, args ...any) {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, fmt.Sprintf(format, args...)
		if len(c.Message) > maxMessage {
			c.Message = strings.ToValidUTF8(c.Message[:maxMessage], "")
		}
	}
	ns, svc := v.Policy.Namespace, v.Target.Service
	switch {
	case !v.Exists:
		fail(&resolved, v1alpha1.ReasonTargetNotFound,
			"namespace %s has no Service %s with a TCP port: correct the name in targetRefs, or create the Service", ns, svc)
	case !v.HasPort:
		fail(&resolved, v1alpha1.ReasonPortNotFound,
			"Service %s has no TCP port with the name %s: write one of %s as sectionName, or leave sectionName out for all ports",
			svc, v.Target.Port, strings.Join(v.Ports, ", "))
	}
	settings := slices.IndexFunc(v.Services, owned)
	switch {
	case v.Holder != "":
		fail(&accepted, v1alpha1.ReasonConflicted,
			"policy %s is older and has the same target: delete one of the two, or change targetRefs of this one", v.Holder)
	case settings >= 0:
		fail(&accepted, v1alpha1.ReasonConflicted,
			"the configuration file has settings for %s, which precede: "+
				"remove it from discovery.kubernetes.services, or delete this policy", v.Services[settings])
	}
	switch {
	case resolved.Status == metav1.ConditionFalse:
		fail(&programmed, resolved.Reason, "the target does not exist; see the condition ResolvedRefs")
	case accepted.Status == metav1.ConditionFalse:
		fail(&programmed, accepted.Reason, "the policy is not in force for this target; see the condition Accepted")
	case len(v.Services) == 0:
		fail(&programmed, v1alpha1.ReasonConflicted, "each port of Service %s has a policy of its own, which precedes", svc)
	default:
		reason, message := inForce(v.Services)
		if reason != "" {
			fail(&programmed, reason, "%s", message)
		} else {
			programmed.Message = message
		}
	}
	return []metav1.Condition{accepted, resolved, programmed}
}

// programmed says why one of the services can't be balanced; without a reason, that
// all are.
func (p *policyFacts) programmed(services []string) (reason, message string) {
	left := ""
	for _, name := range services {
		switch e := p.entries[name]; {
		case e == nil:
			return v1alpha1.ReasonPending, name + " is not served yet"
		case e.refused != "":
			return v1alpha1.ReasonRefused, fmt.Sprintf("Isobar refuses %s: %s", name, e.refused)
		case e.Counts.Ready == 0 && e.Counts.LeftOut > 0:
			return v1alpha1.ReasonLeftOut, fmt.Sprintf("no endpoint of %s can be used: %s", name, e.Reason)
		case e.Counts.Ready == 0:
			return v1alpha1.ReasonNoEndpoints, "no endpoint of " + name + " is ready: see the Pods that its Service selects"
		case e.Counts.LeftOut > 0 && left == "":
			left = fmt.Sprintf("; some endpoints of %s are left out: %s", name, e.Reason)
		}
	}
	return "", "clients of " + strings.Join(services, ", ") + " are balanced by the policy" + left
}
