package measure

import (
	"context"

	"github.com/isobar-xds/isobar/bench/internal/rawclient"
)

// Of streams that never read.
const (
	mutePerConnection = 20 // so that their first messages fit into the server's window
	largeWindow       = 1<<31 - 1
	smallWindow       = 65_535
)

// mute opens the streams that never read, and returns what ends them, even of those
// that it opened before an error. There are a third each of three kinds. Two have
// connections of their own from which nobody reads anything: flow control stops
// the server, or, where windows are large, the buffers of the system do. The third
// are on the connections of the healthy streams, a few on each: only what they are
// sent is left where it is.
func (h *Hostile) mute(ctx context.Context, c *crowd, s *rawclient.Subscriber) (ends endings, err error) {
	third := h.Mute / 3
	for _, window := range []int{smallWindow, largeWindow} {
		for left := third; left > 0; left -= mutePerConnection {
			conn, err := rawclient.Mute(ctx, c.process.Address, rawclient.V3.Method, min(left, mutePerConnection), s.First, window)
			if err != nil {
				return ends, err
			}
			ends = append(ends, conn.Close)
		}
	}
	for i, conn := range c.conns {
		rest := h.Mute - 2*third
		reset, err := conn.Neglect(rest*(i+1)/len(c.conns)-rest*i/len(c.conns), s.First)
		if err != nil {
			return ends, err
		}
		ends = append(ends, reset)
	}
	return ends, nil
}
