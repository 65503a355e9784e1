package xds

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// Options of a Server. The zero value of a field means its default.
type Options struct {
	Log        *slog.Logger          // default: nothing is logged
	Registerer prometheus.Registerer // default: metrics are kept but not exported
	Identifier string                // control_plane.identifier of every response; default "isobar"
	Limits     resource.Limits       // of a single request

	// Admit is asked once for each stream, with its context and the node of its
	// first request, and again by Reauthorize; an error, which should be a gRPC status, ends the stream.
	// Default: every node is welcome.
	Admit func(context.Context, rpc.Node) error

	// Place fills in the locality of a client that connects from an address and names the
	// machine that it runs on, before Admit is asked. It may wait a little. nil = nobody does.
	Place func(ctx context.Context, peer string, n *rpc.Node)

	// Await is asked for the version that a client shows in its first request of a type
	// on a stream, which another server of the same fleet may have sent. It returns when
	// this server has that version, or does not wait for it; an error, which should be a
	// gRPC status, ends the stream. Default: no version is waited for.
	Await func(ctx context.Context, peer, version string) error
	// Returns is asked when a client without an order of versions, by delta or by polling,
	// shows in its first request of a type that another server of the same fleet may have
	// answered it before. An error, which should be a gRPC status, ends the stream.
	// Default: every client is answered.
	Returns func() error
	// HoldRemovals is where [Server.HoldRemovals] stands at first.
	HoldRemovals bool

	// Account says under what a client counts, by the context of its stream or
	// request: no account holds more than half of what all that poll may have, a
	// quarter of the memory for them, or an eighth of the memory for names that streams
	// subscribe to. "" = it is not counted under any. Default: nobody is.
	Account func(context.Context) string

	// Is2017 tells which of the clients that call the methods of v2 mean their
	// form of 2017; default: none. Only 2017's own methods tell by themselves.
	Is2017 func(rpc.Node) bool

	MaxStreams    int // open streams at once; default 40,000
	MaxLocalities int // different client localities at once; default 2,000
	// PollMemory bounds what clients that poll may make the server remember, in
	// bytes, estimated; default 512 MiB.
	PollMemory int
	// PollSize bounds what one poll is answered, in bytes of its resources as
	// streams get them; in JSON they take some four times as many. Default 8 MiB.
	PollSize int
	// StreamNames bounds what the names that one stream subscribes to may make
	// the server remember, and NameMemory those of all open streams, in bytes,
	// estimated; defaults 64 MiB and 1 GiB.
	StreamNames, NameMemory int
	// ResponseSize is the size in bytes beyond which a response is continued
	// in the next one, where the protocol allows it; default 2 MiB. Clients
	// take 4 MiB.
	ResponseSize int

	// FirstRequestWait bounds how long a stream may say nothing before its
	// first request; default 30 s.
	FirstRequestWait time.Duration
	// FirstPlanWait bounds how long a new stream waits for the first
	// publication of the process before it is refused; default 10 s.
	FirstPlanWait time.Duration
	// RemovalWait bounds how long removals of clusters wait for changes of
	// listeners and routes to get through; default 10 s.
	RemovalWait time.Duration
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Identifier == "" {
		o.Identifier = "isobar"
	}
	setDefault(&o.MaxStreams, 40_000)
	setDefault(&o.MaxLocalities, 2_000)
	setDefault(&o.PollMemory, 512<<20)
	setDefault(&o.PollSize, 8<<20)
	setDefault(&o.StreamNames, 64<<20)
	setDefault(&o.NameMemory, 1<<30)
	setDefault(&o.ResponseSize, 2<<20)
	setDefault(&o.FirstRequestWait, 30*time.Second)
	setDefault(&o.FirstPlanWait, 10*time.Second)
	setDefault(&o.RemovalWait, 10*time.Second)
	return o
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}
