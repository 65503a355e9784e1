package replica

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/replica/engine"
	"github.com/isobar-xds/isobar/internal/replica/group"
	"github.com/isobar-xds/isobar/internal/replica/peerv1"
)

// Peer is another replica of the group.
type Peer struct {
	Name    string
	Address string // host:port
}

// Disk keeps the state that a replica needs after a restart. Data of SaveReplica and SavePlan is
// durable when they return. Data that was never written is nil.
type Disk interface {
	LoadReplica() ([]byte, error)
	SaveReplica(data []byte) error
	LoadPlan() ([]byte, error)
	SavePlan(data []byte) error
}

// Options of a Replica. All are required but those that say otherwise.
type Options struct {
	Group, Name string
	Version     string // of the program, for display
	Peers       []Peer // the other replicas; may be empty
	// OpenEngine opens the engine for this run of the replica.
	OpenEngine func(self group.Identity) (engine.Engine, error)
	Disk       Disk
	Listener   net.Listener // of other replicas; the replica closes it
	// ServerTLS and ClientTLS give the TLS of connections; nil = plaintext. Names in
	// certificates are checked; see [CertificateName].
	ServerTLS, ClientTLS *tls.Config
	// Known is the last version of an earlier single server; versions of the group are above it.
	Known group.Known
	// Open reads the content of a plan before it may be served. Its error refuses the
	// plan. What it returns goes with the plan in Served. It is called by one goroutine
	// at a time.
	Open func(content group.Content) (any, error)
	// Observed takes the reports of another replica's clients; it does not block.
	Observed func(from group.Identity, o *peerv1.Observations)
	// Ordered answers an operator's request on another replica, while this one leads.
	Ordered func(ctx context.Context, o Order) Answer
	// Reporting returns for each node how many of its load report streams are here and
	// belong to no client of this replica; nil = none.
	Reporting func(nodes []*peerv1.Node) []uint32
	// Summary returns the summary that other replicas show of this one; nil = none.
	Summary func() *peerv1.Summary
	Timing  Timing

	Log        *slog.Logger
	Registerer prometheus.Registerer // nil = no metrics
}

// Timing shortens the protocol for tests. Zero values are the defaults.
type Timing struct {
	Heartbeat, Deadline, Renew, Campaign, EngineTimeout, Gather, Rest time.Duration
}

// Served is a plan that clients of this replica get.
type Served struct {
	group.Plan

	Opened any // the result of Options.Open; nil for plans of this replica itself
	At     time.Time
}
