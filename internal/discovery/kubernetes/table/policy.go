package table

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isobar-xds/isobar"
)

// Target is a Service that a policy is for, in the policy's namespace.
type Target struct {
	Service string
	Port    string // name of one port; empty = all ports
}

// Policy is what counts of a LoadBalancingPolicy. It is not changed after it was
// handed over.
type Policy struct {
	Key

	Created  time.Time // the older of two policies is in force
	Targets  []Target
	Settings Settings
}

// Settings is what a policy says of a service. Zero values stand for the defaults.
type Settings struct {
	Mode              isobar.Mode         `json:"mode"`
	MaxShift          float64             `json:"max_shift,omitempty"`          // points
	FailoverThreshold float64             `json:"failover_threshold,omitempty"` // (0, 1]
	EndpointRate      float64             `json:"endpoint_rate,omitempty"`      // requests/s that one endpoint can serve
	Concurrency       float64             `json:"concurrency,omitempty"`        // requests that one endpoint can work on at once
	ZoneRates         map[string]float64  `json:"zone_rates,omitempty"`         // requests/s of a whole zone
	HealthCheck       *isobar.HealthCheck `json:"health_check,omitempty"`
}

// Applied is the policy that is in force for a service.
type Applied struct {
	Key

	Settings Settings
}

// Apply returns a service with the settings.
func (s *Settings) Apply(to isobar.Service) isobar.Service {
	to.Mode, to.MaxShift = s.Mode, s.MaxShift
	if s.FailoverThreshold > 0 {
		to.FailoverThreshold = s.FailoverThreshold
	}
	if s.HealthCheck != nil {
		to.HealthChecks = []isobar.HealthCheck{*s.HealthCheck}
		to.Checkers = isobar.Checkers{Count: isobar.DefaultCheckerCount, Domains: isobar.DefaultCheckerDomains}
	}
	if s.EndpointRate == 0 && s.Concurrency == 0 && len(s.ZoneRates) == 0 {
		return to
	}
	to.Localities = slices.Clone(to.Localities)
	for i := range to.Localities {
		l := &to.Localities[i]
		each := s.EndpointRate
		if rate := s.ZoneRates[l.Locality.Zone]; rate > 0 { // it stands for all endpoints of the zone
			l.MaxRate, each = rate, 0
		}
		l.Endpoints = slices.Clone(l.Endpoints)
		for j := range l.Endpoints {
			l.Endpoints[j].MaxRate, l.Endpoints[j].Concurrency = each, s.Concurrency
			if l.MaxRate+each == 0 {
				l.Endpoints[j].Concurrency = 0 // it says nothing without a rate
			}
		}
	}
	return to
}

// SetPolicy adds or replaces a policy.
func (t *Table) SetPolicy(p Policy) {
	t.DeletePolicy(p.Key)
	t.policies[p.Key] = p
	for _, target := range p.Targets {
		service := Key{p.Namespace, target.Service}
		if t.policiesOf[service] == nil {
			t.policiesOf[service] = map[string]struct{}{}
		}
		t.policiesOf[service][p.Name] = struct{}{}
		t.dirty[service] = struct{}{}
	}
}

// DeletePolicy removes a policy.
func (t *Table) DeletePolicy(k Key) {
	for _, target := range t.policies[k].Targets {
		service := Key{k.Namespace, target.Service}
		delete(t.policiesOf[service], k.Name)
		if len(t.policiesOf[service]) == 0 {
			delete(t.policiesOf, service)
		}
		t.dirty[service] = struct{}{}
	}
	delete(t.policies, k)
}

// ReplacePolicies replaces all policies of a namespace; empty = of all.
func (t *Table) ReplacePolicies(namespace string, list []Policy) {
	stay := make(map[string]struct{}, len(list))
	for i := range list {
		stay[list[i].String()] = struct{}{}
		t.SetPolicy(list[i])
	}
	for _, k := range slices.Collect(maps.Keys(t.policies)) { //isobar:sorted each by itself
		if _, stays := stay[k.String()]; !stays && within(k, namespace) {
			t.DeletePolicy(k)
		}
	}
}

// policyFor returns the policy that is in force for a port of a Service; nil for
// none. One for the port precedes one for the Service, and the older of two one that
// is younger.
func (t *Table) policyFor(service Key, port string) *Policy {
	for _, section := range []string{port, ""} {
		if p := t.holder(service, section); p != nil {
			return p
		}
	}
	return nil
}

// holder returns the oldest policy that has exactly this target; nil for none.
func (t *Table) holder(service Key, port string) *Policy {
	var oldest *Policy
	for _, name := range slices.Sorted(maps.Keys(t.policiesOf[service])) {
		p := t.policies[Key{service.Namespace, name}]
		if !slices.Contains(p.Targets, Target{service.Name, port}) {
			continue
		}
		if oldest == nil || cmp.Or(p.Created.Compare(oldest.Created), strings.Compare(p.Name, oldest.Name)) < 0 {
			oldest = &p
		}
	}
	return oldest
}

// Verdict says what became of one target of a policy.
type Verdict struct {
	Policy Key
	Target Target

	Holder   string   // name of the older policy that has the target; empty = this one has it
	Exists   bool     // there is such a Service
	Ports    []string // names of its TCP ports, or their numbers
	HasPort  bool     // it has the port of the target, or any where the target names none
	Services []string // names of the services that the policy is in force for by this target
}

// Verdicts says what became of all policies, sorted by policy, their targets in order.
func (t *Table) Verdicts() []Verdict {
	keys := slices.SortedFunc(maps.Keys(t.policies), func(a, b Key) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	var out []Verdict
	for _, k := range keys {
		p := t.policies[k]
		for _, target := range p.Targets {
			out = append(out, t.verdict(&p, target))
		}
	}
	return out
}

func (t *Table) verdict(p *Policy, target Target) Verdict {
	v := Verdict{Policy: p.Key, Target: target}
	service := Key{p.Namespace, target.Service}
	if h := t.holder(service, target.Port); h != nil && h.Name != p.Name {
		v.Holder = h.Name
	}
	svc, exists := t.services[service]
	v.Exists = exists
	for _, port := range svc.Ports {
		v.Ports = append(v.Ports, portName(port))
		if target.Port != "" && target.Port != port.Name {
			continue
		}
		v.HasPort = true
		if v.Holder == "" && (target.Port == port.Name || t.holder(service, port.Name) == nil) {
			v.Services = append(v.Services, ServiceName(service, port.Number))
		}
	}
	return v
}
