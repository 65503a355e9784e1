package load

import (
	"time"

	"github.com/isobar-xds/isobar"
)

// Snapshot is what the planner reads at a tick: demand, landings and
// utilization of every service that reports or is remembered. Immutable.
type Snapshot struct {
	At       time.Time
	Services []ServiceLoad // sorted by name
}

// ServiceLoad is the load of one service.
type ServiceLoad struct {
	Name string
	// Coverage is the share of the last known demand whose nodes have reported
	// to this process, 0 to 1. 1 when no demand was known before.
	Coverage float64
	// Covered is false while the plan has to hold (coverage below the
	// threshold and the grace of three intervals not over).
	Covered bool
	Sources []SourceLoad // sorted by source
	Sites   []SiteLoad   // sorted by locality: what lands where, summed over sources
}

// SourceLoad is what one source locality sends to a service.
type SourceLoad struct {
	Source isobar.Locality
	Demand float64 // requests/s, smoothed, held, capped: what the solver gets (before background is taken off)
	Raw    float64 // requests/s of the last windows, unsmoothed
	Saved  float64 // requests/s remembered from the saved plan; 0 when not in use
	Drop   float64 // requests/s dropped by the clients
	Errors float64 // requests/s that failed
	Nodes  int     // streams with a fresh report
	Held   int     // streams whose last rate is held because a report is missing
	// Since is when the oldest window that is part of Raw began.
	Since   time.Time
	Landed  []LandedLoad // sorted by locality
	Clients []ClientLoad // sorted by name: node.cluster
}

// LandedLoad is what a source's reporting nodes land in one locality.
type LandedLoad struct {
	Locality isobar.Locality
	Issued   float64 // requests/s
	Errors   float64 // requests/s
	// InProgress is the mean of the gauge, requests; with Issued it gives the
	// mean latency by Little's law. It is shown, and never feeds the cost.
	InProgress float64
}

// LatencyMS is Little's law: mean requests in progress over their rate, in
// milliseconds; 0 without rate.
func (l LandedLoad) LatencyMS() float64 {
	if l.Issued <= 0 {
		return 0
	}
	return 1000 * l.InProgress / l.Issued
}

// ClientLoad is the part of a source's demand that one client service sends.
type ClientLoad struct {
	Name string
	Rate float64 // requests/s
}

// SiteLoad is what lands in one locality of a service from all sources.
type SiteLoad struct {
	Locality    isobar.Locality
	Issued      float64 // requests/s
	Errors      float64 // requests/s
	Utilization float64 // ORCA application (else CPU) utilization, mean over requests; 0 = none reported
	Metrics     []Metric
}

// Metric is a named ORCA metric, the mean over the requests that carried it.
type Metric struct {
	Name string
	Mean float64
}

// Service finds a service's load by name; nil when there is none.
func (s *Snapshot) Service(name string) *ServiceLoad {
	if s == nil {
		return nil
	}
	for i := range s.Services {
		if s.Services[i].Name == name {
			return &s.Services[i]
		}
	}
	return nil
}

// Source finds a source by locality; nil when there is none.
func (s *ServiceLoad) Source(l isobar.Locality) *SourceLoad {
	if s == nil {
		return nil
	}
	for i := range s.Sources {
		if s.Sources[i].Source == l {
			return &s.Sources[i]
		}
	}
	return nil
}
