package load

import (
	"sort"
	"time"

	"github.com/isobar-xds/isobar"
)

// Snapshot is the planner's input at a tick: demand, observed requests and utilization of every
// service that reports or is remembered. Immutable.
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
	// Stale is the share of the demand that is taken from earlier reports
	// because connected clients owe newer ones, 0 to 1.
	Stale float64
	Age   Age       // for how long too much of it is stale
	Heard time.Time // when at most half of it was
	// Outcomes are of its newest requests, of several windows where they are few.
	Outcomes    Outcomes
	Futile      []SiteFutile // sorted; localities in which nothing succeeded since the last requests that failed
	WorstRecent Outcomes     // of the three windows in a row, among the newest ten, of which the largest part failed
	Sources     []SourceLoad // sorted by source
	Sites       []SiteLoad   // sorted by locality: the landed load, summed over sources
	// Largest is the largest fraction of the demand that a single client sends, by the
	// means of the clients' rates, 0 to 1; 0 = nothing was sent.
	Largest float64
	// Observations hold the experience of requests, sorted by locality, and LeftOut the clients
	// whose requests in progress are not counted in them.
	Observations []Observation
	LeftOut      []LeftOut
	// Misled is the part of all requests, 0 to 1, that counted until now, and turned out to
	// be more than the requests in progress of the clients that claim them explain.
	Misled float64
}

// SourceLoad is the load that one source locality sends to a service.
type SourceLoad struct {
	Source isobar.Locality
	Demand float64 // requests/s, smoothed, held, capped: the solver's demand (before unmanaged load is subtracted)
	// Unproven is the part of Demand that raises no drop: of clients without a history, or
	// possible retries; requests/s.
	Unproven float64
	// Claimed is the part of Unproven that a later process must not take for proven,
	// requests/s: in its first minute a process has proof of nothing.
	Claimed     float64
	Raw         float64        // requests/s of the last windows, unsmoothed
	Variability float64        // standard deviation of its rate, faster than Demand follows, as a fraction of it; 0 = none that is beyond doubt
	Saved       float64        // requests/s remembered from before; 0 when not in use
	Drop        float64        // requests/s dropped by the clients
	Drops       []CategoryDrop // sorted; drops without a category are in Drop only
	Errors      float64        // requests/s that failed
	Futile      Futile         // its requests since the last one that succeeded
	newest      outcomes       // of the windows measured since the last snapshot
	Nodes       int            // streams with a fresh report
	Held        int            // streams whose last rate is held because a report is missing
	Stale       float64        // requests/s taken from earlier reports because newer ones are missing
	Capped      int            // streams of which only a part counts: they jumped too far above their own mean
	// Since is when the oldest of the fresh windows began, Until when the one
	// that ended first did, Last when the one that ended last did. All are zero
	// without a fresh report.
	Since, Until, Last time.Time
	Newest             time.Time     // when the newest window ended, of streams with a held rate, too; zero = there is none
	Window             time.Duration // mean length of the fresh windows
	Landed             []LandedLoad  // sorted by locality; of streams with a fresh report only
	Clients            []ClientLoad  // sorted by name: node.cluster

	fresh float64 // requests/s of streams with a fresh report
}

// LandedLoad is the load of a source's reporting nodes that lands in one locality.
type LandedLoad struct {
	Locality  isobar.Locality
	Issued    float64 // attempts, refused connections included, requests/s
	Errors    float64 // requests/s
	Succeeded float64 // requests/s
	// Abandoned are requests that ended without success or error, because the
	// client left or its own deadline passed, requests/s.
	Abandoned float64
	// Doubted is by how many fewer requests failed than clients tell that came a moment ago,
	// requests/s; negative: by how many more. As many fail as those of other clients do.
	Doubted float64
	known   float64 // of Issued, of the other clients
	Waiting float64 // requests in progress as the newest reports tell
	// Priority is the lowest tier (highest number) through which requests went
	// there; 0 from clients that do not tell.
	Priority uint32
	// InProgress is the long mean of the gauge, requests, and MeanIssued that of
	// the rate, requests/s: together they give the mean latency by Little's law.
	// It contains queueing, is shown, and never feeds the cost.
	InProgress float64
	MeanIssued float64
}

// LatencyMS is Little's law: mean requests in progress over their mean rate, in
// milliseconds; 0 without rate.
func (l LandedLoad) LatencyMS() float64 {
	if l.MeanIssued <= 0 {
		return 0
	}
	return 1000 * l.InProgress / l.MeanIssued
}

// CategoryDrop is the rate that clients drop under one category.
type CategoryDrop struct {
	Category string
	Rate     float64 // requests/s
}

// ClientLoad is the part of a source's demand that one client service sends.
type ClientLoad struct {
	Name string
	Rate float64 // requests/s
}

// SiteLoad is the load from all sources that lands in one locality of a service.
type SiteLoad struct {
	Locality    isobar.Locality
	Issued      float64        // attempts, held streams included, requests/s
	Errors      float64        // requests/s
	Succeeded   float64        // requests/s
	InProgress  float64        // requests, as the newest reports tell
	Utilization float64        // ORCA application (else CPU) utilization, mean over requests; 0 = none reported
	Metrics     []Metric       // sorted by name
	Endpoints   []EndpointLoad // sorted by address; only where clients report by endpoint
}

// EndpointLoad is the load that lands on one endpoint.
type EndpointLoad struct {
	Address string
	Issued  float64 // requests/s
	Errors  float64 // requests/s
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
	// Loads are large: they are looked at in their place.
	i := sort.Search(len(s.Services), func(i int) bool { return s.Services[i].Name >= name })
	if i == len(s.Services) || s.Services[i].Name != name {
		return nil
	}
	return &s.Services[i]
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
