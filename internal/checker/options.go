package checker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/isobar-xds/isobar"
)

// Defaults of the limits in [Options].
const (
	DefaultMaxProbes    = 2048
	DefaultMaxEndpoints = 20_000
)

// Upper bounds of the limits: more goroutines only cost memory, and a report
// of more endpoints would not fit the 4 MiB that servers commonly take.
const (
	mostProbes    = 1 << 16
	mostEndpoints = 30_000
)

// ErrOptions is wrapped by every error of [New].
var ErrOptions = errors.New("bad checker options")

// Options says who a checker is and what it may use. Conn and ID are required.
type Options struct {
	// Conn leads to the management server; the caller closes it. Its own
	// back-off should be short: the checker waits between attempts itself.
	Conn     grpc.ClientConnInterface
	ID       string          // node.id
	Cluster  string          // node.cluster
	Locality isobar.Locality // node.locality: where the checker looks from
	Version  string          // of this program, for node.user_agent_version

	MaxProbes    int // probes at once; 0 = DefaultMaxProbes
	MaxEndpoints int // endpoints probed; what a specifier has beyond it is refused; 0 = DefaultMaxEndpoints

	// Dial opens the connections of probes; network is "tcp" or "unix". It must
	// be safe for concurrent use and return when ctx ends. nil = the system's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// NewProber makes what probes an endpoint, in place of the real protocols.
	NewProber func(Target, *corev3.HealthCheck) (Prober, error)

	// Hint tells what to do about a stream that failed; "" where it does not know.
	Hint       func(error) string    // nil = no hints
	Log        *slog.Logger          // nil = none
	Registerer prometheus.Registerer // nil = metrics are not registered
}

// complete fills in defaults and refuses what cannot work.
func (o Options) complete() (Options, error) {
	switch {
	case o.Conn == nil:
		return o, fmt.Errorf("%w: Conn is required", ErrOptions)
	case o.ID == "":
		return o, fmt.Errorf("%w: ID is required: it identifies the reports of a checker", ErrOptions)
	case o.MaxProbes < 0 || o.MaxProbes > mostProbes:
		return o, fmt.Errorf("%w: MaxProbes %d: want 1 to %d", ErrOptions, o.MaxProbes, mostProbes)
	case o.MaxEndpoints < 0 || o.MaxEndpoints > mostEndpoints:
		return o, fmt.Errorf("%w: MaxEndpoints %d: want 1 to %d", ErrOptions, o.MaxEndpoints, mostEndpoints)
	}
	if o.MaxProbes == 0 {
		o.MaxProbes = DefaultMaxProbes
	}
	if o.MaxEndpoints == 0 {
		o.MaxEndpoints = DefaultMaxEndpoints
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}
