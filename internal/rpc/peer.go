package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// PeerAddress is the address of whoever made a call; "" if it is not known.
func PeerAddress(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// Panics recovers panics that peers could cause. The zero value is ready; it is safe
// for concurrent use.
type Panics struct{ logs LogLimit }

// Recovered makes a panic the end of one peer's stream or request and not of
// the process: deferred, it logs the panic with what the attributes say and
// sets err to a status for the peer. A peer that found a defect may go on for
// ever, so that only so many are logged.
func (d *Panics) Recovered(err *error, log *slog.Logger, attributes ...any) {
	if r := recover(); r != nil {
		if skipped, ok := d.logs.Allow(time.Now()); ok {
			log.Error("a stream failed with an internal error; other streams continue",
				append(attributes, "panic", fmt.Sprint(r), "stack", string(debug.Stack()), "skipped_lines", skipped)...)
		}
		*err = status.Error(codes.Internal, "isobar: internal error; it is in the server's log")
	}
}
