package admission

import (
	"net"
	"sync"
)

// Body is what is kept of a request over HTTP: its body as far as it was read, and what
// its handler keeps of that while it waits.
type Body struct {
	all    *Messages
	from   net.Addr
	cancel func()

	mu   sync.Mutex
	kept int64
	gone bool
}

// Body counts what is kept of a request over HTTP of a client. It is to be closed with
// the request. Where messages take too much, cancel may be called, which has to end the
// request.
func (m *Messages) Body(from net.Addr, cancel func()) *Body {
	b := &Body{all: m, from: from, cancel: cancel}
	m.enter(b)
	return b
}

// Waits says that the request keeps so many bytes while it waits.
func (b *Body) Waits(bytes int) { b.Keeps(bytes) }

// Keeps says how many bytes are kept of the request from now on.
func (b *Body) Keeps(bytes int) {
	b.mu.Lock()
	if !b.gone {
		b.all.used.Add(int64(bytes) - b.kept)
		b.kept = int64(bytes)
	}
	b.mu.Unlock()
	b.all.relieve()
}

// Close says that nothing is kept any more.
func (b *Body) Close() { b.leave() }

func (b *Body) leave() (bytes int64) {
	b.all.leave(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes = b.kept
	b.all.used.Add(-bytes)
	b.kept, b.gone = 0, true
	return bytes
}

// of implements holder.
func (b *Body) of() (address string, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Address(b.from), b.kept
}

// end implements holder.
func (b *Body) end() (from net.Addr, bytes int64) {
	if bytes = b.leave(); bytes > 0 { // else it has ended by itself
		b.cancel()
	}
	return b.from, bytes
}
