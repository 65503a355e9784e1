package admission

import (
	"container/list"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// stuckWrite is how long a client may leave an answer unread before its connection may be
// replaced.
const stuckWrite = time.Second

// yielding holds the connections of a listener that replaces connections at its limit.
type yielding struct {
	all     map[*conn]struct{}
	waiting *list.List    // of *conn without a whole request, the longest waiting first
	freed   chan struct{} // capacity 1: a connection was answered or has left
}

func newYielding() *yielding {
	return &yielding{all: map[*conn]struct{}{}, waiting: list.New(), freed: make(chan struct{}, 1)}
}

func (y *yielding) enter(c *conn) {
	y.all[c] = struct{}{}
	c.waits = y.waiting.PushBack(c)
}

func (y *yielding) leave(c *conn) {
	delete(y.all, c)
	y.serving(c)
}

// serving notes that a request is being answered.
func (y *yielding) serving(c *conn) {
	if c.waits != nil {
		y.waiting.Remove(c.waits)
		c.waits = nil
	}
}

// oldest returns the first connection to replace, of one address or of any (""): the one that has
// waited longest for a request and is not urgent, else one whose client has not read for
// stuckWrite. nil = there is none.
func (y *yielding) oldest(address string, now time.Time) *conn {
	for e := y.waiting.Front(); e != nil; e = e.Next() {
		c, ok := e.Value.(*conn)
		if ok && (address == "" || c.address == address) && c.urgentUntil <= now.UnixNano() {
			return c
		}
	}
	var out *conn
	var since int64
	for c := range y.all {
		began := c.writing.Load()
		stuck := began != 0 && now.UnixNano()-began > int64(stuckWrite)
		if stuck && (address == "" || c.address == address) && (out == nil || began < since) {
			out, since = c, began
		}
	}
	return out
}

// notify wakes a wait: a connection may have ended.
func (y *yielding) notify() {
	select {
	case y.freed <- struct{}{}:
	default:
	}
}

// wait waits until a connection was answered or has left; false = not in urgentWait.
// The connections that come meanwhile wait in the queue of the system.
func (y *yielding) wait() bool {
	select {
	case <-y.freed:
	default:
	}
	timer := time.NewTimer(urgentWait)
	defer timer.Stop()
	select {
	case <-y.freed:
		return true
	case <-timer.C:
		return false
	}
}

// evict closes one connection for a new one from an address, which was refused. It reports
// whether the new one fits now.
func (l *listener) evict(address string, refused Reason) bool {
	l.mu.Lock()
	var victim *conn
	switch {
	case l.yielding == nil:
	case refused == PeerConnections:
		victim = l.yielding.oldest(address, time.Now())
	case refused == Connections:
		if victim = l.yielding.oldest(l.heaviest(), time.Now()); victim == nil {
			victim = l.yielding.oldest("", time.Now())
		}
	}
	l.mu.Unlock()
	if victim == nil {
		return false
	}
	l.limits.Metrics.refuse(l.limits.what(), Yielded)
	_ = victim.Close() // the server reads an error from it, and lets it go
	return true
}

// heaviest is the address with most connections.
func (l *listener) heaviest() (out string) {
	most := 0
	for address, n := range l.open { // of several with as many, any
		if n > most {
			out, most = address, n
		}
	}
	return out
}

// change changes the state of a connection for the listener, unless it has left.
func (l *listener) change(c *conn, f func(*yielding)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.yielding.all[c]; open {
		f(l.yielding)
	}
}

func (c *conn) startServing() {
	c.listener.change(c, func(y *yielding) { y.serving(c) })
}

func (c *conn) startWaiting() {
	c.listener.change(c, func(y *yielding) {
		y.serving(c)
		c.waits, c.urgentUntil = y.waiting.PushBack(c), 0
		y.notify()
	})
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if c.listener.yielding == nil {
		return c.Conn.Write(b)
	}
	c.writing.Store(time.Now().UnixNano())
	defer c.writing.Store(0)
	return c.Conn.Write(b)
}

type yieldKey struct{}

// TrackRequests makes a server of HTTP/1 report to its listener, if it is one of [Listen]
// with Limits.Yield, which connections have a whole request: the listener evicts only the
// others. Call it before the server serves.
func TrackRequests(s *http.Server) {
	h := s.Handler
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if y := yieldingConn(c); y != nil {
			return context.WithValue(ctx, yieldKey{}, y)
		}
		return ctx
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(yieldKey{}).(*conn)
		if !ok {
			h.ServeHTTP(w, r)
			return
		}
		if r.ContentLength == 0 {
			c.startServing()
		} else {
			r.Body = &wholeBody{ReadCloser: r.Body, left: r.ContentLength, whole: sync.OnceFunc(c.startServing)}
		}
		defer c.startWaiting()
		h.ServeHTTP(w, r)
	})
}

// yieldingConn is the connection of the listener beneath one that a server uses.
func yieldingConn(c net.Conn) *conn {
	for c != nil {
		switch x := c.(type) {
		case *conn:
			if x.listener.yielding == nil {
				return nil
			}
			return x
		case interface{ NetConn() net.Conn }: // of TLS
			c = x.NetConn()
		case Around:
			c = x.Beneath()
		default:
			return nil
		}
	}
	return nil
}

// wholeBody is the body of a request, which says when all of it was read.
type wholeBody struct {
	io.ReadCloser

	left  int64 // bytes; below 0 = the client did not say how many
	whole func()
}

// Read implements io.Reader.
func (b *wholeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	known := b.left > 0
	b.left -= int64(n)
	if err == io.EOF || known && b.left <= 0 {
		b.whole()
	}
	return n, err
}
