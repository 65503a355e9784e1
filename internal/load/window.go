// Package load turns load reports into the planner's input: demand per source, landed requests,
// utilization and coverage. It is pure: time is an argument, and no code here locks or logs.
package load

import (
	"time"

	"github.com/isobar-xds/isobar"
)

// StreamID names one LRS stream of this process; ids are never used twice.
type StreamID uint64

// Node is the sender of a stream's reports. Only the first message's node counts.
type Node struct {
	ID       string
	Cluster  string // node.cluster: the client service
	Locality isobar.Locality
	Agent    Agent
}

// Agent is the kind of client, which decides what a report without a service means.
type Agent uint8

// The kinds of clients, by node.user_agent_name.
const (
	AgentUnknown Agent = iota
	AgentEnvoy
	AgentGRPC
)

// Report is one inbound load report after validation. Counters are deltas
// since the stream's report before. A service may occur more than once (a
// client keys by cluster and service, with clocks of their own): the rates add
// up.
type Report struct {
	Arrived  time.Time
	Services []ServiceReport
	// Refused are services with implausible entries: nothing of
	// these counts, but nor does it say that nothing was sent. Sorted, without
	// repetition.
	Refused []string
	// ByArrival says that the intervals lie between arrivals: the client told none.
	ByArrival bool
}

// ServiceReport is one ClusterStats.
type ServiceReport struct {
	Service  string        // cluster_service_name when set, else cluster_name
	Interval time.Duration // as measured by the client; 0 = not told (old clients): use arrival times
	Dropped  uint64        // requests dropped at the client, those of all categories included
	// DroppedBy holds the drops by category, sorted, for display.
	DroppedBy  []DropCount
	Localities []LocalityReport
}

// DropCount counts drops of one category.
type DropCount struct {
	Category string
	Count    uint64
}

// LocalityReport is one UpstreamLocalityStats. A server keeps very many of them
// until the next tick, so they are 48 bytes.
type LocalityReport struct {
	Locality   *isobar.Locality // shared by reports, never written to; nil = none was named
	Issued     uint64           // 0 from clients too old to tell: see HasIssued
	Succeeded  uint64
	Errors     uint64
	InProgress uint32 // gauge
	Priority   uint16
	HasIssued  bool             // false: take successful + error + change of in-progress
	Details    *LocalityDetails // nil = there are none
}

// LocalityDetails holds the values of a locality that only some clients report.
type LocalityDetails struct {
	Metrics   []MetricSum // sorted by name
	Endpoints []EndpointReport
}

// Where returns the locality; the zero one where none was named.
func (l *LocalityReport) Where() isobar.Locality {
	if l.Locality == nil {
		return isobar.Locality{}
	}
	return *l.Locality
}

// metrics returns the metrics, if there are any.
func (l *LocalityReport) metrics() []MetricSum {
	if l.Details == nil {
		return nil
	}
	return l.Details.Metrics
}

// endpoints returns the statistics by endpoint, if there are any.
func (l *LocalityReport) endpoints() []EndpointReport {
	if l.Details == nil {
		return nil
	}
	return l.Details.Endpoints
}

// MetricSum is an ORCA metric summed over the requests that carried it. The
// standard utilizations use the names of the Metric constants.
type MetricSum struct {
	Name     string
	Requests uint64
	Total    float64
}

// Names under which the unnamed ORCA utilizations are kept.
const (
	MetricCPU         = isobar.MetricCPU
	MetricMemory      = isobar.MetricMemory
	MetricApplication = isobar.MetricApplication
)

// EndpointReport is one UpstreamEndpointStats.
type EndpointReport struct {
	Address    string
	Issued     uint64
	Succeeded  uint64
	Errors     uint64
	InProgress uint64
}

// StreamWindow is everything that one stream reported since it was last
// collected; see [Table.Merge].
type StreamWindow struct {
	Stream StreamID
	Node   Node
	// Account is the identity or address that the stream belongs to; empty = not
	// known. Identified says that a certificate shows it.
	Account    string
	Identified bool
	// Delay is how long a report may be on its way here after the replica that the client is
	// connected to has received it; 0 where that is this process.
	Delay time.Duration
	// Unheard says that the replica of the client is not heard: the client's demand stands until the
	// client takes its stream over from another replica, or the stream is closed.
	Unheard bool
	// Opened is when the stream opened. It may move, before the first report, to when the server
	// told the client the services to report, if that took long.
	Opened  time.Time
	Closed  time.Time // zero while the stream is open
	Reports []Report  // in order of arrival; empty when nothing came
}
