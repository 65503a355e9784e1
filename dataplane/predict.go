package dataplane

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/isobar-xds/isobar"
)

// Kind is the kind of data plane.
type Kind uint8

// The data planes.
const (
	Envoy Kind = iota
	GRPC
)

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case Envoy:
		return "envoy"
	case GRPC:
		return "grpc"
	default:
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
}

// LBPolicy is how Envoy picks among the hosts of a priority: lb_policy of its
// cluster.
type LBPolicy uint8

// The policies. Measured on Envoy, RoundRobin is predicted exactly and LeastRequest
// while requests come one at a time: it lowers the weights of hosts that are busy.
// Random ignores the weights of endpoints. RingHash and Maglev serve by the share of
// the hashes, take localities whatever part of their hosts is healthy, know no
// degraded hosts, and can send nowhere if no locality of a priority has a weight.
const (
	RoundRobin LBPolicy = iota
	LeastRequest
	Random
	RingHash
	Maglev
)

var lbPolicyNames = [...]string{"round_robin", "least_request", "random", "ring_hash", "maglev"}

// LBPolicies lists the names of all policies.
func LBPolicies() []string { return slices.Clone(lbPolicyNames[:]) }

// String returns the policy's name.
func (p LBPolicy) String() string {
	if int(p) < len(lbPolicyNames) {
		return lbPolicyNames[p]
	}
	return fmt.Sprintf("lb_policy(%d)", uint8(p))
}

// ParseLBPolicy returns the policy of a name, in either case.
func ParseLBPolicy(name string) (LBPolicy, error) {
	i := slices.Index(lbPolicyNames[:], strings.ToLower(name))
	if i < 0 {
		return 0, fmt.Errorf("no policy %.100q, want one of %s", name, strings.Join(lbPolicyNames[:], ", "))
	}
	return LBPolicy(i), nil //nolint:gosec // a small index
}

// hashes reports whether the policy spreads hashes of requests.
func (p LBPolicy) hashes() bool { return p == RingHash || p == Maglev }

// Options say how the client is configured. Use [DefaultOptions] as the start:
// a panic threshold of 0 means that panic is off.
type Options struct {
	// PanicThreshold in percent of hosts, 0 to 100, of which Envoy takes the
	// whole part; Envoy only.
	PanicThreshold float64
	// OverprovisioningFactor in percent overrides the assignment's; 0 = as the
	// assignment says. Envoy only.
	OverprovisioningFactor uint32
	// Excluded lists addresses that are left out of all counts, besides those
	// that the cluster itself marks. Envoy only: gRPC has no such state.
	Excluded []string
	// LBPolicy is the cluster's lb_policy; Envoy only.
	LBPolicy LBPolicy
	// EndpointWeights makes gRPC pick the endpoints of a locality by weight, as
	// ring_hash does; its round_robin ignores their weights. Envoy obeys
	// them with each policy but Random.
	EndpointWeights bool
}

// DefaultOptions are those of a client that configures nothing.
func DefaultOptions() Options { return Options{PanicThreshold: DefaultPanicThreshold} }

// Prediction is what a data plane does with a cluster.
type Prediction struct {
	Priorities  []PriorityPrediction `json:"priorities"`
	PassPercent float64              `json:"pass_percent"` // percent of requests that no drop category drops
}

// PriorityPrediction is one priority.
type PriorityPrediction struct {
	Load         int                  `json:"load"`          // percent of the passed requests, to healthy hosts or in panic
	DegradedLoad int                  `json:"degraded_load"` // percent of the passed requests, to degraded hosts
	Panic        bool                 `json:"panic"`
	Localities   []LocalityPrediction `json:"localities"`
}

// LocalityPrediction is one locality of a priority.
type LocalityPrediction struct {
	Locality  isobar.Locality      `json:"locality"`
	Share     float64              `json:"share"` // fraction of all passed requests
	Endpoints []EndpointPrediction `json:"endpoints"`
}

// EndpointPrediction is one endpoint of a locality.
type EndpointPrediction struct {
	Address string  `json:"address"`
	Share   float64 `json:"share"` // fraction of all passed requests
}

// PredictAssignment is [Predict] for what Isobar publishes.
func PredictAssignment(a *isobar.Assignment, kind Kind, o Options) Prediction {
	return Predict(FromAssignment(a), kind, o)
}

