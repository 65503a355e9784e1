package server

import (
	"net"
	"sync"
	"sync/atomic"
)

// counted is the listener of one part: it counts the open connections that it
// accepted, and accepts one when it is its turn. Left to themselves, the part
// that has accepted last is the first to accept again, so that a herd of clients
// would end up in a few parts, and would be sent away as a herd.
type counted struct {
	net.Listener

	turn, next chan struct{} // the one token of all parts; capacity 1
	closed     chan struct{}
	close      sync.Once
	open       atomic.Int64
	track      *connections // nil = they are only counted
}

// takeTurns makes n listeners of one.
func takeTurns(l net.Listener, n int) []*counted {
	turns := make([]chan struct{}, n)
	for i := range turns {
		turns[i] = make(chan struct{}, 1)
	}
	turns[0] <- struct{}{}
	out := make([]*counted, n)
	for i := range out {
		out[i] = &counted{Listener: l, turn: turns[i], next: turns[(i+1)%n], closed: make(chan struct{})}
	}
	return out
}

// Accept implements [net.Listener].
func (l *counted) Accept() (net.Conn, error) {
	select {
	case <-l.turn:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	l.next <- struct{}{} // which has room: it is the only one
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	if l.track == nil {
		return &countedConn{Conn: c, closed: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
	}
	l.track.add(c)
	return &countedConn{Conn: c, closed: sync.OnceFunc(func() {
		l.open.Add(-1)
		l.track.remove(c)
	})}, nil
}

// Close implements [net.Listener].
func (l *counted) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
