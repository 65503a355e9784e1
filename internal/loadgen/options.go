// Package loadgen connects thousands of synthetic xDS clients to a management
// server and measures what they see: how soon assignments come, also after all
// connections were lost at once, how far apart the first and the last stream
// get a change, and what went wrong.
//
// A client subscribes on one aggregated stream as gRPC does, by name, to
// clusters and then to their assignments, acknowledges what it accepts, and
// reports load on a stream of its own, in the shares that it was assigned.
// Responses are read field by field, and each distinct assignment is decoded
// and checked once for all clients, so that one process can be a fleet.
package loadgen

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar"
)

// Bounds and defaults of Options.
const (
	MaxClients       = 100_000
	MaxRate          = 1e6 // of a client, requests/s
	MaxAddresses     = 60_000
	DefaultSubscribe = 10
	DefaultPatience  = time.Minute

	perConnection       = 50   // clients, where Connections is not said
	streamsOfConnection = 1000 // that servers take
	minReportEvery      = time.Second
)

// Options says whom to connect to, and as what. Target and Clients are required.
type Options struct {
	Target      string                           // HOST:PORT
	Credentials credentials.TransportCredentials // nil = plaintext
	Hint        func(error) string               // what to do about a connection that failed; "" = it does not know; nil = it never does

	Clients     int // 1 to MaxClients
	Connections int // that the clients share; 0 = one for 50 clients
	// Addresses is from how many addresses of 127.0.0.0/8 the connections come, in
	// turn, to a server on this machine; 0 = from that which the system takes. It
	// works on Linux.
	Addresses  int
	Localities []isobar.Locality // of the clients; nil = where the services have endpoints
	Services   []string          // that the clients subscribe to; nil = all that the server lists
	Subscribe  int               // services of each client; 0 = DefaultSubscribe; at most all
	Streams    Streams           // on which the clients subscribe; "" = SharedADS

	// Rate is the load that each client reports, requests/s over all its
	// services; 0 = its reports are empty.
	Rate float64
	// RateOf is the load that a client reports on one service, in place of Rate;
	// nil = Rate. It must be safe for concurrent use.
	RateOf func(client int, service string, now time.Time) float64

	Ramp     time.Duration // over which the clients connect
	Duration time.Duration // from the beginning; then everything ends
	// Reconnect drops all connections at the end of the duration and lets all
	// clients come back at once.
	Reconnect bool
	// Patience is how long is waited for the last client's first assignment; 0 =
	// DefaultPatience.
	Patience time.Duration

	// Progress is told how things stand, four times a second; nil = nobody asks.
	Progress func(Progress)
	// Phase is called for each phase when it begins, from the same goroutine.
	Phase func(Phase)
}

// Streams says on which discovery streams a client subscribes. Each client has a
// stream for load reports besides.
type Streams string

// The kinds of Streams.
const (
	// SharedADS is one aggregated stream for all services, as Envoys with ADS and
	// grpc-go have it.
	SharedADS Streams = "shared"
	// EachADS is an aggregated stream for each service, as grpc-java and C-core have
	// it: one for each target.
	EachADS Streams = "ads"
	// EachEDS is a stream of endpoints for each service, as Envoys have it whose
	// clusters name the server outside of ADS.
	EachEDS Streams = "eds"
)

// Phase is a part of a run.
type Phase string

// The phases, in their order.
const (
	Connecting   Phase = "connecting"
	Holding      Phase = "holding"
	Reconnecting Phase = "reconnecting"
)

// Progress is how things stand.
type Progress struct {
	Phase    Phase
	Done     float64 // of the phase, 0 to 1
	Clients  int
	Answered int // clients that have an assignment, on their present connection
	Pushes   int64
	Reports  int64
	Errors   int64
}

// ErrOptions marks options that make no run.
var ErrOptions = errors.New("bad options")

// complete checks the options and fills in defaults.
func (o *Options) complete() error {
	switch {
	case o.Target == "":
		return fmt.Errorf("%w: no target", ErrOptions)
	case o.Clients < 1 || o.Clients > MaxClients:
		return fmt.Errorf("%w: %d clients, want 1 to %d", ErrOptions, o.Clients, MaxClients)
	case o.Connections < 0 || o.Connections > o.Clients:
		return fmt.Errorf("%w: %d connections for %d clients, want at most one each", ErrOptions, o.Connections, o.Clients)
	case o.Addresses < 0 || o.Addresses > MaxAddresses:
		return fmt.Errorf("%w: %d addresses, want 0 to %d", ErrOptions, o.Addresses, MaxAddresses)
	case o.Subscribe < 0:
		return fmt.Errorf("%w: %d services for each client, want at least 1", ErrOptions, o.Subscribe)
	case !(o.Rate >= 0 && o.Rate <= MaxRate): // nor NaN
		return fmt.Errorf("%w: a rate of %v requests/s, want 0 to %v", ErrOptions, o.Rate, MaxRate)
	case o.Ramp < 0 || o.Duration < 0 || o.Patience < 0:
		return fmt.Errorf("%w: durations must not be negative", ErrOptions)
	}
	if o.Connections == 0 {
		o.Connections = (o.Clients + perConnection - 1) / perConnection
	}
	if o.Credentials == nil {
		o.Credentials = insecure.NewCredentials()
	}
	if o.Subscribe == 0 {
		o.Subscribe = DefaultSubscribe
	}
	each := 2 // streams of a client
	switch o.Streams {
	case "":
		o.Streams = SharedADS
	case SharedADS:
	case EachADS, EachEDS:
		each = o.Subscribe + 1
	default:
		return fmt.Errorf("%w: streams %q, want %s, %s or %s", ErrOptions, o.Streams, SharedADS, EachADS, EachEDS)
	}
	if most := (o.Clients + o.Connections - 1) / o.Connections; most*each > streamsOfConnection {
		return fmt.Errorf("%w: %d clients of %d streams on a connection, want at most %d streams: open more connections", ErrOptions, most, each, streamsOfConnection)
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	return nil
}