// Predict works out priority loads, panic, and the shares of localities and
// endpoints. The shares of all localities sum to 1 whenever the client can
// send anywhere at all.
func Predict(c Cluster, kind Kind, o Options) Prediction {
	factor := factorOf(c, o)
	if kind == Envoy {
		c = exclude(c, o.Excluded)
	} else {
		c = asGRPC(c)
	}
	hosts := make([]Hosts, len(c.Priorities))
	for p := range c.Priorities {
		hosts[p] = count(&c.Priorities[p], c.WeightedPriorityHealth)
	}
	loads := GRPCLoads(hosts)
	if kind == Envoy {
		loads = EnvoyLoads(hosts, factor, o.PanicThreshold)
	}
	out := Prediction{Priorities: make([]PriorityPrediction, len(loads)), PassPercent: passPercent(c.Drops)}
	for p, l := range loads {
		if kind == Envoy && o.LBPolicy.hashes() {
			out.Priorities[p] = predictHashed(&c.Priorities[p], l)
			continue
		}
		byWeight := o.EndpointWeights
		if kind == Envoy {
			byWeight = o.LBPolicy != Random
		}
		out.Priorities[p] = predictPriority(&c.Priorities[p], l, kind, factor, byWeight)
	}
	return out
}

func factorOf(c Cluster, o Options) uint32 {
	switch {
	case o.OverprovisioningFactor > 0:
		return o.OverprovisioningFactor
	case c.OverprovisioningFactor > 0:
		return c.OverprovisioningFactor
	default:
		return DefaultOverprovisioningFactor
	}
}

// passPercent is pass in percent, without the dust of binary fractions: what is
// left of 80% dropped is 20.
func passPercent(drops []float64) float64 { return math.Round(1e11*pass(drops)) / 1e9 }

// pass is the fraction that gets through all drop categories in turn.
func pass(drops []float64) float64 {
	p := 1.0
	for _, d := range drops {
		if !math.IsNaN(d) {
			p *= 1 - min(1, max(0, d))
		}
	}
	return p
}

// exclude marks the endpoints with the given addresses, in copies.
func exclude(c Cluster, addresses []string) Cluster {
	if len(addresses) == 0 {
		return c
	}
	return changed(c, func(_ *Locality, e *Endpoint) { e.Excluded = e.Excluded || slices.Contains(addresses, e.Address) })
}

// asGRPC leaves out what gRPC does not know: exclusion, weighted health, and
// the endpoints of localities or parts without a weight, which it skips as a
// whole. Of repeated addresses it refuses all, unless it has skipped the others.
func asGRPC(c Cluster) Cluster {
	c.WeightedPriorityHealth = false
	return changed(c, func(l *Locality, e *Endpoint) {
		e.Excluded, e.Repeated = false, false
		if l.Weight == 0 || e.Unweighted {
			e.Health = isobar.Unhealthy
		}
	})
}

// changed is a cluster with other endpoints; those that it came with stay as they
// are.
func changed(c Cluster, change func(*Locality, *Endpoint)) Cluster {
	c.Priorities = slices.Clone(c.Priorities)
	for p := range c.Priorities {
		localities := slices.Clone(c.Priorities[p].Localities)
		for i := range localities {
			l := &localities[i]
			l.Endpoints = slices.Clone(l.Endpoints)
			for k := range l.Endpoints {
				change(l, &l.Endpoints[k])
			}
		}
		c.Priorities[p].Localities = localities
	}
	return c
}

func count(p *Priority, weighted bool) Hosts {
	var sum Hosts
	for i := range p.Localities {
		sum = sum.plus(countLocality(&p.Localities[i], weighted))
	}
	return sum
}

func countLocality(l *Locality, weighted bool) Hosts {
	var h Hosts
	for i := range l.Endpoints {
		e := &l.Endpoints[i]
		if e.Repeated {
			continue
		}
		h.Total++
		var w uint64
		if weighted {
			w = e.weight()
		}
		if e.excluded() {
			h.Excluded++
			continue
		}
		h.CountedWeight += w
		switch {
		case e.healthy():
			h.Healthy++
			h.HealthyWeight += w
		case e.degraded():
			h.Degraded++
			h.DegradedWeight += w
		}
	}
	return h
}

// Predictions is what each kind of data plane does with the same cluster.
type Predictions struct {
	Envoy Prediction `json:"envoy"`
	GRPC  Prediction `json:"grpc"`
}

// PredictAll is [Predict] for every kind of data plane.
func PredictAll(c Cluster, o Options) Predictions {
	return Predictions{Envoy: Predict(c, Envoy, o), GRPC: Predict(c, GRPC, o)}
}
